"""Any ledger: what a claim is worth, and what is kept of an answer."""

from datetime import UTC, datetime, timedelta

import pytest

from orderflow.domain.effects import Done, EffectState, Found, Pending, Refused, Unknown
from orderflow.domain.errors import ChargeWindowClosed, ClaimLost, EffectBusy, IntentConflict
from orderflow.ledger import Claim, EffectLedger
from tests.support.ledger import CHARGE, LONG, NO_TIME, REFUND, charge, refund, state_of
from tests.support.ledger_states import (
    DONE,
    GIVEN_BACK,
    OPEN_ANSWERS,
    claimed,
    committed,
    pending,
    reversed_,
    undo_claimed,
)

pytestmark = pytest.mark.timeout(60)


async def test_a_conflicting_undo_leaves_the_effect_as_it_was(ledger: EffectLedger) -> None:
    """The mark on the effect and the claim of its undo are one transaction."""
    await committed(ledger)
    await ledger.claim(refund(amount_minor=1), holder="other", lease=NO_TIME)
    with pytest.raises(IntentConflict):
        await ledger.claim_undo(REFUND, CHARGE, holder="one", lease=LONG)
    assert await state_of(ledger) == EffectState.COMMITTED


async def test_a_held_effect_is_busy_for_what_is_left_of_its_lease(ledger: EffectLedger) -> None:
    """A claim and an undo both wait for a live holder (T02), and know for how long at most."""
    await claimed(ledger, timedelta(seconds=60))
    for attempt in (
        ledger.claim(CHARGE, holder="two", lease=LONG),
        ledger.claim_undo(REFUND, CHARGE, holder="two", lease=LONG),
    ):
        with pytest.raises(EffectBusy) as caught:
            await attempt
        assert caught.value.retry_after is not None
        assert 0 < caught.value.retry_after <= 60
    assert await state_of(ledger) == EffectState.PENDING


async def test_a_held_undo_is_busy(ledger: EffectLedger) -> None:
    """Two workers never refund at once."""
    await committed(ledger)
    await undo_claimed(ledger)
    with pytest.raises(EffectBusy):
        await ledger.claim_undo(REFUND, CHARGE, holder="two", lease=LONG)


async def test_a_late_holder_is_refused_by_the_fencing_token(ledger: EffectLedger) -> None:
    """After its lease another took over: the first can neither renew, settle nor void, and its end is kept (D06)."""
    late = await claimed(ledger, NO_TIME)
    await claimed(ledger)
    for write in (ledger.renew(late, LONG), ledger.settle(late, DONE), ledger.void(CHARGE, late)):
        with pytest.raises(ClaimLost, match=r"token 1"):
            await write
    assert await state_of(ledger) == EffectState.PENDING
    assert [attempt.ended for attempt in await ledger.attempts("order-1")] == ["done", None]


async def test_a_late_holder_of_an_undo_is_refused_by_the_fencing_token(ledger: EffectLedger) -> None:
    """The same for the way back."""
    await committed(ledger)
    late = await undo_claimed(ledger, NO_TIME)
    await undo_claimed(ledger)
    with pytest.raises(ClaimLost):
        await ledger.settle_undo(late, CHARGE, GIVEN_BACK)
    assert await state_of(ledger) == EffectState.REVERSING


async def test_a_holder_whose_effect_is_being_undone_cannot_commit_it(ledger: EffectLedger) -> None:
    """A late commit after its compensation is impossible (T02)."""
    late = await claimed(ledger, NO_TIME)
    await undo_claimed(ledger)
    with pytest.raises(ClaimLost):
        await ledger.settle(late, DONE)
    assert await state_of(ledger) == EffectState.REVERSING


async def test_a_renewed_lease_holds(ledger: EffectLedger) -> None:
    """Renewing turns a lease that is over into a live one, while nobody else claimed."""
    claim = await claimed(ledger, NO_TIME)
    await ledger.renew(claim, LONG)
    with pytest.raises(EffectBusy):
        await ledger.claim(CHARGE, holder="two", lease=LONG)


async def test_the_window_closes_for_a_first_claim_only(ledger: EffectLedger) -> None:
    """Unclaimed at `charge_by`, an effect is refused; what was claimed before is finished whatever the time."""
    past = datetime.now(UTC) - timedelta(seconds=1)
    with pytest.raises(ChargeWindowClosed):
        await ledger.claim(CHARGE, holder="one", lease=NO_TIME, claim_by=past)
    assert await state_of(ledger) is None
    ahead = datetime.now(UTC) + timedelta(minutes=1)
    assert isinstance(await ledger.claim(CHARGE, holder="one", lease=NO_TIME, claim_by=ahead), Claim)
    assert isinstance(await ledger.claim(CHARGE, holder="two", lease=NO_TIME, claim_by=past), Claim)


