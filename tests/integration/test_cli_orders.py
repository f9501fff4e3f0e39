"""The command line with a real Temporal server and a worker: the life of an order as people see and steer it."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from temporalio import workflow
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from orderflow.contracts import WORKFLOW_TYPE
from orderflow.domain.orders import Stage
from tests.support.command_line import Ran, in_a_shell, orderflow, run_process
from tests.support.counter import Counter
from tests.support.shop import Order, Shop, check_orders

PATIENCE = 60.0


pytestmark = pytest.mark.timeout(60)


async def seen(look: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Look until there is something to see."""
    async with asyncio.timeout(seconds):
        while not (found := await look()):  # other processes change what there is to see
            await asyncio.sleep(0.1)
    return found


async def test_an_order_from_its_event_to_its_end(open_counter: Counter) -> None:
    """Submit, list, show, approve, show: the card's flow, with one charge at the provider."""
    order = await open_counter.pending()
    listed = await seen(lambda: lists(open_counter, order, Stage.AWAITING_APPROVAL))
    assert listed["status"] == "running"
    pending = (await open_counter("show", order.id)).out
    for told in ("awaiting_approval", "EUR 9.00", "dana", "finance, 1 needed", "reserve_inventory", "committed"):
        assert told in pending
    approved = await open_counter("approve", order.id, "--as", "alice")
    assert approved.code == 0
    assert "EUR 9.00" in approved.out
    await order.until(Stage.COMPLETED)
    ended = (await open_counter("show", order.id, "--json")).json
    assert (ended["stage"], ended["view"]["outcome"]["stage"]) == ("completed", "completed")
    assert [effect["operation"] for effect in ended["effects"]] == ["reserve", "charge", "notify"]
    assert open_counter.charges(order) == ["done"]


async def lists(counter: Counter, order: Order, stage: Stage) -> Any:
    """The line of an order in the list of those in `stage`; Temporal's list lags a little."""
    listed = (await counter("list", "--stage", stage, "--json")).json
    return next((line for line in listed if line["order"] == order.id), None)


async def test_the_same_event_again_is_the_same_order(open_counter: Counter) -> None:
    """A sender may retry without fear; another payload under the same identity is a conflict (I11)."""
    event = open_counter.event(event_id=(event_id := uuid.uuid4().hex))
    submit = ("--direct", "--definition", "definition.json", "--json")
    first = (await open_counter("submit", event, *submit)).json
    again = await open_counter("submit", event, *submit)
    assert (again.code, again.json["duplicate"], again.json["status"]) == (0, True, "running")
    assert (again.json["order"], again.json["run_id"]) == (first["order"], first["run_id"])
    told = await open_counter("submit", event, "--direct", "--definition", "definition.json")
    assert f"duplicate: already started as {first['order']}, which is running" in told.out
    other = await open_counter("submit", open_counter.event(event_id=event_id, order_id="A-2"), *submit)
    assert (other.code, other.error["conflict"], other.error["order"]) == (1, True, first["order"])


async def test_a_rejection_takes_everything_back(open_counter: Counter) -> None:
    """And `show` says why, and that the reservation is undone."""
    order = await open_counter.pending()
    assert (await open_counter("reject", order.id, "--as", "bob")).code == 0
    await order.until(Stage.FAILED_COMPENSATED)
    shown = (await open_counter("show", order.id)).out
    for told in ("failed_compensated", "approval_rejected", "undone", "reversed"):
        assert told in shown
    assert open_counter.charges(order) == []


@pytest.mark.parametrize("door", ["update", "signal"])
async def test_a_refused_decision_leaves_no_trace_but_its_reason(door: str, open_counter: Counter) -> None:
    """T15: wrong digest: exit code 1 with the reason, the order still waits; then the right one is charged once."""
    order = await open_counter.pending()
    by = ("--signal",) if door == "signal" else ()
    tampered = await order.token("alice", payload_fingerprint="fp1:tampered")
    ran = await open_counter("approve", order.id, "--file", "-", *by, stdin=tampered.encode())
    assert ran.code == 1
    assert "wrong_payload" in ran.err
    assert (await order.view()).stage is Stage.AWAITING_APPROVAL
    unentitled = await open_counter("approve", order.id, "--as", "carol", *by, "--json")
    assert (unentitled.code, unentitled.error["refusal"]) == (1, "role_not_held")
    assert "refused messages: 2" in (await open_counter("show", order.id)).out
    assert (await open_counter("approve", order.id, "--as", "alice", *by)).code == 0
    await order.until(Stage.COMPLETED)
    assert open_counter.charges(order) == ["done"]


async def test_a_decision_on_another_order_is_refused(open_counter: Counter) -> None:
    """A signed approval is good for one order."""
    mine, other = await open_counter.pending(), await open_counter.pending()
    (open_counter.folder / "decision").write_text(await other.token("alice"))
    ran = await open_counter("approve", mine.id, "--file", "decision")
    assert ran.code == 1
    assert "wrong_order" in ran.err


