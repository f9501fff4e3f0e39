"""What an order has done outside outlives its runs: a reset or a second run finds it, and never does it again."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowExecutionStatus

from orderflow.contracts import WORKFLOW_TYPE, OrderInput
from orderflow.domain.approvals import Decision, Refusal
from orderflow.domain.orders import Reason, Stage
from tests.support.invariants import check_books
from tests.support.observing import Handle, at_stage, events_of, eventually
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


async def reset(cli: TemporalCli, order: Order, *point: object) -> Order:
    """Reset an order with Temporal's own command, to its start if no `point` is given; gives the new run."""
    to = point or ("--type", "FirstWorkflowTask")
    answer = await cli.json("reset", "--workflow-id", order.id, *to, "--reason", "a test")
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
    wanted = {"kind": "act", "workflow_id": order.id, "outcome": "done"}
    done = [line["operation"] for line in shop.world.log() if wanted.items() <= line.items()]
    return [operation for operation in done if operation not in ("check", "notify")]


@pytest.mark.parametrize("how", AGAIN)
async def test_a_compensated_order_never_completes_on_its_old_charge(how: str, shop: Shop, cli: TemporalCli) -> None:
    """Issue 2, DESIGN section 6: it fails with `effect_reversed`, and nothing at all happens outside."""
    order = await compensated(shop)
    before = acts(shop, order)
    again = await AGAIN[how](cli, order)
    ending = await again.ending()
    assert ending.status is WorkflowExecutionStatus.FAILED
    assert (ending.view.stage, ending.view.reason) == (Stage.FAILED_COMPENSATED, Reason.EFFECT_REVERSED)
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
    by_the_reset = ["signal"] if how == "reset" else []  # Temporal applies the old signal again, before the first step
    assert [refused.door for refused in view.refusals] == [*by_the_reset, "update"]
    assert {refused.reason for refused in view.refusals} == {Refusal.NO_SUCH_REQUEST}
    await again.approve()
    ending = await again.ending()
    assert ending.view.stage is Stage.COMPLETED
    assert acts(shop, order) == ["reserve", "charge"]
    assert len(shop.world.messages(order.id)) == 1
    assert shop.world.net_charged(order.id) == order.event.data.total_minor
    await check_books(await again.books(), exempt={"I-5"} if how == "reset" else ())


async def test_a_completed_order_that_is_reset_and_rejected_takes_back_what_was_done(
    shop: Shop, cli: TemporalCli
) -> None:
    """Issue 5 item 7: the new run has charged nothing, but the ledger knows what stands."""
    order, _ = await completed(shop)
    again = await reset(cli, order)
    await at_stage(again.handle, Stage.AWAITING_APPROVAL)
    await again.approve(decision=Decision.REJECT)
    ending = await again.ending()
    assert (ending.view.stage, ending.view.reason) == (Stage.FAILED_COMPENSATED, Reason.APPROVAL_REJECTED)
    assert acts(shop, order) == ["reserve", "charge", "refund", "release"]
    assert shop.world.net_charged(order.id) == 0


async def test_an_order_that_waits_is_reset_and_asks_anew(shop: Shop, cli: TemporalCli) -> None:
    """Issue 5 item 7: its first run is terminated, what was signed for it is refused, its stock is adopted."""
    order = await shop.start()
    await at_stage(order.handle, Stage.AWAITING_APPROVAL)
    first_run = run(order, (await order.view()).run_id)
    old = await order.token()
    again = await reset(cli, order)
    assert (await first_run.handle.describe()).status is WorkflowExecutionStatus.TERMINATED
    await at_stage(again.handle, Stage.AWAITING_APPROVAL)
    answer = await again.decide(old)
    assert (answer.accepted, answer.refusal) == (False, Refusal.NO_SUCH_REQUEST)
    assert acts(shop, order) == ["reserve"]
    await again.approve()
    assert (await again.ending()).view.stage is Stage.COMPLETED
    assert acts(shop, order) == ["reserve", "charge"]


