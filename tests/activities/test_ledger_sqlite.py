"""The SQLite ledger: what it refuses to open, and how it locks."""

import sqlite3
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import pytest

from orderflow.domain.effects import EffectState
from orderflow.domain.errors import InvalidSettings, LedgerUnavailable
from orderflow.ledger import Claim, sqlite
from orderflow.ledger.schema import LATEST
from orderflow.ledger.sqlite import SqliteLedger
from tests.support.bank import Bank
from tests.support.ledger import CHARGE, LONG, perform
from tests.support.ledger_states import claimed, committed, pending, reversed_

pytestmark = pytest.mark.timeout(60)


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


async def test_what_was_written_is_there_after_a_restart(path: Path) -> None:
    """Another process finds the same effects."""
    first = await SqliteLedger.open(path)
    await committed(first)
    record = await first.get(CHARGE.key)
    await first.aclose()
    second = await SqliteLedger.open(path)
    assert await second.get(CHARGE.key) == record
    await second.aclose()


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


async def test_every_write_takes_the_lock_before_it_reads(ledger: SqliteLedger) -> None:
    """A lock that is upgraded later would not wait for another writer (D01)."""
    traced: list[str] = []
    await ledger._on_thread(partial(ledger._connection.set_trace_callback, traced.append))
    await reversed_(ledger)
    await ledger.check()
    began = [statement for statement in traced if statement.startswith("BEGIN")]
    assert set(began) == {"BEGIN IMMEDIATE"}
    assert len(began) == traced.count("COMMIT") == 5


async def test_no_transaction_is_open_while_the_provider_works(ledger: SqliteLedger, path: Path) -> None:
    """Another writer gets the write lock at once (D07)."""
    bank = Bank()

    def write() -> None:
        with sqlite3.connect(path, timeout=0, isolation_level=None) as other:
            other.execute("BEGIN IMMEDIATE")
            other.execute("ROLLBACK")
        other.close()

    bank.on_call = write
    assert (await perform(ledger, bank)).state == EffectState.COMMITTED


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


@pytest.mark.parametrize("ending", ["COMMIT", "ROLLBACK"])
async def test_a_first_insert_that_is_not_committed_yet_is_waited_for(
    ledger: SqliteLedger, path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """The second caller reads the winner's row, or is the first after all; never nothing, never both (D03)."""
    await ledger._on_thread(partial(ledger._rows, "PRAGMA busy_timeout = 0", {}))
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    other.execute(
        "INSERT INTO effects (key, workflow_id, step, provider, operation, intent_digest, state, token, lease_until,"
        " created_at, updated_at, settled_at) VALUES (?, 'order-1', 'charge', 'payments', 'charge', ?, 'committed',"
        " 1, 0, 1, 1, 1)",
        (CHARGE.key, CHARGE.intent_digest),
    )
    waited: list[float] = []

    def goes_on(seconds: float) -> None:
        waited.append(seconds)
        other.execute(ending)

    monkeypatch.setattr("orderflow.ledger.sqlite.time.sleep", goes_on)
    outcome = await ledger.claim(CHARGE, holder="two", lease=LONG)
    other.close()
    assert len(waited) == 1
    if ending == "COMMIT":
        assert outcome == await ledger.get(CHARGE.key)
    else:
        assert isinstance(outcome, Claim)
        assert outcome.fresh


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
        newer.execute(f"PRAGMA user_version = {int(LATEST) + 1}")
    newer.close()


@pytest.mark.parametrize(
    ("make", "advice"),
    [
        (make_folder, "is a folder; name a file in it"),
        (make_other_format, "no SQLite database; name another file"),
        (make_parent_a_file, "name a file in a folder of yours"),
        (make_other_database, "tables of something else; name another file"),
        (make_newer, f"this orderflow knows {LATEST}; run the newer one"),
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
