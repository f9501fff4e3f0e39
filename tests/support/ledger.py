"""What ledger tests share: acts, a store for each call, and a ledger that dies, waits or is watched."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg

from orderflow.backends import open_ledger
from orderflow.domain.effects import Act, EffectState, Pending, Provider
from orderflow.domain.intents import Direction, digest, idempotency_key
from orderflow.domain.strict_json import JsonValue
from orderflow.ledger import EffectLedger, EffectRecord
from orderflow.ledger.effects import EffectStore
from orderflow.settings import Settings
from tests.support.bank import Killed

NO_TIME = timedelta(0)
LONG = timedelta(minutes=5)
PATIENT = timedelta(seconds=20)

TABLES = ("attempts", "effects", "endings", "review_items", "operations", "events", "nonces", "intake")
"""All that a ledger holds; in this order they can be emptied."""

EMPTIES = "; ".join(f"DELETE FROM {table}" for table in TABLES)
"""What leaves nothing in a ledger, on either backend."""


def charge(workflow_id: str = "order-1", amount_minor: int = 1000) -> Act:
    """The charge of one order."""
    return _act(workflow_id, Direction.DO, "charge", amount_minor)


def refund(workflow_id: str = "order-1", amount_minor: int = 1000) -> Act:
    """The refund of the same charge."""
    return _act(workflow_id, Direction.UNDO, "refund", amount_minor)


def _act(workflow_id: str, direction: Direction, operation: str, amount_minor: int) -> Act:
    intent: dict[str, JsonValue] = {"operation": operation, "amount_minor": amount_minor, "currency": "EUR"}
    return Act(
        key=idempotency_key(workflow_id, "charge", direction),
        workflow_id=workflow_id,
        step="charge",
        provider="payments",
        operation=operation,
        intent=intent,
        intent_digest=digest(intent),
        amount_minor=amount_minor,
        currency="EUR",
    )


CHARGE = charge()
REFUND = refund()
PENDING = Pending(reference="ch_1")


class LedgerDatabase:
    """A database for the ledgers of one test, named by `url`; `open` gives one more ledger on it, as a process has."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._opened: list[EffectLedger] = []
        self._own: psycopg.Connection[tuple[Any, ...]] | None = None

    def empty(self) -> None:
        """Leave no effect in it."""
        self.run(EMPTIES)

    def age(self, by: timedelta) -> None:
        """Let everything in it have happened earlier."""
        passed = by // timedelta(milliseconds=1)
        self.run(
            f"UPDATE attempts SET started_at = started_at - {passed}, ended_at = ended_at - {passed};"
            f"UPDATE effects SET created_at = created_at - {passed}, updated_at = updated_at - {passed},"
            f" settled_at = settled_at - {passed}"
        )

    async def open(self, **settings: Any) -> EffectLedger:
        """A ledger on this database; it is closed with the test."""
        ledger = await open_ledger(Settings(ledger_url=self.url, **settings))
        self._opened.append(ledger)
        return ledger

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        """Run statements of the test's own, past every ledger; of a single one, give the rows."""
        if self.url.startswith("sqlite:///"):
            with closing(sqlite3.connect(self.url.removeprefix("sqlite:///"), isolation_level=None)) as connection:
                if ";" in sql:
                    connection.executescript(sql)
                    return []
                return connection.execute(sql).fetchall()
        if self._own is None:
            self._own = psycopg.connect(self.url, autocommit=True)
        cursor = self._own.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []

    async def aclose(self) -> None:
        """Close every ledger that was opened."""
        if self._own is not None:
            self._own.close()
        for ledger in self._opened:
            await ledger.aclose()


def sqlite_database(path: Path) -> LedgerDatabase:
    """An SQLite file."""
    return LedgerDatabase(f"sqlite:///{path}")


async def perform(
    ledger: EffectLedger,
    bank: Provider,
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
    ledger: EffectLedger, bank: Provider, *, lease: timedelta = NO_TIME, patience: timedelta = NO_TIME
) -> EffectRecord:
    """Refund through a store of its own."""
    store = EffectStore(ledger, poll_interval=0.001)
    return await store.undo(REFUND, CHARGE, bank, holder="worker", lease=lease, patience=patience)


async def settle(
    ledger: EffectLedger, bank: Provider, *, void: bool, patience: timedelta = NO_TIME
) -> EffectRecord | None:
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


class WatchedLedger:
    """A ledger with a hook `before` and `after` its methods, by name; `count` says how often each was called."""

    def __init__(self, inner: EffectLedger) -> None:
        self._inner = inner
        self.before: dict[str, Callable[[], Awaitable[None]]] = {}
        self.after: dict[str, Callable[[], Awaitable[None]]] = {}
        self.failed: dict[str, asyncio.Event] = {}
        self.count: dict[str, int] = {}

    def __getattr__(self, method: str) -> Any:
        async def watched(*args: Any, **named: Any) -> Any:
            self.count[method] = self.count.get(method, 0) + 1
            if method in self.before:
                await self.before[method]()
            try:
                result = await getattr(self._inner, method)(*args, **named)
            except Exception:
                self.failed.setdefault(method, asyncio.Event()).set()
                raise
            if method in self.after:
                await self.after[method]()
            return result

        return watched


async def dies() -> None:
    """A hook: the process is killed here."""
    raise Killed