async def test_an_order_that_is_reset_behind_its_request_keeps_the_request(shop: Shop, cli: TemporalCli) -> None:
    """Issue 5 item 7, T12: the request stands in what is replayed, so what was signed for it is still about it."""
    order = await shop.start()
    await at_stage(order.handle, Stage.AWAITING_APPROVAL)
    asked, token = (await order.view()).request, await order.token()
    await order.decide("junk")
    again = await reset(cli, order, "--type", "LastWorkflowTask")
    await at_stage(again.handle, Stage.AWAITING_APPROVAL)
    assert (await again.view()).request == asked
    assert (await again.decide(token)).accepted
    assert (await again.ending()).view.stage is Stage.COMPLETED
    assert acts(shop, order) == ["reserve", "charge"]


async def test_a_compensated_order_that_is_reset_behind_its_request_is_not_charged(
    shop: Shop, cli: TemporalCli
) -> None:
    """Issue 5 item 7: its stock was released, though the new run replays that it was reserved."""
    order = await shop.start()
    await at_stage(order.handle, Stage.AWAITING_APPROVAL)
    token = await order.token()
    await order.decide("junk")
    history = await order.handle.fetch_history()
    behind = [each.event_id for each in history.events if each.HasField("workflow_task_completed_event_attributes")]
    await order.cancel()
    await order.ending()
    assert acts(shop, order) == ["reserve", "release"]
    again = await reset(cli, order, "--event-id", behind[-1])
    await at_stage(again.handle, Stage.AWAITING_APPROVAL)
    assert (await again.decide(token)).accepted
    ending = await again.ending()
    assert (ending.view.stage, ending.view.reason) == (Stage.FAILED_COMPENSATED, Reason.EFFECT_REVERSED)
    assert acts(shop, order) == ["reserve", "release"]


async def test_an_order_that_could_not_be_compensated_is_reset_and_tries_its_refund_again(
    shop: Shop, cli: TemporalCli
) -> None:
    """Issue 5 item 7, T06: nothing is done anew, and what still stood is taken back without an operator's word."""
    order = await shop.start()
    shop.fault("decline", "notify", order.id)
    shop.fault("decline", "refund", order.id)
    await order.approve()
    await at_stage(order.handle, Stage.COMPENSATION_FAILED)
    assert acts(shop, order) == ["reserve", "charge", "release"]
    again = await reset(cli, order)
    ending = await again.ending()
    assert (ending.view.stage, ending.view.reason) == (Stage.FAILED_COMPENSATED, Reason.EFFECT_REVERSED)
    assert acts(shop, order) == ["reserve", "charge", "release", "refund"]
    assert shop.world.net_charged(order.id) == 0


async def test_a_reset_to_any_point_of_a_completed_order_charges_once(shop: Shop, cli: TemporalCli) -> None:
    """Issue 2: whether the reset goes behind the approval or stops after it, nothing is done outside a second time."""
    order, _ = await completed(shop)
    first_run = run(order, (await order.view()).run_id)
    points = [event.event_id for event in await events_of(first_run.handle) if _is_completed_task(event)]
    assert len(points) >= 5
    waited = []
    for point in points:
        again = await reset(cli, first_run, "--event-id", point, "--run-id", first_run.handle.run_id)
        waited.append(await at_rest(again.handle) is WorkflowExecutionStatus.RUNNING)
        if waited[-1]:
            await again.approve()
        assert (await again.ending()).view.stage is Stage.COMPLETED
        assert acts(shop, order) == ["reserve", "charge"]
        assert len(shop.world.messages(order.id)) == 1
    assert waited == sorted(waited, reverse=True)
    assert {*waited} == {True, False}


async def at_rest(handle: Handle) -> WorkflowExecutionStatus | None:
    """Wait until a run has ended or waits for people; a query could be answered ahead of a signal on its way."""

    async def look() -> WorkflowExecutionStatus | None:
        described = await handle.describe()
        raw = described.raw_description
        is_busy = raw.HasField("pending_workflow_task") or raw.pending_activities
        return None if is_busy else described.status

    return await eventually(look)


def _is_completed_task(event: HistoryEvent) -> bool:
    return event.HasField("workflow_task_completed_event_attributes")
