"""The SQLite ledger: its transitions, its fencing, what it refuses to open, and many processes on one file."""

import asyncio
import sqlite3
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from orderflow.domain.effects import (
    TRANSITIONS,
    UNDONE,
    Absent,
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
    ChargeWindowClosed,
    ClaimLost,
    EffectBusy,
    EffectReversed,
    IntentConflict,
    InvalidSettings,
    LedgerUnavailable,
    OrderflowError,
)
from orderflow.ledger import Claim, EffectLedger, EffectRecord, sqlite
from orderflow.ledger.sqlite import SqliteLedger
from tests.support.ledger import LONG, NO_TIME, charge, refund

pytestmark = pytest.mark.timeout(60)

CHARGE = charge()
REFUND = refund()
DONE = Done(reference="ch_1", amount_minor=1000, result={"receipt": "r-1"})
GIVEN_BACK = Done(reference="re_1", amount_minor=1000)
OPEN_ANSWERS: list[Found] = [
    Pending(reference="ch_1"),
    Busy(),
    Unavailable(),
    Unknown(detail="timeout"),
    Absent(),
    Undone(),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger file in a folder that is not there yet."""
    return tmp_path / "state" / "ledger.db"


@pytest.fixture
async def ledger(path: Path) -> AsyncIterator[SqliteLedger]:
    """A ledger of this test's own."""
    opened = await SqliteLedger.open(path)
    yield opened
    await opened.aclose()


async def claimed(ledger: EffectLedger, lease: timedelta = LONG) -> Claim:
    """Claim the charge."""
    claim = await ledger.claim(CHARGE, holder="one", lease=lease)
    assert isinstance(claim, Claim)
    return claim


async def undo_claimed(ledger: EffectLedger, lease: timedelta = LONG) -> Claim:
    """Claim the refund."""
    claim = await ledger.claim_undo(REFUND, CHARGE, holder="one", lease=lease)
    assert isinstance(claim, Claim)
    return claim


async def state_of(ledger: EffectLedger, key: str = CHARGE.key) -> EffectState | None:
    """Where the ledger says that the effect stands."""
    record = await ledger.get(key)
    return record.state if record else None


async def nothing(ledger: EffectLedger) -> None:
    """Leave the charge unseen."""


async def pending(ledger: EffectLedger) -> None:
    """Bring the charge to PENDING, its lease over."""
    await claimed(ledger, NO_TIME)


async def committed(ledger: EffectLedger) -> None:
    """Bring the charge to COMMITTED."""
    await ledger.settle(await claimed(ledger), DONE)


async def declined(ledger: EffectLedger) -> None:
    """Bring the charge to DECLINED."""
    await ledger.settle(await claimed(ledger), Refused(code="no_funds"))


async def voided(ledger: EffectLedger) -> None:
    """Bring the charge to VOIDED."""
    await ledger.void(CHARGE)


async def reversing(ledger: EffectLedger) -> None:
    """Bring the charge to REVERSING, the undo's lease over."""
    await committed(ledger)
    await undo_claimed(ledger, NO_TIME)


async def reversed_(ledger: EffectLedger) -> None:
    """Bring the charge to REVERSED."""
    await committed(ledger)
    await ledger.settle_undo(await undo_claimed(ledger), CHARGE, GIVEN_BACK)


REACH: dict[EffectState | None, Callable[[EffectLedger], Awaitable[None]]] = {
    None: nothing,
    EffectState.PENDING: pending,
    EffectState.COMMITTED: committed,
    EffectState.DECLINED: declined,
    EffectState.VOIDED: voided,
    EffectState.REVERSING: reversing,
    EffectState.REVERSED: reversed_,
}
STATES = pytest.mark.parametrize("state", list(REACH), ids=lambda state: state or "unseen")


def stale(record: EffectRecord) -> Claim:
    """The newest claim there ever was, as a holder that woke up late still has it."""
    return Claim(record, "late", fresh=False)


async def every_write(ledger: EffectLedger) -> list[Callable[[], Awaitable[object]]]:
    """Everything that can be asked of a ledger for the charge, as it stands now."""
    record = await ledger.get(CHARGE.key)
    undo_record = await ledger.get(REFUND.key)
    answers = [DONE, Refused(code="no"), *OPEN_ANSWERS]
    writes: list[Callable[[], Awaitable[object]]] = [
        partial(ledger.claim, CHARGE, holder="two", lease=NO_TIME),
        partial(ledger.claim_undo, REFUND, CHARGE, holder="two", lease=NO_TIME),
        partial(ledger.void, CHARGE),
    ]
    if record:
        claim = stale(record)
        writes += [partial(ledger.void, CHARGE, claim), partial(ledger.renew, claim, NO_TIME)]
        writes += [partial(ledger.settle, claim, answer) for answer in answers]
    if undo_record:
        undo = stale(undo_record)
        writes += [partial(ledger.settle_undo, undo, CHARGE, answer) for answer in answers]
    return writes


@STATES
async def test_no_write_takes_an_effect_to_a_state_that_may_not_follow(
    tmp_path: Path, state: EffectState | None
) -> None:
    """Every write from every state either changes nothing or follows the table (the database holds it too)."""
    tried, more = 0, True
    while more:
        ledger = await SqliteLedger.open(tmp_path / f"{tried}.db")
        await REACH[state](ledger)
        assert await state_of(ledger) == state
        writes = await every_write(ledger)
        try:
            await writes[tried]()
        except OrderflowError:
            assert await state_of(ledger) == state
        after = await state_of(ledger)
        assert after == state or after in TRANSITIONS[state]
        await ledger.aclose()
        tried += 1
        more = tried < len(writes)


@STATES
async def test_a_claim_depends_on_the_state_alone(ledger: SqliteLedger, state: EffectState | None) -> None:
    """Open effects are claimed, settled ones are given back, undone ones are refused for ever (T02)."""
    await REACH[state](ledger)
    if state in UNDONE:
        with pytest.raises(EffectReversed, match=CHARGE.key):
            await ledger.claim(CHARGE, holder="two", lease=LONG)
        return
    outcome = await ledger.claim(CHARGE, holder="two", lease=LONG)
    if isinstance(outcome, Claim):
        assert state in {None, EffectState.PENDING}
        assert outcome.fresh is (state is None)
        assert outcome.record.token == (1 if state is None else 2)
    else:
        assert outcome.state == state


@STATES
async def test_same_key_with_other_amount_is_a_conflict(ledger: SqliteLedger, state: EffectState | None) -> None:
    """Whatever state the first intent is in, another one never takes its key (I01)."""
    await REACH[state](ledger)
    other = charge(amount_minor=1001)
    if state is None:
        await pending(ledger)
    before = await ledger.get(CHARGE.key)
    with pytest.raises(IntentConflict):
        await ledger.claim(other, holder="two", lease=LONG)
    with pytest.raises(IntentConflict):
        await ledger.claim_undo(REFUND, other, holder="two", lease=LONG)
    assert await ledger.get(CHARGE.key) == before


async def test_a_conflicting_undo_leaves_the_effect_as_it_was(ledger: SqliteLedger) -> None:
    """The mark on the effect and the claim of its undo are one transaction."""
    await committed(ledger)
    await ledger.claim(refund(amount_minor=1), holder="other", lease=NO_TIME)
    with pytest.raises(IntentConflict):
        await ledger.claim_undo(REFUND, CHARGE, holder="one", lease=LONG)
    assert await state_of(ledger) == EffectState.COMMITTED


async def test_a_held_effect_is_busy_for_what_is_left_of_its_lease(ledger: SqliteLedger) -> None:
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


async def test_a_held_undo_is_busy(ledger: SqliteLedger) -> None:
    """Two workers never refund at once."""
    await committed(ledger)
    await undo_claimed(ledger)
    with pytest.raises(EffectBusy):
        await ledger.claim_undo(REFUND, CHARGE, holder="two", lease=LONG)


async def test_a_late_holder_is_refused_by_the_fencing_token(ledger: SqliteLedger) -> None:
    """After its lease another took over: the first can neither renew, settle nor void, and its end is kept (D06)."""
    late = await claimed(ledger, NO_TIME)
    await claimed(ledger)
    for write in (ledger.renew(late, LONG), ledger.settle(late, DONE), ledger.void(CHARGE, late)):
        with pytest.raises(ClaimLost, match=r"token 1"):
            await write
    assert await state_of(ledger) == EffectState.PENDING
    assert [attempt.ended for attempt in await ledger.attempts("order-1")] == ["done", None]


async def test_a_late_holder_of_an_undo_is_refused_by_the_fencing_token(ledger: SqliteLedger) -> None:
    """The same for the way back."""
    await committed(ledger)
    late = await undo_claimed(ledger, NO_TIME)
    await undo_claimed(ledger)
    with pytest.raises(ClaimLost):
        await ledger.settle_undo(late, CHARGE, GIVEN_BACK)
    assert await state_of(ledger) == EffectState.REVERSING


async def test_a_holder_whose_effect_is_being_undone_cannot_commit_it(ledger: SqliteLedger) -> None:
    """A late commit after its compensation is impossible (T02)."""
    late = await claimed(ledger, NO_TIME)
    await undo_claimed(ledger)
    with pytest.raises(ClaimLost):
        await ledger.settle(late, DONE)
    assert await state_of(ledger) == EffectState.REVERSING


async def test_a_renewed_lease_holds(ledger: SqliteLedger) -> None:
    """Renewing turns a lease that is over into a live one, while nobody else claimed."""
    claim = await claimed(ledger, NO_TIME)
    await ledger.renew(claim, LONG)
    with pytest.raises(EffectBusy):
        await ledger.claim(CHARGE, holder="two", lease=LONG)


async def test_the_window_closes_for_a_first_claim_only(ledger: SqliteLedger) -> None:
    """Unclaimed at `charge_by`, an effect is refused; what was claimed before is finished whatever the time."""
    past = datetime.now(UTC) - timedelta(seconds=1)
    with pytest.raises(ChargeWindowClosed):
        await ledger.claim(CHARGE, holder="one", lease=NO_TIME, claim_by=past)
    assert await state_of(ledger) is None
    ahead = datetime.now(UTC) + timedelta(minutes=1)
    assert isinstance(await ledger.claim(CHARGE, holder="one", lease=NO_TIME, claim_by=ahead), Claim)
    assert isinstance(await ledger.claim(CHARGE, holder="two", lease=NO_TIME, claim_by=past), Claim)


async def test_done_is_kept_with_all_that_the_provider_said(ledger: SqliteLedger) -> None:
    """Reference, captured amount and result are on the record; a captured amount that differs is kept as it is."""
    answer = Done(reference="ch_1", amount_minor=900, result={"b": [1, None], "a": "ü"})
    record = await ledger.settle(await claimed(ledger), answer)
    assert record == await ledger.get(CHARGE.key)
    assert (record.state, record.reference) == (EffectState.COMMITTED, "ch_1")
    assert (record.amount_minor, record.captured_minor, record.currency) == (1000, 900, "EUR")
    assert record.result_json == '{"a":"\\u00fc","b":[1,null]}'
    assert record.settled_at is not None
    assert abs(record.settled_at - datetime.now(UTC)) < timedelta(minutes=1)


async def test_declined_is_kept_with_its_code(ledger: SqliteLedger) -> None:
    """A definitive no is a result (I09)."""
    record = await ledger.settle(await claimed(ledger), Refused(code="no_funds"))
    assert (record.state, record.decline_code, record.captured_minor) == (EffectState.DECLINED, "no_funds", None)


@pytest.mark.parametrize("answer", OPEN_ANSWERS, ids=lambda answer: answer.answer)
async def test_what_is_not_final_is_never_kept_as_a_result(ledger: SqliteLedger, answer: Found) -> None:
    """The effect stays PENDING, how the attempt ended is noted, and the next one need not wait (I09)."""
    record = await ledger.settle(await claimed(ledger), answer)
    assert (record.state, record.settled_at, record.result_json) == (EffectState.PENDING, None, None)
    attempt = (await ledger.attempts("order-1"))[0]
    assert attempt.ended is not None
    assert attempt.ended.startswith(answer.answer)
    assert isinstance(await ledger.claim(CHARGE, holder="two", lease=LONG), Claim)


async def test_a_pending_reference_survives_an_unknown_answer(ledger: SqliteLedger) -> None:
    """The provider's id of an accepted charge is what a person will ask it about."""
    await ledger.settle(await claimed(ledger), Pending(reference="ch_1"))
    record = await ledger.settle(await claimed(ledger), Unknown())
    assert record.reference == "ch_1"


async def test_an_undo_moves_both_rows(ledger: SqliteLedger) -> None:
    """The effect knows what was given back, so that captured minus refunded over all rows is what the order cost."""
    await committed(ledger)
    record = await ledger.settle_undo(await undo_claimed(ledger), CHARGE, GIVEN_BACK)
    undo = await ledger.get(REFUND.key)
    assert (record.state, record.captured_minor, record.refunded_minor) == (EffectState.REVERSED, 1000, 1000)
    assert undo is not None
    assert (undo.state, undo.reference, undo.captured_minor) == (EffectState.COMMITTED, "re_1", None)


async def test_the_undo_of_an_unknown_charge_books_what_came_back_as_captured(ledger: SqliteLedger) -> None:
    """Money that was given back had been taken, also when the charge's own answer was lost."""
    await pending(ledger)
    record = await ledger.settle_undo(await undo_claimed(ledger), CHARGE, GIVEN_BACK)
    assert (record.state, record.captured_minor, record.refunded_minor) == (EffectState.REVERSED, 1000, 1000)


@pytest.mark.parametrize("answer", [Refused(code="closed"), *OPEN_ANSWERS], ids=lambda answer: answer.answer)
async def test_an_undo_that_did_not_work_can_be_tried_again(ledger: SqliteLedger, answer: Found) -> None:
    """Also after a definitive no: an operator may have put right what was in the way (T06)."""
    await committed(ledger)
    record = await ledger.settle_undo(await undo_claimed(ledger), CHARGE, answer)
    assert record.state == EffectState.REVERSING
    again = await undo_claimed(ledger)
    assert (again.fresh, again.record.token) == (False, 2)


@pytest.mark.parametrize("state", [None, EffectState.VOIDED, EffectState.DECLINED, EffectState.REVERSED])
async def test_nothing_to_undo_claims_nothing(ledger: SqliteLedger, state: EffectState | None) -> None:
    """What was never done, or is taken back, gives its record; what was never seen gets its tombstone (T08)."""
    await REACH[state](ledger)
    attempts = await ledger.attempts("order-1")
    outcome = await ledger.claim_undo(REFUND, CHARGE, holder="two", lease=LONG)
    assert isinstance(outcome, EffectRecord)
    assert (outcome.key, outcome.state) == (CHARGE.key, state or EffectState.VOIDED)
    assert await ledger.attempts("order-1") == attempts


@STATES
async def test_a_tombstone_covers_only_what_was_never_seen(ledger: SqliteLedger, state: EffectState | None) -> None:
    """Without a claim an existing row stays as it is."""
    await REACH[state](ledger)
    before = await ledger.get(CHARGE.key)
    record = await ledger.void(CHARGE)
    assert record.state == (state or EffectState.VOIDED)
    assert before in (None, record)


async def test_a_proven_absence_is_voided_under_its_claim(ledger: SqliteLedger) -> None:
    """PENDING and proven absent becomes VOIDED; the attempt says why."""
    record = await ledger.void(CHARGE, await claimed(ledger))
    assert record.state == EffectState.VOIDED
    assert [attempt.ended for attempt in await ledger.attempts("order-1")] == ["absent"]


async def test_an_order_shows_its_own_effects_and_attempts_only(ledger: SqliteLedger) -> None:
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


async def test_a_naive_time_is_no_time(ledger: SqliteLedger) -> None:
    """A window without its zone would open or close hours off."""
    naive = datetime.now()  # noqa: DTZ005 (that is the point)
    with pytest.raises(TypeError):
        await ledger.claim(CHARGE, holder="one", lease=LONG, claim_by=naive)
    assert await state_of(ledger) is None


async def test_what_was_written_is_there_after_a_restart(path: Path) -> None:
    """Another process finds the same effects."""
    first = await SqliteLedger.open(path)
    await committed(first)
    record = await first.get(CHARGE.key)
    await first.aclose()
    second = await SqliteLedger.open(path)
    assert await second.get(CHARGE.key) == record
    await second.aclose()


async def test_two_ledgers_on_one_file_see_one_claim(ledger: SqliteLedger, path: Path) -> None:
    """The database decides, not the memory of a process (I03)."""
    other = await SqliteLedger.open(path)
    outcomes = await asyncio.gather(
        *(one.claim(CHARGE, holder="x", lease=LONG) for one in (ledger, other) * 10), return_exceptions=True
    )
    assert sum(isinstance(outcome, Claim) for outcome in outcomes) == 1
    assert sum(isinstance(outcome, EffectBusy) for outcome in outcomes) == 19
    await other.aclose()


async def test_the_check_says_what_and_where(ledger: SqliteLedger, path: Path) -> None:
    """One line for `doctor`."""
    line = await ledger.check()
    assert str(path) in line
    assert "SQLite" in line
    assert "\n" not in line


async def test_every_commit_is_durable(ledger: SqliteLedger) -> None:
    """WAL with synchronous FULL (2): a power cut loses no committed effect."""
    wanted = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}
    found = {name: await ledger._on_thread(partial(ledger._rows, f"PRAGMA {name}", {})) for name in wanted}
    assert {name: rows[0][name] for name, rows in found.items()} == wanted


