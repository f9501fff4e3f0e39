"""What an order has done outside outlives its runs: a reset or a second run finds it, and never does it again (T12, T44)."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus

from orderflow.contracts import WORKFLOW_TYPE, OrderInput
from orderflow.domain.approvals import Refusal
from orderflow.domain.orders import Reason, Stage
from tests.support.invariants import check_books
from tests.support.observing import at_stage
from tests.support.processes import TemporalCli
from tests.support.shop import Order, Shop


@pytest.fixture
async def shop(shop: Shop) -> AsyncIterator[Shop]:
    """A shop with a running worker."""
    async with shop.worker() as shop.running:
        yield shop


async def completed(shop: Shop) -> tuple[Order, str]:
    """A completed order, and the approval that it was completed with."""
    order = await shop.start()
    await order.send(token := await order.token())
    assert (await order.result()).stage is Stage.COMPLETED
    return order, token


async def compensated(shop: Shop) -> Order:
    """An order that was charged, and taken back because the customer cannot be told."""
    order = await shop.start()
    shop.fault("decline", "notify", order.id)
    await order.approve()
    assert (await order.ending()).view.stage is Stage.FAILED_COMPENSATED
    assert acts(shop, order) == ["reserve", "charge", "refund", "release"]
    return order


async def reset(cli: TemporalCli, order: Order) -> Order:
    """Reset an order to its first workflow task with Temporal's own command; gives the new run."""
    to_the_start = ("--type", "FirstWorkflowTask", "--reason", "a test")
    answer = await cli.json("reset", "--workflow-id", order.id, *to_the_start)
    return run(order, answer["runId"])


async def start_again(cli: TemporalCli, order: Order) -> Order:
    """Start a second run of a closed order, which only somebody who asks for duplicates can; gives the new run."""
    value = OrderInput(event=order.event, definition=order.definition).model_dump_json()
    where = ("--type", WORKFLOW_TYPE, "--task-queue", order.shop.task_queue, "--workflow-id", order.id)
    answer = await cli.json("start", *where, "--id-reuse-policy", "AllowDuplicate", "--input", value)
    return run(order, answer["runId"])


AGAIN = {"reset": reset, "second run": start_again}


def run(order: Order, run_id: str) -> Order:
    """One run of an order."""
    handle = order.shop.client.get_workflow_handle(order.id, run_id=run_id)
    return Order(order.shop, handle, order.event, order.definition)


def acts(shop: Shop, order: Order) -> list[Any]:
    """What the providers really changed for an order, in that order."""
    done = [line for line in shop.world.log() if line.get("workflow_id") == order.id and line.get("outcome") == "done"]
    return [line["operation"] for line in done if line["kind"] == "act" and line["operation"] not in ("check", "notify")]


@pytest.mark.parametrize("how", AGAIN)
async def test_a_compensated_order_never_completes_on_its_old_charge(how: str, shop: Shop, cli: TemporalCli) -> None:
    """Issue 2, DESIGN section 6: it fails with `effect_reversed`, and nothing at all happens outside."""
    order = await compensated(shop)
    before = acts(shop, order)
    again = await AGAIN[how](cli, order)
    ending = await again.ending()
    assert ending.status is WorkflowExecutionStatus.FAILED
    assert (ending.view.stage, ending.view.reason) == (Stage.FAILED, Reason.EFFECT_REVERSED)
    assert acts(shop, order) == before
    assert shop.world.net_charged(order.id) == 0
    assert shop.world.reserved(order.id) == {}


@pytest.mark.parametrize("how", AGAIN)
async def test_a_completed_order_asks_anew_and_adopts_what_was_done(how: str, shop: Shop, cli: TemporalCli) -> None:
    """T12: the old approval is not for this run; a new one finds the charge that stands, and there is one."""
    order, old = await completed(shop)
    asked = (await order.books()).view.trail
    again = await AGAIN[how](cli, order)
    await at_stage(again.handle, Stage.AWAITING_APPROVAL)
    answer = await again.decide(old)
    assert (answer.accepted, answer.refusal) == (False, Refusal.NO_SUCH_REQUEST)
    view = await again.view()
    assert view.request is not None
    assert view.request.bound.request_id not in {event.detail for event in asked}
    assert {refused.reason for refused in view.refusals} == {Refusal.NO_SUCH_REQUEST}
    await again.approve()
    ending = await again.ending()
    assert ending.view.stage is Stage.COMPLETED
    assert acts(shop, order) == ["reserve", "charge"]
    assert len(shop.world.messages(order.id)) == 1
    assert shop.world.net_charged(order.id) == order.event.data.total_minor
    await check_books(await again.books(), exempt={"I-5"})