async def test_a_closed_order_and_an_unknown_one_take_no_decision(open_counter: Counter) -> None:
    """T13: `already closed: <state>` or `unknown order`, exit code 1."""
    order = await open_counter.pending()
    late = await order.token("bob")
    assert (await open_counter("approve", order.id, "--as", "alice")).code == 0
    await order.result()
    for arguments in (
        ("--as", "alice"),
        ("--payload", late),
        ("--payload", late, "--signal"),
        ("--as", "bob", "--print"),
    ):
        ran = await open_counter("approve", order.id, *arguments)
        assert ran.code == 1
        assert "already closed: completed" in ran.err
    for verb in (("approve", "--as", "alice"), ("reject", "--as", "alice"), ("show",)):
        ran = await open_counter(*verb, "--source", "/shop", "--id", uuid.uuid4().hex)
        assert ran.code == 1
        assert "unknown order" in ran.err


async def test_an_order_that_waits_for_nobody_takes_no_decision(open_counter: Counter) -> None:
    """Too early is said as such."""
    gate = open_counter.shop.hold("reserve")
    order = await open_counter.submit()
    await order.when(lambda view: view.definition_fingerprint)
    ran = await open_counter("approve", order.id, "--as", "alice")
    assert ran.code == 1
    assert "no approval is pending" in ran.err
    gate.open()
    await order.until(Stage.AWAITING_APPROVAL)


async def test_the_printed_signal_command_completes_the_order_as_it_stands(open_counter: Counter) -> None:
    """Issue: `orderflow approve ORDER --as alice --print`, and the rest is Temporal's own CLI."""
    order = await open_counter.pending()
    ran = await run_process("approve", order.id, "--as", "alice", "--print")
    assert ran.code == 0
    for told in ("alice signs: approve", "EUR 9.00", "2 × tea"):
        assert told in ran.err
    assert len(ran.out.splitlines()) == 1
    await asyncio.to_thread(in_a_shell, ran.out)
    await order.until(Stage.COMPLETED)
    assert open_counter.charges(order) == ["done"]


async def test_the_payload_printed_as_json_is_what_an_update_takes(open_counter: Counter) -> None:
    """For every other client, and for `--file`."""
    order = await open_counter.pending()
    told = (await open_counter("approve", order.id, "--as", "alice", "--print", "--json")).json
    assert told["claims"]["workflow_id"] == order.id
    assert (await order.view()).stage is Stage.AWAITING_APPROVAL
    (open_counter.folder / "payload.json").write_text(json.dumps(told["payload"]))
    assert (await open_counter("approve", order.id, "--file", "payload.json")).code == 0
    await order.until(Stage.COMPLETED)


async def test_the_printed_start_command_starts_the_order(open_counter: Counter) -> None:
    """The same order as without `--print`, so a second way of starting it is a duplicate."""
    event = open_counter.event()
    options = ("--direct", "--definition", "definition.json")
    command = (await open_counter("submit", event, *options, "--print")).out
    await asyncio.to_thread(in_a_shell, command)
    again = await open_counter("submit", event, *options, "--json")
    assert (again.code, again.json["duplicate"]) == (0, True)
    assert (await seen(lambda: open_counter("show", again.json["order"]))).code == 0


async def test_any_event_id_can_be_addressed(open_counter: Counter) -> None:
    """C05: emoji, quotes, white space."""
    event_id = f'🎂 it\'s "{uuid.uuid4().hex}" $HOME'
    order = await open_counter.pending(event_id=event_id)
    shown = await open_counter("show", "--source", "/shop", "--id", event_id)
    assert shown.code == 0
    assert order.id in shown.out
    assert event_id in shown.out


async def test_what_is_tried_again_is_shown_with_its_last_failure(open_counter: Counter) -> None:
    """An operator sees that an order stands at a provider, and at which attempt."""
    order = await open_counter.pending()
    open_counter.shop.fault("unavailable", "charge", order.id, times=2)
    await order.approve()

    async def trouble() -> bool:
        return "ProviderUnavailable" in (await open_counter("show", order.id)).out

    await seen(trouble)
    await order.until(Stage.COMPLETED)
    (charge,) = [
        e for e in (await open_counter("show", order.id, "--json")).json["effects"] if e["operation"] == "charge"
    ]
    assert charge["state"] == "committed"


async def test_without_a_worker_every_verb_says_so(counter: Counter) -> None:
    """Exit code 3, after what Temporal itself knows; nothing is lost."""
    options = ("--direct", "--definition", "definition.json", "--json")
    event = counter.event(event_id=(event_id := uuid.uuid4().hex))
    order = (await counter("submit", event, *options)).json["order"]
    again = await counter("submit", event, *options)
    assert (again.code, again.json["duplicate"], again.json["status"]) == (0, True, "running")
    other = await counter("submit", counter.event(event_id=event_id, order_id="A-2"), *options)
    assert (other.code, other.error["conflict"], other.error["order"]) == (1, True, order)
    shown = await counter("show", order)
    assert (shown.code, order in shown.out, "orderflow worker" in shown.err) == (3, True, True), shown
    approved = await counter("approve", order, "--as", "alice")
    assert (approved.code, "orderflow worker" in approved.err) == (3, True), approved


