"""The effect store: each effect applied once, whatever is answered and whoever dies in between.

The bank of these tests charges each time it is asked: a second call would be a second charge in its log.
"""

import asyncio
import sqlite3
from collections import deque
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from orderflow.domain.effects import (
    Absent,
    Act,
    Busy,
    Done,
    EffectState,
    Found,
    Pending,
    Refused,
    Unavailable,
    Undone,
    Unknown,
)
from orderflow.domain.errors import (
    CannotUndo,
    ChargeWindowClosed,
    ClaimLost,
    Declined,
    EffectBusy,
    EffectReversed,
    IntentConflict,
    LedgerUnavailable,
    OrderflowError,
    OutcomeUnknown,
    ProviderUnavailable,
)
from orderflow.ledger import Claim, EffectLedger, EffectRecord, leases
from orderflow.ledger.effects import EffectStore
from orderflow.ledger.sqlite import SqliteLedger
from tests.support.ledger import LONG, NO_TIME, Bank, Killed, Told, WatchedLedger, charge, dies, refund

pytestmark = pytest.mark.timeout(30)

CHARGE = charge()
REFUND = refund()
PENDING = Pending(reference="ch_1")
PATIENT = timedelta(seconds=20)
FOR_EVER = timedelta(days=1)


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[SqliteLedger]:
    """A ledger of this test's own."""
    opened = await SqliteLedger.open(tmp_path / "ledger.db")
    yield opened
    await opened.aclose()


async def perform(
    ledger: EffectLedger,
    bank: Bank,
    act: Act = CHARGE,
    *,
    lease: timedelta = NO_TIME,
    patience: timedelta = NO_TIME,
    claim_by: datetime | None = None,
    admit: Callable[[], None] | None = None,
) -> EffectRecord:
    """Charge through a store of its own, as a new process would."""
    store = EffectStore(ledger, poll_interval=0.001)
    return await store.perform(
        act, bank, holder="worker", lease=lease, patience=patience, claim_by=claim_by, admit=admit
    )


async def undo(
    ledger: EffectLedger, bank: Bank, *, lease: timedelta = NO_TIME, patience: timedelta = NO_TIME
) -> EffectRecord:
    """Refund through a store of its own."""
    store = EffectStore(ledger, poll_interval=0.001)
    return await store.undo(REFUND, CHARGE, bank, holder="worker", lease=lease, patience=patience)


async def settle(ledger: EffectLedger, bank: Bank, *, void: bool, patience: timedelta = NO_TIME) -> EffectRecord | None:
    """Take the last look through a store of its own."""
    store = EffectStore(ledger, poll_interval=0.001)
    return await store.settle(CHARGE, bank, holder="worker", lease=NO_TIME, patience=patience, void=void)


async def state_of(ledger: EffectLedger, key: str = CHARGE.key) -> EffectState | None:
    """Where the ledger says that the effect stands."""
    record = await ledger.get(key)
    return record.state if record else None


async def endings(ledger: EffectLedger) -> list[str | None]:
    """How the attempts at the order's effects ended."""
    return [attempt.ended for attempt in await ledger.attempts("order-1")]


async def test_a_charge_is_done_and_kept(ledger: SqliteLedger) -> None:
    """The record carries what the provider said; asking again gives the same record and calls nobody."""
    bank = Bank()
    record = await perform(ledger, bank)
    assert (record.state, record.captured_minor, record.reference) == (
        EffectState.COMMITTED,
        1000,
        f"ref-{CHARGE.key}",
    )
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
    ledger: SqliteLedger, answer: Found, error: type[OrderflowError], state: EffectState
) -> None:
    """Only a definitive no is kept as one (I09); a timeout is unknown, not failed (I06)."""
    with pytest.raises(error) as caught:
        await perform(ledger, Bank(deque([Told(answer)])))
    assert caught.value.retry_after == getattr(answer, "retry_after", None)
    assert await state_of(ledger) == state


