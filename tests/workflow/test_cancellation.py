"""Cancelling an order: what was begun is taken back, then the order ends as cancelled (T01-T03, T09, T26).

The fault matrix cancels too; at moments that nobody chose it is done on the real server (`tests/integration`).
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.client import WorkflowExecutionStatus
from temporalio.testing import WorkflowEnvironment

from orderflow.domain.orders import Reason, Stage, StepState
from tests.support.gates import Gate
from tests.support.shop import Order, Shop, check_orders, open_for_business, open_shop, quick
from tests.workflow.scenarios import OPERATIONS


@pytest.fixture
async def shop(env: WorkflowEnvironment, tmp_path: Path) -> AsyncIterator[Shop]:
    """A shop whose activities heartbeat every second, so that a cancellation is heard soon."""
    async with open_for_business(env.client, tmp_path, change=quick) as opened:
        yield opened


async def _run_to(order: Order, gate: Gate) -> None:
    """Bring an order to the closed gate, approving it on the way, and let the sibling of that step finish."""
    if gate.operation in ("charge", "notify"):
        await order.until(Stage.AWAITING_APPROVAL)
        await order.approve()
    await order.when(lambda _: gate.reached.is_set())
    await order.when(lambda view: [record.state for record in view.steps].count(StepState.RUNNING) == 1)


@pytest.mark.parametrize("operation", OPERATIONS.values())
async def test_a_step_that_hangs_hears_of_the_cancellation(shop: Shop, operation: str) -> None:
    """T01, T03, T26: the activity is told by its heartbeat, and the reason is `cancelled`, whichever step it was."""
    gate = shop.hold(operation)
    order = await shop.start()
    await _run_to(order, gate)
    await order.cancel()
    ending = await order.ending()
    assert (ending.status, ending.view.reason) == (WorkflowExecutionStatus.CANCELED, Reason.CANCELLED)
    assert ending.view.stage is Stage.FAILED_COMPENSATED
    assert not any(line["operation"] == operation for line in order.lines() if line["outcome"] == "done")


async def test_an_order_cancelled_while_it_waits_for_people_takes_everything_back(shop: Shop) -> None:
    """T01: the reservation is released, and the approval can no longer be given."""
    order = await shop.start()
    await order.until(Stage.AWAITING_APPROVAL)
    token = await order.token()
    gate = shop.hold("release")
    await order.cancel()
    await order.when(lambda _: gate.reached.is_set())
    assert (await order.decide(token)).accepted is False
    gate.open()
    ending = await order.ending()
    assert (ending.view.stage, ending.view.reason) == (Stage.FAILED_COMPENSATED, Reason.CANCELLED)
    assert shop.world.reserved(order.id) == {}


async def test_an_order_cancelled_before_its_first_step_does_nothing(env: WorkflowEnvironment, tmp_path: Path) -> None:
    """T01: the worker comes up after the cancellation; the order ends as failed, and says so."""
    async with open_shop(env.client, tmp_path) as shop:
        order = await shop.start()
        await order.cancel()
        async with shop.worker() as shop.running:
            ending = await order.ending()
            assert (ending.status, ending.view.stage) == (WorkflowExecutionStatus.CANCELED, Stage.FAILED)
            assert (ending.view.reason, order.lines()) == (Reason.CANCELLED, [])
            await check_orders(shop)


async def test_a_second_cancellation_while_undoing_changes_nothing(shop: Shop) -> None:
    """T01, T09: cancelled while it waits, then again while the stock is being released: one release, same reason."""
    order = await shop.start()
    await order.until(Stage.AWAITING_APPROVAL)
    gate = shop.hold("release")
    await order.cancel()
    await order.when(lambda _: gate.reached.is_set())
    await order.cancel()
    assert (await order.view()).stage is Stage.COMPENSATING
    gate.open()
    ending = await order.ending()
    assert (ending.view.stage, ending.view.reason) == (Stage.FAILED_COMPENSATED, Reason.CANCELLED)
    assert [line["outcome"] for line in order.lines() if line["operation"] == "release"] == ["done"]


async def test_a_cancellation_while_undoing_does_not_hide_why(shop: Shop) -> None:
    """T01, T03: the card was declined first; that stays the reason, and the order fails, it is not cancelled."""
    shop.fault("decline", "charge")
    gate = shop.hold("release")
    order = await shop.start()
    await order.until(Stage.AWAITING_APPROVAL)
    await order.approve()
    await order.when(lambda _: gate.reached.is_set())
    await order.cancel()
    await order.when(lambda view: view.cancel_requested)
    gate.open()
    ending = await order.ending()
    assert (ending.status, ending.view.reason) == (WorkflowExecutionStatus.FAILED, Reason.DECLINED)


async def test_a_late_charge_finds_its_key_void(shop: Shop) -> None:
    """T02: the charge takes longer than the cancellation; when it comes at last, the provider refuses it."""
    shop.fault("delay", "charge", milliseconds=3000)
    order = await shop.start()
    await order.until(Stage.AWAITING_APPROVAL)
    await order.approve()
    await order.when(lambda _: "started" in [line["outcome"] for line in order.lines()])
    await order.cancel()
    ending = await order.ending()
    assert (ending.view.stage, ending.view.reason) == (Stage.FAILED_COMPENSATED, Reason.CANCELLED)
    assert "refused" not in _charges(order), "the charge came before the order had ended: the test shows nothing"
    async with asyncio.timeout(10):
        while "refused" not in _charges(order):
            await asyncio.sleep(0.05)
    assert shop.world.net_charged(order.id) == 0
    assert _charges(order) == ["started", "refused"]


async def test_a_charge_that_was_made_before_the_cancellation_was_heard_is_refunded_after_it(shop: Shop) -> None:
    """T02: the provider has charged, its answer is on the way; the refund stands later in its log."""
    gate = shop.hold("charge", after=True)
    order = await shop.start()
    await _run_to(order, gate)
    await order.cancel()
    await order.ending()
    done = [line["operation"] for line in order.lines() if line["outcome"] == "done"]
    assert done[-3:] == ["charge", "refund", "release"]


def _charges(order: Order) -> list[object]:
    return [line["outcome"] for line in order.lines() if line["operation"] == "charge"]
