"""The SQLite ledger writes what waits together with one COMMIT, and each of it stands or falls alone."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from orderflow.domain.errors import ClaimLost, EffectBusy, IntentConflict, LedgerUnavailable
from orderflow.ledger import Claim
from orderflow.ledger.sqlite import SqliteLedger
from orderflow.ledger.transactions import Transaction, claim
from tests.support.ledger import LONG, charge, state_of
from tests.support.ledger_states import DONE

pytestmark = pytest.mark.timeout(60)

ORDERS = [charge(f"order-{number}") for number in range(50)]


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[SqliteLedger]:
    """A ledger of this test's own."""
    opened = await SqliteLedger.open(tmp_path / "ledger.db")
    yield opened
    await opened.aclose()


@contextmanager
def disk_busy(ledger: SqliteLedger) -> Iterator[None]:
    """Keep the ledger's thread from its work, as a slow disk does."""
    free = threading.Event()
    ledger._thread.submit(free.wait)
    try:
        yield
    finally:
        free.set()


async def test_what_waits_for_the_disk_is_written_with_one_commit(ledger: SqliteLedger) -> None:
    """Fifty claims at once cost one fsync; one that comes alone has a commit of its own (D02)."""
    traced: list[str] = []
    await ledger._on_thread(partial(ledger._connection.set_trace_callback, traced.append))
    with disk_busy(ledger):
        writes = [asyncio.create_task(ledger.claim(act, holder="one", lease=LONG)) for act in ORDERS]
        await asyncio.sleep(0)
    claims = await asyncio.gather(*writes)
    assert all(isinstance(one, Claim) for one in claims)
    assert traced.count("BEGIN IMMEDIATE") == traced.count("COMMIT") == 1
    await ledger.claim(charge("order-alone"), holder="one", lease=LONG)
    assert traced.count("COMMIT") == 2


async def test_what_fails_in_a_group_takes_no_other_with_it(ledger: SqliteLedger) -> None:
    """D04: a conflict, a lost claim and a bug leave nothing behind, and all others are written."""
    held = await ledger.claim(charge("order-held"), holder="one", lease=LONG)
    assert isinstance(held, Claim)
    late = Claim(held.record, "late", fresh=True)
    await ledger.settle(held, DONE)

    def half() -> Transaction[None]:
        yield from claim(charge("order-half"), holder="one", lease=LONG)
        raise ZeroDivisionError

    with disk_busy(ledger):
        outcomes = asyncio.gather(
            ledger.claim(charge("order-1"), holder="one", lease=LONG),
            ledger._write(half),
            ledger.claim(charge("order-1"), holder="two", lease=LONG),
            ledger.claim(charge("order-1", amount_minor=7), holder="two", lease=LONG),
            ledger.settle(late, DONE),
            ledger.claim(charge("order-2"), holder="one", lease=LONG),
            return_exceptions=True,
        )
        await asyncio.sleep(0)
    kinds = [type(outcome) for outcome in await outcomes]
    assert kinds == [Claim, ZeroDivisionError, EffectBusy, IntentConflict, ClaimLost, Claim]
    states = {name: await state_of(ledger, charge(f"order-{name}").key) for name in ("1", "2", "held", "half")}
    assert states == {"1": "pending", "2": "pending", "held": "committed", "half": None}
    assert len(await ledger.attempts("order-1")) == 1


async def test_nobody_is_told_of_a_group_that_could_not_be_committed(ledger: SqliteLedger) -> None:
    """D02: every one of it hears that the ledger is not available, nothing is written, and the ledger works on."""

    def refuse(action: int, what: str | None, *_: str | None) -> int:
        commits = action == sqlite3.SQLITE_TRANSACTION and what == "COMMIT"
        return sqlite3.SQLITE_DENY if commits else sqlite3.SQLITE_OK

    await ledger._on_thread(partial(ledger._connection.set_authorizer, refuse))
    with disk_busy(ledger):
        writes = [asyncio.create_task(ledger.claim(act, holder="one", lease=LONG)) for act in ORDERS]
        await asyncio.sleep(0)
    outcomes = await asyncio.gather(*writes, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {LedgerUnavailable}
    assert len({id(outcome) for outcome in outcomes}) == len(ORDERS)
    await ledger._on_thread(partial(ledger._connection.set_authorizer, None))
    assert [await ledger.get(act.key) for act in ORDERS] == [None] * len(ORDERS)
    assert isinstance(await ledger.claim(ORDERS[0], holder="one", lease=LONG), Claim)


async def test_a_disk_that_is_full_is_told_as_such_to_all_whose_write_was_lost(ledger: SqliteLedger) -> None:
    """D02: whoever has a claim finds it in the ledger, everybody else hears why there is none."""
    await ledger._on_thread(partial(ledger._connection.execute, "PRAGMA max_page_count = 1"))
    with disk_busy(ledger):
        writes = [asyncio.create_task(ledger.claim(act, holder="one", lease=LONG)) for act in ORDERS]
        await asyncio.sleep(0)
    outcomes = await asyncio.gather(*writes, return_exceptions=True)
    refused = [outcome for outcome in outcomes if isinstance(outcome, LedgerUnavailable)]
    assert refused
    assert {"full" in str(outcome) for outcome in refused} == {True}
    found = [await ledger.get(act.key) for act in ORDERS]
    assert [isinstance(outcome, Claim) for outcome in outcomes] == [record is not None for record in found]


async def test_what_sqlite_took_back_as_a_whole_is_told_to_the_whole_group(ledger: SqliteLedger) -> None:
    """D02: some errors end the transaction (https://sqlite.org/lang_transaction.html); nobody is told a claim of it."""

    def broken() -> Transaction[None]:
        yield from claim(charge("order-broken"), holder="one", lease=LONG)
        ledger._connection.execute("ROLLBACK")
        raise sqlite3.OperationalError("disk I/O error")

    with disk_busy(ledger):
        before = asyncio.create_task(ledger.claim(ORDERS[0], holder="one", lease=LONG))
        outcomes = asyncio.gather(before, ledger._write(broken), return_exceptions=True)
        await asyncio.sleep(0)
    assert [type(outcome) for outcome in await outcomes] == [LedgerUnavailable] * 2
    assert all("disk I/O error" in str(outcome) for outcome in await outcomes)
    assert await ledger.get(ORDERS[0].key) is None


async def test_a_write_that_is_cancelled_while_it_waits_is_never_done(ledger: SqliteLedger) -> None:
    """T27: whoever gave up did not claim; its neighbour in the group is not disturbed."""
    with disk_busy(ledger):
        first, second = (asyncio.create_task(ledger.claim(act, holder="one", lease=LONG)) for act in ORDERS[:2])
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait({first})
    assert isinstance(await second, Claim)
    assert first.cancelled()
    assert await ledger.get(ORDERS[0].key) is None


async def test_a_ledger_that_closes_writes_what_waits(ledger: SqliteLedger) -> None:
    """T26: what was asked for before is done before."""
    with disk_busy(ledger):
        writes = [asyncio.create_task(ledger.claim(act, holder="one", lease=LONG)) for act in ORDERS]
        await asyncio.sleep(0)
        closing = asyncio.create_task(ledger.aclose())
        await asyncio.sleep(0)
    await closing
    assert all(isinstance(one, Claim) for one in await asyncio.gather(*writes))