@pytest.mark.parametrize(("answer", "error", "state"), ERRORS, ids=ids)
async def test_each_answer_found_by_a_lookup_means_the_same(
    ledger: SqliteLedger, answer: Found, error: type[OrderflowError], state: EffectState
) -> None:
    """Found PENDING, the effect is looked up first, and nothing is sent unless it is proven absent (I05)."""
    await ledger.claim(CHARGE, holder="dead", lease=NO_TIME)
    bank = Bank(finds=deque([answer]))
    with pytest.raises(error):
        await perform(ledger, bank)
    assert await state_of(ledger) == state
    assert bank.calls == [("lookup", CHARGE.key)]


async def test_a_definitive_no_is_remembered(ledger: SqliteLedger) -> None:
    """Declined once, the provider is not asked again, and the code is the same."""
    bank = Bank(deque([Told(Refused(code="no_funds"))]))
    for _ in range(2):
        with pytest.raises(Declined) as caught:
            await perform(ledger, bank)
        assert caught.value.detail == "no_funds"
    assert bank.calls == [("perform", CHARGE.key)]


async def test_failures_that_pass_are_not_remembered(ledger: SqliteLedger) -> None:
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


async def test_a_lost_reply_is_found_again(ledger: SqliteLedger) -> None:
    """The provider acted and its answer was lost: the next attempt adopts it (I06)."""
    bank = Bank(deque([Told(Unknown(), acts=True)]))
    with pytest.raises(OutcomeUnknown):
        await perform(ledger, bank)
    record = await perform(ledger, bank)
    assert (record.state, record.reference) == (EffectState.COMMITTED, f"ref-{CHARGE.key}")
    assert bank.acts("charge") == 1


@pytest.mark.parametrize("acts", [True, False])
async def test_a_provider_that_raises_is_an_unknown_outcome(ledger: SqliteLedger, acts: bool) -> None:
    """A bug in an adapter is noted by its type only (its text could hold anything), and one charge comes of it."""
    bank = Bank(deque([Told(RuntimeError("card 4242"), acts=acts)]))
    with pytest.raises(OutcomeUnknown, match="RuntimeError") as caught:
        await perform(ledger, bank)
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert await endings(ledger) == ["unknown: the provider raised RuntimeError"]
    assert (await perform(ledger, bank)).state == EffectState.COMMITTED
    assert bank.acts("charge") == 1


async def test_a_captured_amount_that_differs_is_kept_and_given_back(ledger: SqliteLedger) -> None:
    """What the provider took is what counts, not what was asked for (M04)."""
    bank = Bank(deque([Told(Done(reference="ch_1", amount_minor=900))]))
    record = await perform(ledger, bank)
    assert (record.amount_minor, record.captured_minor) == (1000, 900)
    bank.log.append(("charge", CHARGE.key, 900))
    assert (await undo(ledger, bank)).refunded_minor == 900


async def test_same_key_with_other_amount_is_a_conflict_before_the_provider(ledger: SqliteLedger) -> None:
    """The provider is not touched (I01)."""
    await perform(ledger, Bank())
    bank = Bank()
    with pytest.raises(IntentConflict):
        await perform(ledger, bank, charge(amount_minor=1001))
    assert bank.calls == []


@pytest.mark.parametrize("noise", [[], [Unknown()], [Unavailable(), Busy()], [Absent()]], ids=str)
async def test_pending_is_polled_until_it_is_done(ledger: SqliteLedger, noise: list[Found]) -> None:
    """By lookup, through lookups that say nothing, and never by performing again."""
    done = Done(reference="ch_1", amount_minor=1000)
    bank = Bank(deque([Told(PENDING, acts=True)]), deque([PENDING, *noise, PENDING, done]))
    record = await perform(ledger, bank, patience=PATIENT)
    assert (record.state, record.reference) == (EffectState.COMMITTED, "ch_1")
    assert [method for method, _ in bank.calls].count("perform") == 1


async def test_pending_that_is_refused_is_declined(ledger: SqliteLedger) -> None:
    """An accepted charge can still end in a no."""
    bank = Bank(deque([Told(PENDING)]), deque([PENDING, Refused(code="no_funds")]))
    with pytest.raises(Declined):
        await perform(ledger, bank, patience=PATIENT)
    assert await state_of(ledger) == EffectState.DECLINED


