"""What is taken back when an order fails: all that may stand, once, in reverse, and nothing else (T04-T08, M04)."""

import asyncio
import time
from datetime import timedelta

import pytest
from temporalio.client import WorkflowExecutionStatus

from orderflow.domain.approvals import Refusal
from orderflow.domain.effects import EffectState
from orderflow.domain.orders import Reason, Stage, StepState
from tests.definitions import SHIPPED
from tests.support.operations import waits_for_people
from tests.support.shop import Order, Shop, order_event
from tests.workflow.clock import Clock


async def _approved(shop: Shop) -> Order:
    """An order that has just been approved."""
    order = await shop.start()
    await order.until(Stage.AWAITING_APPROVAL)
    await order.approve()
    return order


def _outcomes(order: Order, operation: str) -> list[object]:
    return [line["outcome"] for line in order.lines() if line["operation"] == operation and line["kind"] == "act"]


async def test_a_sibling_that_is_still_running_is_awaited_and_then_undone(clock: Clock, shop: Shop) -> None:
    """T04, T39: risk declines at once, the reservation comes later; afterwards time still skips for the next order."""
    shop.fault("decline", "check")
    gate = shop.hold("reserve", after=True)
    order = await shop.start()
    await order.when(lambda view: view.steps[2].state is StepState.FAILED)
    await order.when(lambda _: gate.reached.is_set())
    assert ((await order.view()).stage, _outcomes(order, "release")) == (Stage.RUNNING, [])
    gate.open()
    ending = await order.ending()
    assert (ending.view.stage, ending.view.reason) == (Stage.FAILED_COMPENSATED, Reason.RISK_DECLINED)
    assert (_outcomes(order, "release"), shop.world.reserved(order.id)) == (["done"], {})
    await _expire_another(clock, shop)


async def test_a_slow_sibling_of_a_declined_reservation_is_awaited_too(clock: Clock, shop: Shop) -> None:
    """T04 mirrored, T39: stock is declined at once, risk answers later; nothing had to be undone."""
    shop.fault("decline", "reserve")
    gate = shop.hold("check")
    order = await shop.start()
    await order.when(lambda view: view.steps[1].state is StepState.FAILED)
    assert (await order.view()).stage is Stage.RUNNING
    gate.open()
    ending = await order.ending()
    assert (ending.view.stage, ending.view.reason) == (Stage.FAILED, Reason.DECLINED)
    await _expire_another(clock, shop)


async def _expire_another(clock: Clock, shop: Shop) -> None:
    """T39: an activity that was abandoned would stop time from skipping, and this would take a day."""
    began = time.monotonic()
    order = await shop.start()
    await order.until(Stage.AWAITING_APPROVAL)
    async with asyncio.timeout(5):
        await clock.skip(timedelta(days=1, minutes=1))
    assert (await order.ending()).view.reason is Reason.APPROVAL_EXPIRED
    assert time.monotonic() - began < 5


async def test_a_charge_whose_replies_are_all_lost_is_refunded_once(shop: Shop) -> None:
    """T05, I06: it was made, nobody could hear so, and no look-up worked either: unknown, so it is taken back."""
    shop.fault("lost_reply", "charge", times=1000)
    shop.fault("lost_reply", "lookup", times=1000, provider="payments")
    order = await _approved(shop)
    ending = await order.ending()
    assert (ending.view.stage, ending.view.reason) == (Stage.FAILED_COMPENSATED, Reason.OUTCOME_UNKNOWN)
    assert (_outcomes(order, "charge"), _outcomes(order, "refund")) == (["done"], ["done"])


async def test_a_refund_that_is_refused_leaves_the_charge_standing_by_name(shop: Shop) -> None:
    """T06, I-4: the others are undone, the order stays open, and says what stands, how much, and why."""
    shop.fault("decline", "refund", times=1000)
    shop.fault("decline", "notify")
    order = await _approved(shop)
    view = await order.until(Stage.COMPENSATION_FAILED)
    [left] = view.standing
    assert (left.step, left.key, left.error) == ("charge", f"{order.id}.charge.do", "CannotUndo")
    assert (left.amount_minor, left.currency) == (900, "EUR")
    assert {record.step: record.state for record in view.steps}["reserve_inventory"] is StepState.UNDONE
    assert (view.reason, shop.world.net_charged(order.id), shop.world.reserved(order.id)) == (Reason.DECLINED, 900, {})
    assert (await order.handle.describe()).status is WorkflowExecutionStatus.RUNNING


async def test_a_refund_that_is_never_answered_is_tried_so_often_and_no_more(shop: Shop) -> None:
    """T06: the provider is out for longer than the compensation's patience; that too waits for a person."""
    shop.fault("unavailable", "refund", times=1000)
    shop.fault("decline", "notify")
    order = await _approved(shop)
    [left] = (await order.until(Stage.COMPENSATION_FAILED)).standing
    assert left.error == "ProviderUnavailable"
    attempts = shop.definition.step("charge").compensation
    assert attempts is not None
    assert _outcomes(order, "refund") == ["unavailable"] * attempts.retry.attempts


