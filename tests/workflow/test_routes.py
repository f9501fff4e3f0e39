"""Where an order goes next: by its graph, by a check's decision, past what failed, and on to a worker that can."""

import dataclasses
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

from orderflow.catalogue import StepKind, load_catalogue
from orderflow.dispatch import NO_WORKER_KNOWS_IT
from orderflow.domain.effects import Done
from orderflow.domain.errors import ErrorType
from orderflow.domain.orders import Reason, Stage, StepState
from orderflow.domain.strict_json import JsonValue
from tests.definitions import graph, shipped
from tests.support.bank import Bank, Told
from tests.support.shop import Ending, Order, Shop, check_orders, open_for_business, open_shop

PACK: Final = StepKind("pack_order", "packing", "pack", lambda order: {"order_id": order.order_id})

NO_DECISIONS: Final[dict[str, JsonValue]] = {
    "none": None,
    "empty": "",
    "case": "Approve",
    "space": " approve",
    "synonym": "yes",
    "prose": "I would approve this order.",
    "the default's own name": "default",
    "true": True,
    "number": 1,
    "list": ["approve"],
    "object": {"decision": "approve"},
    "long": "approve" * 20,
}
"""What a risk check may say that is no decision of the definition."""


@pytest.fixture
def risk() -> Bank:
    """A risk check that answers as it is told."""
    return Bank()


@pytest.fixture
async def asking(env: WorkflowEnvironment, tmp_path: Path, risk: Bank) -> AsyncIterator[Shop]:
    """A shop that asks `risk`."""
    async with open_for_business(env.client, tmp_path, providers={"risk": risk}) as opened:
        yield opened


@pytest.mark.parametrize("word", NO_DECISIONS)
async def test_what_is_no_decision_goes_to_a_person(asking: Shop, risk: Bank, word: str) -> None:
    """L01: nothing but the definition's own words lets an order pass; a person may, and it is still to be approved."""
    risk.told.append(Told(Done(reference="risk-1", result={"decision": NO_DECISIONS[word]})))
    order = await asking.start()
    view = await order.until(Stage.MANUAL_REVIEW)
    assert view.request is not None
    assert view.request.bound.step == "risk_check"
    await order.approve("bob")
    await order.until(Stage.AWAITING_APPROVAL)
    assert asking.world.net_charged(order.id) == 0


async def test_an_answer_without_any_decision_goes_to_a_person(asking: Shop, risk: Bank) -> None:
    """L01: also when the member is missing."""
    risk.told.append(Told(Done(reference="risk-1")))
    await (await asking.start()).until(Stage.MANUAL_REVIEW)


async def test_the_beginning_of_a_word_is_no_decision(asking: Shop, risk: Bank) -> None:
    """L01: a route's name has up to 64 characters; all of them decide, and one more is another word."""
    longest = "a" * 64
    definition = asking.define(shipped({"$.steps[2].routes": {longest: "proceed", "default": "manual_review"}}))
    for decision, stage in ((longest, Stage.AWAITING_APPROVAL), (longest + "a", Stage.MANUAL_REVIEW)):
        risk.told.append(Told(Done(reference="risk-1", result={"decision": decision})))
        await (await asking.start(definition=definition)).until(stage)


async def test_an_order_that_risk_declines_fails_without_asking_anybody(asking: Shop, risk: Bank) -> None:
    """No approval is asked for, the reservation is released, and the decision is told."""
    risk.told.append(Told(Done(reference="risk-1", result={"decision": "decline"})))
    order = await asking.start()
    ending = await order.ending()
    assert (ending.view.stage, ending.view.reason) == (Stage.FAILED_COMPENSATED, Reason.RISK_DECLINED)
    assert ending.view.detail == "risk_check: routed: decline"
    assert [line["operation"] for line in order.lines() if line["outcome"] == "done"] == ["reserve", "release"]
    assert "request_opened" not in [event.told for event in ending.view.trail]


async def test_of_two_failures_in_a_batch_the_first_in_the_definition_is_the_reason(asking: Shop, risk: Bank) -> None:
    """Whichever came first in time: results are taken in definition order."""
    risk.told.append(Told(Done(reference="risk-1", result={"decision": "decline"})))
    asking.fault("decline", "reserve")
    gate = asking.hold("reserve")
    order = await asking.start()
    await order.when(lambda view: view.steps[2].state is StepState.FAILED)
    gate.open()
    ending = await order.ending()
    assert (ending.view.stage, ending.view.reason) == (Stage.FAILED, Reason.DECLINED)
    assert ending.view.detail == "reserve_inventory: Declined: out_of_stock"


async def test_a_step_that_may_fail_does_not_stop_the_order(shop: Shop) -> None:
    """`on_failure: continue`: completed, and the outcome says what was not done and why."""
    order = await shop.start(definition=shop.define(shipped({"$.steps[4].on_failure": "continue"})))
    shop.fault("decline", "notify", order.id)
    await order.approve()
    ending = await order.ending()
    assert ending.view.stage is Stage.COMPLETED
    assert (ending.view.steps[4].state, ending.view.steps[4].error) == (StepState.SKIPPED, ErrorType.DECLINED)
    assert ending.result.notes == ("notify was not done: it failed, and its definition lets the order go on",)
    assert shop.world.net_charged(order.id) == 900


