"""The effect store: what each answer of a provider means, and what is admitted.

The bank of these tests charges each time it is asked: a second call would be a second charge in its log.
"""

from collections import deque
from datetime import UTC, datetime, timedelta

import pytest

from orderflow.domain.effects import Absent, Busy, Done, EffectState, Found, Refused, Unavailable, Unknown
from orderflow.domain.errors import (
    AmountMismatch,
    ChargeWindowClosed,
    DeadlinePassed,
    Declined,
    EffectBusy,
    IntentConflict,
    OrderflowError,
    OutcomeUnknown,
    ProviderUnavailable,
)
from orderflow.ledger import EffectLedger
from orderflow.ledger.effects import EffectStore
from tests.support.bank import Bank, Told
from tests.support.ledger import (
    CHARGE,
    NO_TIME,
    PATIENT,
    PENDING,
    charge,
    endings,
    perform,
    state_of,
    undo,
)

pytestmark = pytest.mark.timeout(30)


async def test_a_charge_is_done_and_kept(ledger: EffectLedger) -> None:
    """The record carries what the provider said; asking again gives the same record and calls nobody."""
    bank = Bank()
    record = await perform(ledger, bank)
    assert (record.state, record.captured_minor, record.reference) == (EffectState.COMMITTED, 1000, f"ref-{CHARGE.key}")
    assert await perform(ledger, bank) == record
    assert bank.calls == [("perform", CHARGE.key)]


ERRORS: list[tuple[Found, type[OrderflowError], EffectState]] = [
    (Refused(code="no_funds"), Declined, EffectState.DECLINED),
    (PENDING, OutcomeUnknown, EffectState.PENDING),
    (Busy(retry_after=7), EffectBusy, EffectState.PENDING),
    (Unavailable(retry_after=7), ProviderUnavailable, EffectState.PENDING),
    (Unknown(detail="timeout"), OutcomeUnknown, EffectState.PENDING),
]

ids = [answer.answer for answer, _, _ in ERRORS]


@pytest.mark.parametrize(("answer", "error", "state"), ERRORS, ids=ids)
async def test_each_other_answer_is_its_own_error(
    ledger: EffectLedger, answer: Found, error: type[OrderflowError], state: EffectState
) -> None:
    """Only a definitive no is kept as one (I09); a timeout is unknown, not failed (I06)."""
    with pytest.raises(error) as caught:
        await perform(ledger, Bank(deque([Told(answer)])))
    assert caught.value.retry_after == getattr(answer, "retry_after", None)
    assert await state_of(ledger) == state


@pytest.mark.parametrize(("answer", "error", "state"), ERRORS, ids=ids)
async def test_each_answer_found_by_a_lookup_means_the_same(
    ledger: EffectLedger, answer: Found, error: type[OrderflowError], state: EffectState
) -> None:
    """Found PENDING, the effect is looked up first, and nothing is sent unless it is proven absent (I05)."""
    await ledger.claim(CHARGE, holder="dead", lease=NO_TIME)
    bank = Bank(finds=deque([answer]))
    with pytest.raises(error):
        await perform(ledger, bank)
    assert await state_of(ledger) == state
    assert bank.calls == [("lookup", CHARGE.key)]


async def test_a_definitive_no_is_remembered(ledger: EffectLedger) -> None:
    """Declined once, the provider is not asked again, and the code is the same."""
    bank = Bank(deque([Told(Refused(code="no_funds"))]))
    for _ in range(2):
        with pytest.raises(Declined) as caught:
            await perform(ledger, bank)
        assert caught.value.detail == "no_funds"
    assert bank.calls == [("perform", CHARGE.key)]


async def test_failures_that_pass_are_not_remembered(ledger: EffectLedger) -> None:
    """503, 503, 409, 409, done: one charge (I08, I09), and one key on every attempt (I04)."""
    told = [Told(Unavailable()), Told(Unavailable()), Told(Busy()), Told(Busy())]
    bank = Bank(deque(told))
    for _ in told:
        with pytest.raises((ProviderUnavailable, EffectBusy)):
            await perform(ledger, bank)
    assert (await perform(ledger, bank)).state == EffectState.COMMITTED
    assert bank.acts("charge") == 1
    assert {key for _, key in bank.calls} == {CHARGE.key}
    assert await endings(ledger) == ["unavailable", "unavailable", "busy", "busy", "done"]


async def test_a_lost_reply_is_found_again(ledger: EffectLedger) -> None:
    """The provider acted and its answer was lost: the next attempt adopts it (I06)."""
    bank = Bank(deque([Told(Unknown(), acts=True)]))
    with pytest.raises(OutcomeUnknown):
        await perform(ledger, bank)
    record = await perform(ledger, bank)
    assert (record.state, record.reference) == (EffectState.COMMITTED, f"ref-{CHARGE.key}")
    assert bank.acts("charge") == 1


@pytest.mark.parametrize("acts", [True, False])
async def test_a_provider_that_raises_is_an_unknown_outcome(ledger: EffectLedger, acts: bool) -> None:
    """A bug in an adapter is noted by its type only (its text could hold anything), and one charge comes of it."""
    bank = Bank(deque([Told(RuntimeError("card 4242"), acts=acts)]))
    with pytest.raises(OutcomeUnknown, match="RuntimeError") as caught:
        await perform(ledger, bank)
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert await endings(ledger) == ["unknown: the provider raised RuntimeError"]
    assert (await perform(ledger, bank)).state == EffectState.COMMITTED
    assert bank.acts("charge") == 1