async def test_a_release_that_fails_too_does_not_hide_the_refund_that_failed(shop: Shop) -> None:
    """T06: each undo is tried, whatever became of the one before; all that stands is named."""
    shop.fault("decline", "refund", times=1000)
    shop.fault("decline", "release", times=1000)
    shop.fault("decline", "notify")
    order = await _approved(shop)
    view = await order.until(Stage.COMPENSATION_FAILED)
    assert [left.step for left in view.standing] == ["charge", "reserve_inventory"]


async def test_an_order_with_a_failed_compensation_ignores_cancellations_and_decisions(shop: Shop) -> None:
    """T06: a cancellation is recorded, a decision refused; the order stays as it is."""
    shop.fault("decline", "refund", times=1000)
    shop.fault("decline", "notify")
    order = await shop.start()
    await order.until(Stage.AWAITING_APPROVAL)
    token = await order.token()
    await order.send(token)
    await waits_for_people(order)
    before = await order.view()
    await order.cancel()
    after = await order.when(lambda view: view.cancel_requested)
    answer = await order.decide(token)
    assert (answer.accepted, answer.refusal) == (False, Refusal.NO_SUCH_REQUEST)
    assert (after.stage, after.reason, after.standing) == (before.stage, before.reason, before.standing)
    assert (await order.handle.describe()).status is WorkflowExecutionStatus.RUNNING
    assert _outcomes(order, "refund") == ["declined"]


async def test_a_refund_whose_reply_was_lost_is_not_made_again(shop: Shop) -> None:
    """T07, I05: the provider has refunded and nobody heard; the next attempt finds it under the same key."""
    shop.fault("lost_reply", "refund")
    shop.fault("decline", "notify")
    order = await _approved(shop)
    assert (await order.ending()).view.stage is Stage.FAILED_COMPENSATED
    assert _outcomes(order, "refund") == ["done"]


async def test_an_order_that_breaks_a_rule_has_nothing_to_undo(shop: Shop) -> None:
    """T08: failed, at once, without a step that acts, a compensation, or a row in the ledger."""
    order = await shop.start(order_event(total_minor=901))
    ending = await order.ending()
    assert (ending.view.stage, ending.view.reason) == (Stage.FAILED, Reason.INVALID_ORDER)
    assert "$.data.total_minor: must equal the sum of the items, 900" in (ending.view.detail or "")
    books = await order.books()
    assert (books.log, books.effects, books.scheduled()) == ((), (), [])


async def test_what_a_run_with_another_definition_left_standing_is_named(shop: Shop) -> None:
    """I-4: the second run knows no step that could take it back; that is for a person, and no reason to stand still."""
    event = order_event()
    first = await shop.start(event)
    await first.approve()
    await first.result()
    shop.orders.remove(first)
    shop.fault("decline", "check", first.id)
    only_risk = {**SHIPPED["steps"][2], "id": "only_risk"}
    again = await shop.start(
        event, shop.define({**SHIPPED, "name": "other", "steps": [SHIPPED["steps"][0], only_risk]})
    )
    again.exempt |= {"I-1", "I-4"}  # the charge is the first run's, and so are its steps
    view = await again.until(Stage.COMPENSATION_FAILED)
    assert {"charge", "reserve_inventory"} <= {left.step for left in view.standing}
    assert view.reason is Reason.RISK_DECLINED


@pytest.mark.parametrize("by_hand", [300, 900])
async def test_only_what_remains_of_a_charge_is_refunded(shop: Shop, by_hand: int) -> None:
    """M04: an operator gave back a part, or all of it, before the compensation ran."""
    gate = shop.hold("notify")
    shop.fault("decline", "notify")
    order = await _approved(shop)
    await order.when(lambda _: gate.reached.is_set())
    shop.world.refund_by_hand(order.id, by_hand)
    gate.open()
    assert (await order.ending()).view.stage is Stage.FAILED_COMPENSATED
    refunds = [line for line in order.lines() if line["operation"] == "refund" and not line.get("by_hand")]
    assert sum(int(str(line.get("amount_minor", 0))) for line in refunds) == 900 - by_hand
    assert shop.world.net_charged(order.id) == 0


@pytest.mark.parametrize(("currency", "amount_minor"), [("JPY", 500), ("KWD", 1234), ("USD", 1099)])
async def test_the_provider_is_asked_for_exactly_these_minor_units(
    shop: Shop, currency: str, amount_minor: int
) -> None:
    """M01: no division or multiplication on the way, whatever the currency's exponent, in either direction."""
    shop.fault("decline", "notify")
    items = [{"sku": "tea", "quantity": 1, "unit_price_minor": amount_minor}]
    order = await shop.start(order_event(currency=currency, items=items, total_minor=amount_minor))
    await order.until(Stage.AWAITING_APPROVAL)
    await order.approve()
    await order.ending()
    money = [line for line in order.lines() if line["operation"] in ("charge", "refund")]
    assert [(line["amount_minor"], line["currency"]) for line in money] == [(amount_minor, currency)] * 2
    [charge] = [record for record in await shop.ledger.effects(order.id) if record.key.endswith(".charge.do")]
    assert (charge.state, charge.captured_minor, charge.refunded_minor) == (
        EffectState.REVERSED,
        amount_minor,
        amount_minor,
    )