async def test_a_closed_ledger_says_so(path: Path) -> None:
    """Closing waits for what runs; a second close does nothing; use after it is refused."""
    ledger = await SqliteLedger.open(path)
    running = asyncio.ensure_future(claimed(ledger))
    await asyncio.sleep(0)
    await ledger.aclose()
    await ledger.aclose()
    assert (await running).fresh
    with pytest.raises(LedgerUnavailable, match="closed"):
        await ledger.get(CHARGE.key)


async def test_a_lock_that_stays_is_unavailable_not_a_raw_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting for another writer is bounded, and works again once the lock is gone (D01)."""
    monkeypatch.setattr(sqlite, "_BUSY_SECONDS", 0.0)
    ledger = await SqliteLedger.open(path)
    with sqlite3.connect(path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerUnavailable, match="locked"):
            await claimed(ledger)
        other.execute("ROLLBACK")
    other.close()
    assert (await claimed(ledger)).fresh
    await ledger.aclose()


async def test_a_lock_that_goes_is_waited_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole transaction is tried again when another writer was in the way (D01)."""
    monkeypatch.setattr(sqlite, "_BUSY_SECONDS", 0.0)
    ledger = await SqliteLedger.open(path)
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    monkeypatch.setattr("orderflow.ledger.sqlite.time.sleep", lambda _: other.execute("ROLLBACK"))
    assert (await claimed(ledger)).fresh
    other.close()
    await ledger.aclose()