async def test_a_captured_amount_that_differs_fails_and_is_given_back_as_it_is(ledger: EffectLedger) -> None:
    """What the provider took is what is kept and refunded, not what was asked for (M04)."""
    bank = Bank(deque([Told(Done(reference="ch_1", amount_minor=900))]))
    for _ in range(2):  # also when it is found done
        with pytest.raises(AmountMismatch):
            await perform(ledger, bank)
    record = await ledger.get(CHARGE.key)
    assert record is not None
    assert (record.amount_minor, record.captured_minor) == (1000, 900)
    bank.log.append(("charge", CHARGE.key, 900))
    assert (await undo(ledger, bank)).refunded_minor == 900


async def test_same_key_with_other_amount_is_a_conflict_before_the_provider(ledger: EffectLedger) -> None:
    """The provider is not touched (I01)."""
    await perform(ledger, Bank())
    bank = Bank()
    with pytest.raises(IntentConflict):
        await perform(ledger, bank, charge(amount_minor=1001))
    assert bank.calls == []


@pytest.mark.parametrize("noise", [[], [Unknown()], [Unavailable(), Busy()], [Absent()]], ids=str)
async def test_pending_is_polled_until_it_is_done(ledger: EffectLedger, noise: list[Found]) -> None:
    """By lookup, through lookups that say nothing, and never by performing again."""
    done = Done(reference="ch_1", amount_minor=1000)
    bank = Bank(deque([Told(PENDING, acts=True)]), deque([PENDING, *noise, PENDING, done]))
    record = await perform(ledger, bank, patience=PATIENT)
    assert (record.state, record.reference) == (EffectState.COMMITTED, "ch_1")
    assert [method for method, _ in bank.calls].count("perform") == 1


async def test_pending_that_is_refused_is_declined(ledger: EffectLedger) -> None:
    """An accepted charge can still end in a no."""
    bank = Bank(deque([Told(PENDING)]), deque([PENDING, Refused(code="no_funds")]))
    with pytest.raises(Declined):
        await perform(ledger, bank, patience=PATIENT)
    assert await state_of(ledger) == EffectState.DECLINED


async def test_pending_is_never_booked_as_done(ledger: EffectLedger) -> None:
    """Patience used up: still PENDING, its reference kept, and the next attempt looks first."""
    bank = Bank(deque([Told(PENDING)]), deque([PENDING] * 10_000))
    with pytest.raises(OutcomeUnknown, match="pending"):
        await perform(ledger, bank, patience=timedelta(milliseconds=20))
    record = await ledger.get(CHARGE.key)
    assert record is not None
    assert (record.state, record.reference) == (EffectState.PENDING, "ch_1")
    bank.finds.clear()
    bank.log.append(("charge", CHARGE.key, 1000))
    assert (await perform(ledger, bank)).state == EffectState.COMMITTED
    assert bank.acts("charge") == 1


async def test_a_pending_refund_is_polled_too(ledger: EffectLedger) -> None:
    """An asynchronous refund is done when a lookup says so."""
    bank = Bank()
    await perform(ledger, bank)
    bank.told.append(Told(PENDING, acts=True))
    bank.finds.append(PENDING)
    assert (await undo(ledger, bank, patience=PATIENT)).state == EffectState.REVERSED
    assert bank.acts("refund") == 1


def refuse() -> None:
    """An admission that says no."""
    raise ChargeWindowClosed("too late")


async def test_what_is_not_admitted_leaves_no_trace(ledger: EffectLedger) -> None:
    """No row, no call: the approval is checked before the first claim."""
    bank = Bank()
    with pytest.raises(ChargeWindowClosed):
        await perform(ledger, bank, admit=refuse)
    assert (await state_of(ledger), bank.calls) == (None, [])


async def test_what_was_claimed_before_is_finished_whatever_the_time(ledger: EffectLedger) -> None:
    """Past `charge_by` a charge that may have been sent is looked up and finished."""
    bank = Bank(deque([Told(Unknown(), acts=True)]))
    with pytest.raises(OutcomeUnknown):
        await perform(ledger, bank)
    past = datetime.now(UTC) - timedelta(seconds=1)
    assert (await perform(ledger, bank, admit=refuse, claim_by=past)).state == EffectState.COMMITTED
    assert bank.acts("charge") == 1


async def test_a_window_that_closes_while_admitting_is_closed(ledger: EffectLedger) -> None:
    """The ledger's own clock has the last word."""
    bank = Bank()
    with pytest.raises(ChargeWindowClosed):
        await perform(ledger, bank, admit=lambda: None, claim_by=datetime.now(UTC) - timedelta(seconds=1))
    assert bank.calls == []


async def test_what_is_no_longer_wanted_is_not_sent_again(ledger: EffectLedger) -> None:
    """The first try was proven not to have acted; a reason against it then ends it, with nothing in flight."""
    bank = Bank(deque([Told(Unavailable())]))
    with pytest.raises(ProviderUnavailable):
        await perform(ledger, bank)

    def not_wanted() -> None:
        raise DeadlinePassed("too late")

    store = EffectStore(ledger)
    second = timedelta(seconds=1)
    with pytest.raises(DeadlinePassed):
        await store.perform(CHARGE, bank, holder="worker", lease=second, patience=second, still_wanted=not_wanted)
    assert bank.acts("charge") == 0
    assert await store.settle(CHARGE, bank, holder="worker", lease=second, patience=second, void=True) is None