async def test_pending_is_never_booked_as_done(ledger: SqliteLedger) -> None:
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


async def test_a_pending_refund_is_polled_too(ledger: SqliteLedger) -> None:
    """An asynchronous refund is done when a lookup says so."""
    bank = Bank()
    await perform(ledger, bank)
    bank.told.append(Told(PENDING, acts=True))
    bank.finds.append(PENDING)
    assert (await undo(ledger, bank, patience=PATIENT)).state == EffectState.REVERSED
    assert bank.acts("refund") == 1


DEATHS = ["before claim", "after claim", "before acting", "after acting", "before settle", "after settle"]
FIRST_ANSWERS = {
    "done": None,
    "lost reply": Told(Unknown(), acts=True),
    "accepted": Told(PENDING, acts=True),
    "timeout": Told(Unknown()),
    "unavailable": Told(Unavailable()),
    "busy": Told(Busy()),
    "bug": Told(RuntimeError(), acts=True),
}


def dying(ledger: EffectLedger, bank: Bank, death: str, **methods: str) -> WatchedLedger:
    """A ledger, or a bank, at which the process dies."""
    watched = WatchedLedger(ledger)
    when, where = death.split()
    if where == "acting":
        bank.told.appendleft(Told(Killed(), acts=when == "after"))
    else:
        hooks = watched.before if when == "before" else watched.after
        hooks[methods.get(where, where)] = dies
    return watched


@pytest.mark.parametrize("answer", FIRST_ANSWERS)
@pytest.mark.parametrize("death", DEATHS)
async def test_killed_between_any_two_steps_of_a_charge_there_is_one_charge(
    ledger: SqliteLedger, death: str, answer: str
) -> None:
    """Retried by another worker, whatever the provider answered when the first one died (I05, T25)."""
    told = FIRST_ANSWERS[answer]
    bank = Bank(deque([told] if told else []))
    with pytest.raises(Killed):
        await perform(dying(ledger, bank, death), bank)
    assert bank.acts("charge") <= 1
    for _ in range(3):
        try:
            record = await perform(ledger, bank)
            break
        except (OutcomeUnknown, ProviderUnavailable, EffectBusy):
            continue
    else:
        pytest.fail("not done after three attempts")
    assert (record.state, record.captured_minor) == (EffectState.COMMITTED, 1000)
    assert bank.acts("charge") == 1


@pytest.mark.parametrize("answer", FIRST_ANSWERS)
@pytest.mark.parametrize("death", DEATHS)
async def test_killed_between_any_two_steps_of_a_refund_there_is_one_refund(
    ledger: SqliteLedger, death: str, answer: str
) -> None:
    """The undo has a key of its own and is looked up before it is tried again (T07)."""
    bank = Bank()
    await perform(ledger, bank)
    bank.told.extend([told] if (told := FIRST_ANSWERS[answer]) else [])
    with pytest.raises(Killed):
        await undo(dying(ledger, bank, death, claim="claim_undo", settle="settle_undo"), bank)
    for _ in range(3):
        try:
            record = await undo(ledger, bank)
            break
        except (OutcomeUnknown, ProviderUnavailable, EffectBusy):
            continue
    else:
        pytest.fail("not undone after three attempts")
    assert (record.state, record.refunded_minor) == (EffectState.REVERSED, 1000)
    assert (bank.acts("charge"), bank.acts("refund"), bank.net()) == (1, 1, 0)


@pytest.mark.parametrize("death", DEATHS)
async def test_a_charge_that_died_anywhere_can_be_undone_and_never_comes_back(ledger: SqliteLedger, death: str) -> None:
    """Whatever the dead attempt did, the refund balances it, and a late attempt is refused (T02, T05)."""
    bank = Bank()
    with pytest.raises(Killed):
        await perform(dying(ledger, bank, death), bank)
    bank.told.clear()
    record = await undo(ledger, bank)
    assert record.state in {EffectState.REVERSED, EffectState.VOIDED}
    assert bank.net() == 0
    with pytest.raises(EffectReversed):
        await perform(ledger, bank)
    assert bank.net() == 0