def random_graph(seed: int) -> dict[str, list[str]]:
    """Up to seven steps that wait for some of those before them."""
    chance = random.Random(seed)
    names = [f"s{number}" for number in range(chance.randint(2, 7))]
    return {name: chance.sample(names[:at], chance.randint(0, min(at, 2))) for at, name in enumerate(names)}


GRAPHS: Final[dict[str, Mapping[str, Sequence[str]]]] = {
    "five at once": {"e": [], "d": [], "c": [], "b": [], "a": []},
    "diamond": {"last": ["left", "right"], "left": ["first"], "right": ["first"], "first": []},
    "chain": {"s1": [], "s2": ["s1"], "s3": ["s2"], "s4": ["s3"], "s5": ["s4"]},
    "chain backwards": {"s1": ["s2"], "s2": ["s3"], "s3": ["s4"], "s4": []},
    **{f"random {seed}": random_graph(seed) for seed in range(6)},
}


@pytest.mark.parametrize("edges", GRAPHS.values(), ids=GRAPHS)
async def test_steps_run_in_ready_batches(shop: Shop, edges: Mapping[str, Sequence[str]]) -> None:
    """Each ready batch is scheduled in one workflow task, and results stand in the order of the definition."""
    order = await shop.start(definition=shop.define(graph(edges)))
    ending = await order.ending()
    assert ending.view.stage is Stage.COMPLETED
    assert [record.step for record in ending.result.steps] == list(edges)
    batches: dict[int, list[str]] = {}
    for each in (await order.books()).scheduled():
        batches.setdefault(each.workflow_task_completed_event_id, []).append(each.activity_id)
    assert list(batches.values()) == layers(edges)


def layers(edges: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """The ready batches, one after the other: the oracle."""
    done: list[str] = []
    batches = []
    while batch := [name for name, needed in edges.items() if name not in done and set(needed) <= set(done)]:
        batches.append(batch)
        done += batch
    return batches


async def done_elsewhere(shop: Shop, order: Order) -> Ending:
    """Let a worker of another process help that knows everything; one client may not have two on a queue."""
    host = shop.client.service_client.config.target_host
    client = await Client.connect(host, data_converter=shop.client.data_converter)
    async with dataclasses.replace(shop, client=client).worker() as shop.running:
        ending = await order.ending()
        await check_orders(shop)
    return ending


def with_packing(value: dict[str, Any]) -> None:
    """Let an order be packed when it is paid, with one attempt only."""
    packing = {**value["steps"][4], "id": "pack", "activity": "pack_order"}
    packing["retry"] = {**packing["retry"], "attempts": 1}
    value["steps"].append(packing)


async def test_a_step_that_no_worker_knows_waits_for_one_that_does(env: WorkflowEnvironment, tmp_path: Path) -> None:
    """No attempt is used up, people can see what is missing, and a worker of the next release does it."""
    async with (
        open_shop(env.client, tmp_path, change=with_packing, kinds=[PACK]) as shop,
        shop.worker(shop.activities_with(catalogue=load_catalogue([]))),
    ):
        order = await shop.start()
        await order.approve()
        view = await order.when(lambda view: view.steps[5].detail == NO_WORKER_KNOWS_IT)
        assert (view.stage, view.steps[5].state) == (Stage.RUNNING, StepState.RUNNING)
        ending = await done_elsewhere(shop, order)
        assert ending.view.stage is Stage.COMPLETED
        assert (ending.view.steps[5].state, ending.view.steps[5].detail) == (StepState.DONE, None)
        assert len((await order.books()).scheduled("pack")) > 1


def with_little_time_to_notify(value: dict[str, Any]) -> None:
    """Let a message be stale before anybody is asked a second time whether he can send it."""
    value["steps"][4]["deadline"] = "PT5S"


async def test_a_message_that_nobody_could_send_in_time_is_not_sent(env: WorkflowEnvironment, tmp_path: Path) -> None:
    """Its deadline passes while no worker can do it: the order completes, and the outcome says what was left out."""
    async with (
        open_shop(env.client, tmp_path, change=with_little_time_to_notify) as shop,
        shop.worker(shop.activities_with(without=["notifications"])),
    ):
        order = await shop.start()
        await order.approve()
        await order.when(lambda view: view.steps[4].detail == NO_WORKER_KNOWS_IT)
        ending = await done_elsewhere(shop, order)
        assert ending.view.stage is Stage.COMPLETED
        assert (ending.view.steps[4].state, ending.view.steps[4].error) == (StepState.SKIPPED, "DeadlinePassed")
        [note] = ending.result.notes
        assert note == "notify was not done: its deadline had passed, so it would have been stale"
        assert shop.world.messages(order.id) == []