async def test_done_is_kept_with_all_that_the_provider_said(ledger: EffectLedger) -> None:
    """Reference, captured amount and result are on the record; a captured amount that differs is kept as it is."""
    answer = Done(reference="ch_1", amount_minor=900, result={"b": [1, None], "a": "ü"})
    record = await ledger.settle(await claimed(ledger), answer)
    assert record == await ledger.get(CHARGE.key)
    assert (record.state, record.reference) == (EffectState.COMMITTED, "ch_1")
    assert (record.amount_minor, record.captured_minor, record.currency) == (1000, 900, "EUR")
    assert record.result_json == '{"a":"\\u00fc","b":[1,null]}'
    assert record.settled_at is not None
    assert abs(record.settled_at - datetime.now(UTC)) < timedelta(minutes=1)


async def test_declined_is_kept_with_its_code(ledger: EffectLedger) -> None:
    """A definitive no is a result (I09)."""
    record = await ledger.settle(await claimed(ledger), Refused(code="no_funds"))
    assert (record.state, record.decline_code, record.captured_minor) == (EffectState.DECLINED, "no_funds", None)


@pytest.mark.parametrize("answer", OPEN_ANSWERS, ids=lambda answer: answer.answer)
async def test_what_is_not_final_is_never_kept_as_a_result(ledger: EffectLedger, answer: Found) -> None:
    """The effect stays PENDING, how the attempt ended is noted, and the next one need not wait (I09)."""
    record = await ledger.settle(await claimed(ledger), answer)
    assert (record.state, record.settled_at, record.result_json) == (EffectState.PENDING, None, None)
    attempt = (await ledger.attempts("order-1"))[0]
    assert attempt.ended is not None
    assert attempt.ended.startswith(answer.answer)
    assert isinstance(await ledger.claim(CHARGE, holder="two", lease=LONG), Claim)


async def test_a_pending_reference_survives_an_unknown_answer(ledger: EffectLedger) -> None:
    """The provider's id of an accepted charge is what a person will ask it about."""
    await ledger.settle(await claimed(ledger), Pending(reference="ch_1"))
    record = await ledger.settle(await claimed(ledger), Unknown())
    assert record.reference == "ch_1"


async def test_an_undo_moves_both_rows(ledger: EffectLedger) -> None:
    """The effect knows what was given back, so that captured minus refunded over all rows is what the order cost."""
    await committed(ledger)
    record = await ledger.settle_undo(await undo_claimed(ledger), CHARGE, GIVEN_BACK)
    undo = await ledger.get(REFUND.key)
    assert (record.state, record.captured_minor, record.refunded_minor) == (EffectState.REVERSED, 1000, 1000)
    assert undo is not None
    assert (undo.state, undo.reference, undo.captured_minor) == (EffectState.COMMITTED, "re_1", None)


async def test_the_undo_of_an_unknown_charge_books_what_came_back_as_captured(ledger: EffectLedger) -> None:
    """Money that was given back had been taken, also when the charge's own answer was lost."""
    await pending(ledger)
    record = await ledger.settle_undo(await undo_claimed(ledger), CHARGE, GIVEN_BACK)
    assert (record.state, record.captured_minor, record.refunded_minor) == (EffectState.REVERSED, 1000, 1000)


@pytest.mark.parametrize("answer", [Refused(code="closed"), *OPEN_ANSWERS], ids=lambda answer: answer.answer)
async def test_an_undo_that_did_not_work_can_be_tried_again(ledger: EffectLedger, answer: Found) -> None:
    """Also after a definitive no: an operator may have put right what was in the way (T06)."""
    await committed(ledger)
    record = await ledger.settle_undo(await undo_claimed(ledger), CHARGE, answer)
    assert record.state == EffectState.REVERSING
    again = await undo_claimed(ledger)
    assert (again.fresh, again.record.token) == (False, 2)


async def test_a_proven_absence_is_voided_under_its_claim(ledger: EffectLedger) -> None:
    """PENDING and proven absent becomes VOIDED; the attempt says why."""
    record = await ledger.void(CHARGE, await claimed(ledger))
    assert record.state == EffectState.VOIDED
    assert [attempt.ended for attempt in await ledger.attempts("order-1")] == ["absent"]


async def test_an_order_shows_its_own_effects_and_attempts_only(ledger: EffectLedger) -> None:
    """Charge and refund, and equal steps of two orders, never share a row (I10)."""
    await reversed_(ledger)
    await ledger.claim(charge("order-2"), holder="two", lease=LONG)
    effects = await ledger.effects("order-1")
    assert {effect.key for effect in effects} == {CHARGE.key, REFUND.key}
    attempts = await ledger.attempts("order-1")
    assert [(attempt.key, attempt.holder, attempt.ended) for attempt in attempts] == [
        (CHARGE.key, "one", "done"),
        (REFUND.key, "one", "done"),
    ]
    assert all(attempt.ended_at is not None and attempt.started_at <= attempt.ended_at for attempt in attempts)


async def test_a_naive_time_is_no_time(ledger: EffectLedger) -> None:
    """A window without its zone would open or close hours off."""
    naive = datetime.now()  # noqa: DTZ005 (that is the point)
    with pytest.raises(TypeError):
        await ledger.claim(CHARGE, holder="one", lease=LONG, claim_by=naive)
    assert await state_of(ledger) is None