async def test_two_workers_make_one_call(ledger: SqliteLedger, tmp_path: Path) -> None:
    """The second waits while the first is at the provider, then gives the first one's record (I03)."""
    gate = asyncio.Event()
    bank = Bank(deque([Told(Done(reference="ch_1", amount_minor=1000), acts=True, gate=gate)]))
    other_ledger = await SqliteLedger.open(tmp_path / "ledger.db")
    other = WatchedLedger(other_ledger)
    other.failed["claim"] = asyncio.Event()
    first = asyncio.create_task(perform(ledger, bank, lease=LONG))
    await bank.entered.wait()
    second = asyncio.create_task(perform(other, bank, lease=LONG, patience=PATIENT))
    await other.failed["claim"].wait()
    gate.set()
    assert await first == await second
    assert bank.calls == [("perform", CHARGE.key)]
    await other_ledger.aclose()


async def test_many_stores_racing_on_one_key_make_one_call(ledger: SqliteLedger) -> None:
    """All get the same record."""
    bank = Bank()
    racing = (perform(ledger, bank, lease=LONG, patience=PATIENT) for _ in range(30))
    records = await asyncio.gather(*racing)
    assert len(set(records)) == 1
    assert bank.calls == [("perform", CHARGE.key)]


@pytest.mark.parametrize("do", [perform, undo, lambda ledger, bank: settle(ledger, bank, void=True)])
async def test_beyond_patience_a_busy_effect_says_when_to_come_back(
    ledger: SqliteLedger, do: Callable[[EffectLedger, Bank], object]
) -> None:
    """A delay, not an end: nobody is asked, and the rest of the lease is known."""
    await ledger.claim(CHARGE, holder="other", lease=timedelta(seconds=60))
    bank = Bank()
    with pytest.raises(EffectBusy) as caught:
        await do(ledger, bank)  # type: ignore[misc]  # each gives an awaitable of its own kind
    assert caught.value.retry_after is not None
    assert 0 < caught.value.retry_after <= 60
    assert bank.calls == []


async def test_a_late_holder_changes_nothing(ledger: SqliteLedger) -> None:
    """Past its lease another adopted the charge; when the first wakes up it is told so (D06)."""
    gate = asyncio.Event()
    bank = Bank(deque([Told(Done(reference="late", amount_minor=1000), acts=True, gate=gate)]))
    late = asyncio.create_task(perform(ledger, bank))
    await bank.entered.wait()
    record = await perform(ledger, bank)
    gate.set()
    with pytest.raises(ClaimLost):
        await late
    assert await ledger.get(CHARGE.key) == record
    assert bank.acts("charge") == 1


async def test_no_transaction_is_open_while_the_provider_works(ledger: SqliteLedger, tmp_path: Path) -> None:
    """Another writer gets the write lock at once (D07)."""
    bank = Bank()

    def write() -> None:
        with sqlite3.connect(tmp_path / "ledger.db", timeout=0, isolation_level=None) as other:
            other.execute("BEGIN IMMEDIATE")
            other.execute("ROLLBACK")
        other.close()

    bank.on_call = write
    assert (await perform(ledger, bank)).state == EffectState.COMMITTED


async def test_a_lease_is_renewed_while_the_provider_works(ledger: SqliteLedger) -> None:
    """A slow provider does not cost the claim."""
    gate = asyncio.Event()
    watched = WatchedLedger(ledger)

    async def enough() -> None:
        if watched.count["renew"] == 2:
            gate.set()

    watched.after["renew"] = enough
    bank = Bank(deque([Told(Done(reference="ch_1"), acts=True, gate=gate)]))
    await perform(watched, bank, lease=timedelta(milliseconds=150))
    assert watched.count["renew"] >= 2


async def test_renewing_goes_on_through_an_outage_and_ends_with_the_claim() -> None:
    """A ledger that is away for a moment is tried again; a claim that is lost is not."""
    failures = [LedgerUnavailable("away"), LedgerUnavailable("away"), ClaimLost("gone")]

    class Failing:
        async def renew(self, claim: Claim, lease: timedelta) -> None:
            raise failures.pop(0)

    await leases._renew(Failing(), None, NO_TIME)  # type: ignore[arg-type]  # renewing needs no more
    assert failures == []