async def test_an_order_that_was_terminated_is_said_to_be(open_counter: Counter) -> None:
    """By `show`, `submit` and `list`; whoever looks for work in a stage does not find it there."""
    order = await open_counter.pending()
    await seen(lambda: lists(open_counter, order, Stage.AWAITING_APPROVAL))
    await order.handle.terminate()
    order.exempt.update({"I-2", "I-5"})
    shown = (await open_counter("show", order.id)).out
    assert shown.startswith("ENDED BY TEMPORAL (terminated) without compensation")
    assert "reserve_inventory" in shown.split("order  ")[0]
    assert "orderflow approve" not in shown

    async def is_gone() -> bool:
        return await lists(open_counter, order, Stage.AWAITING_APPROVAL) is None

    await seen(is_gone)
    everything = (await open_counter("list", "--limit", "10000", "--json")).json
    (listed,) = [line for line in everything if line["order"] == order.id]
    assert (listed["stage"], listed["status"]) == ("awaiting_approval", "terminated")
    path = open_counter.folder / "again.json"
    path.write_text(order.event.model_dump_json(exclude_none=True), encoding="utf-8")
    again = await open_counter("submit", path, "--direct", "--definition", "definition.json")
    assert (again.code, "which is terminated" in again.out) == (0, True)


async def test_doctor_finds_the_worker_and_misses_it(counter: Counter) -> None:
    """Each finding says what is or what to do; only what keeps orders from running is a failure."""
    alone = await counter_health(counter)
    assert alone["worker"] == "fail"
    assert alone["temporal"] == alone["search attributes"] == alone["ledger"] == alone["definitions"] == "ok"
    async with counter.shop.worker():
        ran = await counter("doctor")
        assert ran.code == 0, ran.out
        assert counter.shop.task_queue in ran.out


async def counter_health(counter: Counter) -> dict[str, str]:
    """What `doctor` finds, when something fails."""
    ran = await asyncio.to_thread(orderflow, "doctor", "--json")
    assert ran.code == 3
    assert ran.json["ok"] is False
    return {check["name"]: check["health"] for check in ran.json["checks"]}


@workflow.defn(name=WORKFLOW_TYPE, sandboxed=False)
class Broken:
    """An order whose code has a bug."""

    @workflow.run
    async def run(self, order: Any) -> None:
        raise ZeroDivisionError("a bug of ours")


@asynccontextmanager
async def broken_worker(shop: Shop) -> AsyncIterator[None]:
    """A worker that runs `Broken`."""
    runner = UnsandboxedWorkflowRunner()
    async with Worker(shop.client, task_queue=shop.task_queue, workflows=[Broken], workflow_runner=runner):
        yield


async def test_a_bug_in_workflow_code_is_shown_and_survived(counter: Counter) -> None:
    """T16: within 30 s `show` says that the workflow task is failing and why; after the fix there is one charge."""
    async with broken_worker(counter.shop):
        order = await counter.submit()

        async def flagged() -> Ran | None:
            ran = await counter("show", order.id)
            return ran if "WORKFLOW TASK FAILING" in ran.out else None

        ran = await seen(flagged, 30)
    assert ran.code == 3
    assert "ZeroDivisionError: a bug of ours" in ran.out
    order.exempt.add("I-5")
    async with counter.shop.worker() as counter.shop.running:
        await order.until(Stage.AWAITING_APPROVAL)
        assert (await counter("approve", order.id, "--as", "alice")).code == 0
        await order.until(Stage.COMPLETED)
        assert counter.charges(order) == ["done"]
        await check_orders(counter.shop)


async def test_two_people_may_be_needed(open_counter: Counter) -> None:
    """Each sees who approved already; the same person counts once."""

    value = json.loads((open_counter.folder / "definition.json").read_text())
    value["steps"][3]["approval"]["approvers"] = 2
    open_counter.shop.define(value)
    (open_counter.folder / "definition.json").write_text(json.dumps(value))
    order = await open_counter.pending()
    assert (await open_counter("approve", order.id, "--as", "alice")).code == 0
    shown = (await open_counter("show", order.id)).out
    assert "finance, 2 needed" in shown
    assert "dana, alice" in shown
    again = await open_counter("approve", order.id, "--as", "alice")
    assert (again.code, "already_decided" in again.err) == (1, True)
    assert (await open_counter("approve", order.id, "--as", "bob")).code == 0
    await order.until(Stage.COMPLETED)
