"""Steps that were proven not done: what their undo asks the provider, and how the order ends."""

from orderflow.domain.effects import EffectState
from orderflow.domain.operations import Operation
from orderflow.domain.orders import Reason, Stage, StepState
from tests.support.operations import operate, signed, waits_for_people
from tests.support.shop import Order, Shop
from tests.workflow.scenarios import FOR_EVER

_S = EffectState


def outcomes(order: Order, operation: str) -> list[object]:
    """What came of each request to act."""
    return [line["outcome"] for line in order.lines() if line["operation"] == operation and line["kind"] == "act"]


async def states(order: Order, step: str) -> list[EffectState | None]:
    """Where the ledger says that the step and its undo stand."""
    effects = {record.key: record.state for record in await order.shop.ledger.effects(order.id)}
    return [effects.get(f"{order.id}.{step}.{direction}") for direction in ("do", "undo")]


async def test_an_order_of_which_nothing_was_taken_back_failed_and_no_more(shop: Shop) -> None:
    """T08: three requests were lost, and each sender could have slept: inventory is asked once, and had nothing."""
    shop.fault("lost_reply", "reserve", times=FOR_EVER, commit=False)
    order = await shop.start()
    view = await order.until(Stage.FAILED)
    assert (view.reason, view.steps[1].state) == (Reason.RETRIES_EXHAUSTED, StepState.FAILED)
    assert outcomes(order, "release") == ["voided"]
    assert await states(order, "reserve_inventory") == [_S.VOIDED, _S.COMMITTED]


async def test_nobody_is_asked_to_take_back_what_an_outage_kept_from_being_done(shop: Shop) -> None:
    """I09: the provider said each time that it did not act, so no sender is left whose request could come late."""
    shop.fault("unavailable", "reserve", times=FOR_EVER)
    order = await shop.start()
    await order.until(Stage.FAILED)
    assert outcomes(order, "release") == []
    assert await states(order, "reserve_inventory") == [_S.VOIDED, None]


async def test_a_tombstone_whose_provider_cannot_be_asked_stands_until_somebody_could(shop: Shop) -> None:
    """T06: the usual tries at an undo, then it waits for people; their retry asks again, and nothing had been done."""
    shop.fault("lost_reply", "charge", times=FOR_EVER, commit=False)
    tries = next(step for step in shop.definition.steps if step.id == "charge").compensation
    assert tries is not None
    shop.fault("unavailable", "refund", times=tries.retry.attempts)
    order = await shop.start()
    await order.approve()
    await waits_for_people(order)
    view = await order.view()
    assert [(left.step, left.error) for left in view.standing] == [("charge", "ProviderUnavailable")]
    assert await states(order, "charge") == [_S.VOIDED, _S.PENDING]

    assert (await operate(order, await signed(order, Operation.RETRY))).accepted
    view = (await order.ending()).view
    assert (view.stage, view.reason, view.standing) == (Stage.FAILED_COMPENSATED, Reason.RETRIES_EXHAUSTED, ())
    assert outcomes(order, "refund")[-2:] == ["unavailable", "voided"]
    assert await states(order, "charge") == [_S.VOIDED, _S.COMMITTED]
    assert view.steps[3].state is StepState.FAILED