async def cancel(task: asyncio.Task[EffectRecord]) -> None:
    """Cancel and see it end so."""
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("acts", [True, False])
async def test_cancelled_at_the_provider_the_undo_need_not_wait(ledger: SqliteLedger, acts: bool) -> None:
    """The lease is given back, the outcome noted as unknown, and the undo balances what was done (T02)."""
    bank = Bank(deque([Told(Unknown(), acts=acts, gate=asyncio.Event())]))
    task = asyncio.create_task(perform(ledger, bank, lease=FOR_EVER))
    await bank.entered.wait()
    await cancel(task)
    assert await endings(ledger) == ["unknown: cancelled"]
    assert (await undo(ledger, bank)).state == EffectState.REVERSED
    assert bank.net() == 0


async def test_a_cancelled_undo_is_given_back_too(ledger: SqliteLedger) -> None:
    """The next one looks first and refunds once."""
    bank = Bank()
    await perform(ledger, bank)
    bank.entered.clear()
    bank.told.append(Told(Unknown(), acts=True, gate=asyncio.Event()))
    task = asyncio.create_task(undo(ledger, bank, lease=FOR_EVER))
    await bank.entered.wait()
    await cancel(task)
    assert (await undo(ledger, bank)).state == EffectState.REVERSED
    assert bank.acts("refund") == 1


@pytest.mark.parametrize("method", ["before claim", "after claim", "before settle", "after settle"])
async def test_cancelled_in_the_ledger_every_step_is_finished(ledger: SqliteLedger, method: str) -> None:
    """However often: a claim is given back, a result is written, and then the cancellation is seen."""
    reached, gate = asyncio.Event(), asyncio.Event()
    watched = WatchedLedger(ledger)

    async def stop() -> None:
        reached.set()
        await gate.wait()

    when, where = method.split()
    (watched.before if when == "before" else watched.after)[where] = stop
    bank = Bank()
    task = asyncio.create_task(perform(watched, bank, lease=FOR_EVER))
    await reached.wait()
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    assert not task.done()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await endings(ledger) == (["absent"] if where == "claim" else ["done"])
    assert (await perform(ledger, bank)).state == EffectState.COMMITTED
    assert bank.acts("charge") == 1


async def test_a_cancellation_is_seen_also_when_the_ledger_is_away(ledger: SqliteLedger) -> None:
    """It is never turned into another error."""

    async def away() -> None:
        raise LedgerUnavailable("away")

    watched = WatchedLedger(ledger)
    watched.before["settle"] = away
    bank = Bank(deque([Told(Unknown(), gate=asyncio.Event())]))
    task = asyncio.create_task(perform(watched, bank, lease=LONG))
    await bank.entered.wait()
    await cancel(task)


async def test_a_result_that_could_not_be_written_is_found_again(ledger: SqliteLedger) -> None:
    """The ledger went away after the charge: try again, adopt it (I05)."""

    async def away() -> None:
        raise LedgerUnavailable("away")

    watched = WatchedLedger(ledger)
    watched.before["settle"] = away
    bank = Bank()
    with pytest.raises(LedgerUnavailable):
        await perform(watched, bank)
    assert (await perform(ledger, bank)).state == EffectState.COMMITTED
    assert bank.acts("charge") == 1


def refuse() -> None:
    """An admission that says no."""
    raise ChargeWindowClosed("too late")


async def test_what_is_not_admitted_leaves_no_trace(ledger: SqliteLedger) -> None:
    """No row, no call: the approval is checked before the first claim."""
    bank = Bank()
    with pytest.raises(ChargeWindowClosed):
        await perform(ledger, bank, admit=refuse)
    assert (await state_of(ledger), bank.calls) == (None, [])


