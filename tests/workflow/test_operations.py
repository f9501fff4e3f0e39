"""Operators at the door `operate`: what stands is tried again or resolved, on a signed word; then the order ends."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from orderflow.domain.approvals import Refusal
from orderflow.domain.audit import Told
from orderflow.domain.effects import EffectState
from orderflow.domain.operations import Operation, Resolution
from orderflow.domain.orders import Reason, Stage, StepState
from tests.support.operations import (
    is_refused,
    left_standing,
    operate,
    signed,
    standing,
    time_of,
    token_on,
    waits_for_people,
)
from tests.support.shop import Order, Shop, order_event

RETRY, RESOLVE = Operation.RETRY, Operation.RESOLVE


async def _is_in_review(order: Order, *, closed_as: str | None = None) -> None:
    item = await order.shop.ledger.review_item(f"{order.id}.charge.do")
    assert item is not None
    assert (item.opened_by, item.amount_minor, item.currency) == ("order", 900, "EUR")
    assert (item.closed_at is None, item.closed_as) == (closed_as is None, closed_as)


def _refunds(order: Order) -> list[object]:
    return [line["outcome"] for line in order.lines() if line["operation"] == "refund" and line["kind"] == "act"]


async def test_a_refund_that_is_tried_again_once_the_provider_is_healed_ends_the_order(shop: Shop) -> None:
    """T06: refund refused for good → in the queue; the operator's retry → failed_compensated, and one refund."""
    order = await left_standing(shop)
    await _is_in_review(order)
    assert (await operate(order, await signed(order, RETRY))).accepted
    ending = await order.ending()
    assert (ending.view.stage, ending.view.reason) == (Stage.FAILED_COMPENSATED, Reason.DECLINED)
    assert shop.world.net_charged(order.id) == 0
    assert _refunds(order) == ["declined", "done"]
    await _is_in_review(order, closed_as="undone")


async def test_a_retry_that_fails_leaves_the_order_open_and_can_be_repeated(shop: Shop) -> None:
    """T06: each retry is an operation of its own; the same token twice is one."""
    order = await left_standing(shop, refusals=2)
    token = await signed(order, RETRY)
    for _ in "ab":
        assert (await operate(order, token)).accepted
        await order.when(lambda view: not view.operations and view.stage is Stage.COMPENSATION_FAILED)
    assert _refunds(order) == ["declined", "declined"]
    await _is_in_review(order)
    await operate(order, await signed(order, RETRY))
    await order.until(Stage.FAILED_COMPENSATED)
    [first, second] = await shop.ledger.operations(f"{order.id}.charge.do")
    assert (first.token, first.operator, second.operation) == (token, "carol", "retry")


@pytest.mark.parametrize(
    ("outcome", "state", "stage"),
    [
        (Resolution.TAKEN_BACK, EffectState.REVERSED, StepState.UNDONE),
        (Resolution.KEPT, EffectState.COMMITTED, StepState.STANDING),
    ],
)
async def test_what_a_person_made_sure_of_ends_the_order(
    shop: Shop, outcome: Resolution, state: EffectState, stage: StepState
) -> None:
    """T06: by a reason and evidence; the ledger says the same, and no late refund can follow."""
    order = await left_standing(shop)
    order.exempt |= {"I-3"} if outcome is Resolution.KEPT else {"I-3", "ledger"}  # what is done by hand, nobody sees
    assert (await operate(order, await signed(order, RESOLVE, outcome=outcome))).accepted
    view = await order.until(Stage.FAILED_COMPENSATED)
    assert (view.steps[3].state, view.standing) == (stage, ())
    assert any("says carol" in note for note in view.outcome.notes) if view.outcome else False
    booked = {effect.key: effect.state for effect in await shop.ledger.effects(order.id) if effect.step == "charge"}
    assert booked == {f"{order.id}.charge.do": state, f"{order.id}.charge.undo": EffectState.VOIDED}
    await _is_in_review(order, closed_as=outcome.value)


async def test_above_the_limit_two_people_have_to_say_the_same(shop: Shop) -> None:
    """Issue 3: the limit of this shop is 1000; one person's word is kept and shown, the same person's counts once."""
    shop.fault("decline", "notify")
    shop.fault("decline", "refund")
    items = [{"sku": "tea", "quantity": 1, "unit_price_minor": 1001}]
    order = await shop.start(order_event(items=items, total_minor=1001))
    order.exempt |= {"I-3", "ledger"}
    await order.approve()
    await waits_for_people(order)
    assert (await operate(order, await signed(order, RESOLVE, "carol", Resolution.TAKEN_BACK))).accepted
    view = await order.when(lambda view: view.standing and view.standing[0].said)
    assert [(said.operator, said.outcome) for said in view.standing[0].said] == [("carol", "taken_back")]
    await is_refused(order, await signed(order, RESOLVE, "carol", Resolution.TAKEN_BACK), Refusal.ALREADY_DECIDED)
    assert (await operate(order, await signed(order, RESOLVE, "oscar", Resolution.KEPT))).accepted
    await order.when(lambda view: not view.operations and view.stage is Stage.COMPENSATION_FAILED)
    assert (await operate(order, await signed(order, RESOLVE, "oscar", Resolution.TAKEN_BACK))).accepted
    assert (await order.until(Stage.FAILED_COMPENSATED)).steps[3].state is StepState.UNDONE