def make_folder(path: Path) -> None:
    """Put a folder where the file should be."""
    path.mkdir(parents=True)


def make_other_format(path: Path) -> None:
    """Put something else where the database should be."""
    path.parent.mkdir()
    path.write_bytes(b"this is no database, but a long enough text" * 100)


def make_parent_a_file(path: Path) -> None:
    """Put a file where the folder should be."""
    path.parent.write_text("a file")


def make_other_database(path: Path) -> None:
    """Put somebody else's database there."""
    path.parent.mkdir()
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE theirs (x)")
    other.close()


def make_newer(path: Path) -> None:
    """Put a ledger of a later version there."""
    path.parent.mkdir()
    with sqlite3.connect(path) as newer:
        newer.execute(f"PRAGMA user_version = {sqlite.SCHEMA_VERSION + 1}")
    newer.close()


@pytest.mark.parametrize(
    ("make", "advice"),
    [
        (make_folder, "is a folder; name a file in it"),
        (make_other_format, "no SQLite database; name another file"),
        (make_parent_a_file, "name a file in a folder of yours"),
        (make_other_database, "tables of something else; name another file"),
        (make_newer, "this orderflow knows 1; run the newer one"),
    ],
)
async def test_a_path_that_cannot_hold_a_ledger_is_refused_with_advice(
    path: Path, make: Callable[[Path], None], advice: str
) -> None:
    """Bad settings are one clear line that names the path and what to do, and nothing there is touched."""
    make(path)
    with pytest.raises(InvalidSettings, match=advice) as caught:
        await SqliteLedger.open(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE effects SET state = 'done'",
        "UPDATE effects SET captured_minor = -1",
        "UPDATE effects SET amount_minor = 'ten'",
        "UPDATE effects SET state = 'declined'",
        "INSERT INTO attempts (key, token, holder, started_at) VALUES ('nowhere', 1, 'x', 0)",
    ],
)
async def test_the_database_refuses_rows_that_cannot_be(ledger: SqliteLedger, path: Path, damage: str) -> None:
    """Whoever writes past the ledger still meets its rules."""
    await pending(ledger)
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA foreign_keys = ON")
        with pytest.raises(sqlite3.IntegrityError):
            other.execute(damage)
    other.close()


@pytest.mark.parametrize("shared", [True, False], ids=["the same effects", "effects of their own"])
async def test_eight_processes_do_every_effect_once(tmp_path: Path, shared: bool) -> None:
    """No "database is locked", no second provider call, an exact count (D01, I03)."""
    log = tmp_path / "bank.log"
    log.touch()
    orders = [[f"order-{0 if shared else process}-{number}" for number in range(50)] for process in range(8)]
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.support.contender", tmp_path / "ledger.db", log, *own,
            cwd=Path(__file__).parents[2], stderr=asyncio.subprocess.PIPE,
        )
        for own in orders
    ]  # fmt: skip
    ends = [await asyncio.wait_for(process.communicate(), 50) for process in processes]
    assert [end[1].decode() for end in ends] == [""] * 8
    assert [process.returncode for process in processes] == [0] * 8
    charged = log.read_text().splitlines()
    assert len(charged) == len(set(charged)) == len({order for own in orders for order in own})