async def test_what_was_claimed_before_is_finished_whatever_the_time(ledger: SqliteLedger) -> None:
    """Past `charge_by` a charge that may have been sent is looked up and finished."""
    bank = Bank(deque([Told(Unknown(), acts=True)]))
    with pytest.raises(OutcomeUnknown):
        await perform(ledger, bank)
    past = datetime.now(UTC) - timedelta(seconds=1)
    assert (await perform(ledger, bank, admit=refuse, claim_by=past)).state == EffectState.COMMITTED
    assert bank.acts("charge") == 1


async def test_a_window_that_closes_while_admitting_is_closed(ledger: SqliteLedger) -> None:
    """The ledger's own clock has the last word."""
    bank = Bank()
    with pytest.raises(ChargeWindowClosed):
        await perform(ledger, bank, admit=lambda: None, claim_by=datetime.now(UTC) - timedelta(seconds=1))
    assert bank.calls == []


async def test_an_undo_that_comes_first_leaves_a_tombstone(ledger: SqliteLedger) -> None:
    """Nobody is asked, and a late perform is refused before the provider (T02)."""
    bank = Bank()
    assert (await undo(ledger, bank)).state == EffectState.VOIDED
    with pytest.raises(EffectReversed):
        await perform(ledger, bank)
    assert bank.calls == []


@pytest.mark.parametrize("answer", [None, *(Told(answer) for answer, _, _ in ERRORS)], ids=["done", *ids])
async def test_from_the_start_of_an_undo_the_charge_is_never_adopted(ledger: SqliteLedger, answer: Told | None) -> None:
    """A reset of a compensated order does not find "its" charge, however the undo went."""
    bank = Bank()
    await perform(ledger, bank)
    if answer:
        bank.told.append(answer)
        with pytest.raises(OrderflowError):
            await undo(ledger, bank)
    else:
        await undo(ledger, bank)
    with pytest.raises(EffectReversed):
        await perform(ledger, bank)
    assert bank.acts("charge") == 1


async def test_an_undo_done_is_done(ledger: SqliteLedger) -> None:
    """Asked again it gives the record and calls nobody (T07)."""
    bank = Bank()
    await perform(ledger, bank)
    record = await undo(ledger, bank)
    assert (record.key, record.state, record.refunded_minor) == (CHARGE.key, EffectState.REVERSED, 1000)
    calls = list(bank.calls)
    assert await undo(ledger, bank) == record
    assert bank.calls == calls


async def test_a_refused_undo_can_be_tried_again(ledger: SqliteLedger) -> None:
    """Also when the provider remembers its no: it is asked, not only looked up (T06)."""
    bank = Bank()
    await perform(ledger, bank)
    bank.told.append(Told(Refused(code="account_closed")))
    with pytest.raises(CannotUndo, match=CHARGE.key) as caught:
        await undo(ledger, bank)
    assert caught.value.detail == "account_closed"
    bank.finds.append(Refused(code="account_closed"))
    assert (await undo(ledger, bank)).state == EffectState.REVERSED
    assert bank.acts("refund") == 1


@pytest.mark.parametrize(("by_hand", "refunded"), [(300, 700), (1000, 0)])
async def test_a_refund_gives_back_what_remains(ledger: SqliteLedger, by_hand: int, refunded: int) -> None:
    """An operator refunded part or all by hand before: the rest, and "already refunded" is success (M04)."""
    bank = Bank()
    await perform(ledger, bank)
    bank.refunded_by_hand(CHARGE, by_hand)
    record = await undo(ledger, bank)
    assert (record.state, record.refunded_minor, bank.net()) == (EffectState.REVERSED, refunded, 0)


async def test_a_declined_charge_needs_no_refund(ledger: SqliteLedger) -> None:
    """Nothing to undo is success (T08)."""
    bank = Bank(deque([Told(Refused(code="no_funds"))]))
    with pytest.raises(Declined):
        await perform(ledger, bank)
    assert (await undo(ledger, bank)).state == EffectState.DECLINED
    assert bank.acts("refund") == 0