async def test_an_operation_on_another_effect_or_by_nobody_who_may_is_refused(shop: Shop) -> None:
    """A01's rules for operators: bound to the effect and its amount, signed by a key with the role, in time, once."""
    order = await left_standing(shop)
    order.exempt |= {"I-3", "ledger"}
    now = await time_of(order)
    late = {"iat": _unix(now - timedelta(hours=3)), "expires_at": _unix(now - timedelta(hours=2))}
    refused: list[tuple[dict[str, Any], Refusal]] = [
        ({"workflow_id": "order-x"}, Refusal.WRONG_ORDER),
        ({"effect": f"{order.id}.reserve_inventory.do"}, Refusal.NO_SUCH_EFFECT),
        ({"amount_minor": 899}, Refusal.WRONG_AMOUNT),
        ({"amount_minor": None}, Refusal.WRONG_AMOUNT),
        ({"currency": "USD"}, Refusal.WRONG_AMOUNT),
        ({"operator": "oscar"}, Refusal.WRONG_APPROVER),
        ({"outcome": None}, Refusal.MALFORMED),
        ({"reason": ""}, Refusal.MALFORMED),
        (late, Refusal.EXPIRED),
        ({"expires_at": _unix(now + timedelta(days=30)), "iat": late["iat"]}, Refusal.EXPIRED),
        ({"iat": _unix(now + timedelta(hours=5))}, Refusal.NOT_YET_VALID),
    ]
    for changes, reason in refused:
        token = await signed(order, RESOLVE, outcome=Resolution.TAKEN_BACK, changes=changes)
        await is_refused(order, token, reason)
    await is_refused(order, await signed(order, RETRY, "alice"), Refusal.ROLE_NOT_HELD)
    await is_refused(order, await signed(order, RETRY, "eve"), Refusal.UNKNOWN_KEY)
    await is_refused(order, (await signed(order, RETRY))[:-4] + "AAAA", Refusal.BAD_SIGNATURE)
    await is_refused(order, 7, Refusal.MALFORMED)
    answer = await operate(order, await signed(order, RETRY), name="operation")
    assert answer.refusal is Refusal.UNKNOWN_MESSAGE
    assert (await order.view()).stage is Stage.COMPENSATION_FAILED


def _unix(moment: datetime) -> int:
    return int(moment.timestamp())


async def test_a_decision_is_no_operation_and_an_operation_no_decision(shop: Shop) -> None:
    """RFC 8725: one kind of signed message never passes for the other."""
    order = await shop.start()
    decision = await order.token()
    assert (await operate(order, decision)).refusal is Refusal.MALFORMED
    left = await left_standing(shop)
    operation = await signed(left, RETRY)
    assert (await order.decide(operation)).refusal is Refusal.MALFORMED
    await order.cancel()
    await order.ending()


async def test_a_cancellation_of_an_order_that_waits_for_an_operator_changes_nothing(shop: Shop) -> None:
    """DESIGN section 5: it is recorded; the operator's word still ends the order, for its first reason."""
    order = await left_standing(shop)
    await order.cancel()
    await order.when(lambda view: view.cancel_requested)
    await operate(order, await signed(order, RETRY))
    ending = await order.ending()
    assert (ending.view.stage, ending.view.reason) == (Stage.FAILED_COMPENSATED, Reason.DECLINED)


async def test_the_amount_of_what_never_came_to_a_result_is_the_ledgers(shop: Shop) -> None:
    """Issue 3: a charge whose replies were lost is worth what was asked for, so the limit for one person holds."""
    shop.fault("lost_reply", "charge", times=1000)
    shop.fault("lost_reply", "lookup", times=1000, provider="payments")
    shop.fault("decline", "refund")
    order = await shop.start()
    await order.approve()
    await waits_for_people(order)
    left = await standing(order)
    assert (left.amount_minor, left.currency) == (900, "EUR")
    order.exempt |= {"I-3", "ledger"}
    await operate(order, await signed(order, RESOLVE, outcome=Resolution.TAKEN_BACK))
    await order.until(Stage.FAILED_COMPENSATED)


async def test_what_stands_is_told_with_who_operated(shop: Shop) -> None:
    """Issue 3: the trail names the operation and the operator."""
    order = await left_standing(shop)
    left = await standing(order)
    token = await token_on(order, left, RETRY, "oscar")
    await operate(order, token)
    view = await order.until(Stage.FAILED_COMPENSATED)
    told = [(event.subject, event.detail) for event in view.trail if event.told is Told.OPERATION_ACCEPTED]
    assert told == [(f"retry {left.key}", "oscar")]