async def test_a_charge_that_the_provider_took_back_is_not_done_again(ledger: SqliteLedger) -> None:
    """Found undone at the provider: refused, and the undo finds nothing left."""
    bank = Bank(deque([Told(Unknown(), acts=True)]))
    with pytest.raises(OutcomeUnknown):
        await perform(ledger, bank)
    bank.refunded_by_hand(CHARGE, 1000)
    with pytest.raises(EffectReversed):
        await perform(ledger, bank)
    record = await undo(ledger, bank)
    assert (record.state, record.refunded_minor, bank.net()) == (EffectState.REVERSED, 0, 0)


VOID = pytest.mark.parametrize("void", [True, False])


@VOID
async def test_the_last_look_at_what_was_never_claimed_finds_nothing(ledger: SqliteLedger, void: bool) -> None:
    """With `void` it can never be done from then on."""
    bank = Bank()
    assert await settle(ledger, bank, void=void) is None
    assert await settle(ledger, bank, void=void) is None
    assert (await state_of(ledger), bank.calls) == (EffectState.VOIDED if void else None, [])


@VOID
async def test_the_last_look_adopts_what_was_done(ledger: SqliteLedger, void: bool) -> None:
    """Never "failed" with a charge standing (I06, T25)."""
    bank = Bank(deque([Told(Unknown(), acts=True)]))
    with pytest.raises(OutcomeUnknown):
        await perform(ledger, bank)
    for _ in range(2):
        record = await settle(ledger, bank, void=void)
        assert record is not None
        assert record.state == EffectState.COMMITTED
    assert bank.calls == [("perform", CHARGE.key), ("lookup", CHARGE.key)]


@VOID
async def test_the_last_look_proves_absence(ledger: SqliteLedger, void: bool) -> None:
    """Only with that proof is it not charged; with `void` it stays so."""
    bank = Bank(deque([Told(Unknown())]))
    with pytest.raises(OutcomeUnknown):
        await perform(ledger, bank)
    assert await settle(ledger, bank, void=void) is None
    assert await state_of(ledger) == (EffectState.VOIDED if void else EffectState.PENDING)
    assert (await endings(ledger))[-1] == "absent"


@VOID
async def test_the_last_look_finds_a_no(ledger: SqliteLedger, void: bool) -> None:
    """Declined after all."""
    await ledger.claim(CHARGE, holder="dead", lease=NO_TIME)
    record = await settle(ledger, Bank(finds=deque([Refused(code="no_funds")])), void=void)
    assert record is not None
    assert (record.state, record.decline_code) == (EffectState.DECLINED, "no_funds")


@VOID
@pytest.mark.parametrize("found", [PENDING, Busy(), Unavailable(), Unknown(), RuntimeError()], ids=repr)
async def test_the_last_look_never_guesses(ledger: SqliteLedger, void: bool, found: Found | BaseException) -> None:
    """What a lookup cannot say stays unknown, PENDING, and nothing is sent."""
    await ledger.claim(CHARGE, holder="dead", lease=NO_TIME)
    bank = Bank(finds=deque([found]))
    with pytest.raises(OutcomeUnknown):
        await settle(ledger, bank, void=void)
    assert await state_of(ledger) == EffectState.PENDING
    assert bank.calls == [("lookup", CHARGE.key)]


@VOID
async def test_the_last_look_polls_what_is_pending(ledger: SqliteLedger, void: bool) -> None:
    """Within its patience."""
    await ledger.claim(CHARGE, holder="dead", lease=NO_TIME)
    bank = Bank(finds=deque([PENDING, PENDING, Done(reference="ch_1")]))
    record = await settle(ledger, bank, void=void, patience=PATIENT)
    assert record is not None
    assert record.state == EffectState.COMMITTED


@VOID
async def test_the_last_look_does_not_adopt_what_was_taken_back(ledger: SqliteLedger, void: bool) -> None:
    """Undone at the provider, or here."""
    await ledger.claim(CHARGE, holder="dead", lease=NO_TIME)
    bank = Bank(finds=deque([Undone()]))
    with pytest.raises(EffectReversed):
        await settle(ledger, bank, void=void)
    await undo(ledger, bank)
    with pytest.raises(EffectReversed):
        await settle(ledger, bank, void=void)
