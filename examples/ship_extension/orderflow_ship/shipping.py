"""A carrier in a SQLite file: it survives a killed worker and may be used by several workers on one host."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from orderflow.domain.effects import (
    Absent,
    Act,
    Capabilities,
    Done,
    Found,
    Handle,
    Listed,
    Performed,
    Refused,
    Undone,
    Unknown,
)
from orderflow.domain.errors import InvalidSettings

AnyAnswer = TypeVar("AnyAnswer", Performed, Found)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS acts (
    key TEXT PRIMARY KEY, operation TEXT NOT NULL, intent_digest TEXT NOT NULL, reference TEXT NOT NULL,
    at TEXT NOT NULL, state TEXT NOT NULL CHECK (state IN ('standing', 'undone', 'void'))
)
"""


def open_shipping(settings: Mapping[str, str]) -> "Shipping":
    """The provider `shipping`; its one setting is `database`, the path of the file that it keeps its books in."""
    if "database" not in settings:
        raise InvalidSettings("the provider 'shipping' needs the setting 'database': the path of its SQLite file")
    return Shipping(Path(settings["database"]))


class Shipping:
    """`orderflow.domain.effects.Provider` for parcels: each key acts once, whoever asks and however often."""

    capabilities = Capabilities(key_horizon=None, lists=True)

    def __init__(self, database: Path) -> None:
        self._database = database
        database.parent.mkdir(parents=True, exist_ok=True)
        with self._transaction() as books:
            books.execute(_SCHEMA)

    async def perform(self, act: Act) -> Performed:
        """Ship a parcel; a shipment that was cancelled before it was made is refused for ever."""
        return await _answer(self._perform, act)

    async def lookup(self, act: Act, by: Handle = Handle.KEY) -> Found:
        """What became of a shipment, or of its cancellation."""
        return await _answer(self._lookup, act)

    async def undo(self, undo: Act, of: Act) -> Performed:
        """Cancel the shipment `of`; one that was never made can then never be made."""
        return await _answer(self._undo, undo, of)

    async def list(self, since: datetime) -> "list[Listed] | None":
        """Every shipment and cancellation since `since`, the oldest first."""
        return [*await asyncio.to_thread(self._listed, since)]

    async def aclose(self) -> None:
        """Nothing is held open between calls."""

    def _perform(self, act: Act) -> Performed:
        with self._transaction() as books:
            row = _find(books, act)
            if row is None:
                return Done(reference=_enter(books, act))
            if row["state"] != "standing":
                return Refused(code="cancelled")
            if row["intent_digest"] != act.intent_digest:
                return Refused(code="other_parcel_for_this_key")
            return Done(reference=row["reference"])

    def _lookup(self, act: Act) -> Found:
        with self._transaction() as books:
            row = _find(books, act)
        if row is None:
            return Absent()
        return Done(reference=row["reference"]) if row["state"] == "standing" else Undone(reference=row["reference"])

    def _undo(self, undo: Act, of: Act) -> Performed:
        with self._transaction() as books:
            shipped, cancelled = _find(books, of), _find(books, undo)
            if shipped is None:
                _enter(books, of, "void")
            books.execute("UPDATE acts SET state = 'undone' WHERE key = ? AND state = 'standing'", (of.key,))
            nothing_to_undo = shipped is None or shipped["state"] == "void"
            reference = cancelled["reference"] if cancelled else _enter(books, undo)
            return Done(reference=reference, amount_minor=0 if nothing_to_undo else None)

    def _listed(self, since: datetime) -> tuple[Listed, ...]:
        with self._transaction() as books:
            query = "SELECT * FROM acts WHERE at >= ? AND state <> 'void' ORDER BY at, rowid"
            rows = books.execute(query, (_text(since),)).fetchall()
        return tuple(
            Listed(
                key=row["key"],
                operation=row["operation"],
                reference=row["reference"],
                at=datetime.fromisoformat(row["at"]),
            )
            for row in rows
        )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._database, isolation_level=None, timeout=5)) as books:
            books.row_factory = sqlite3.Row
            books.execute("BEGIN IMMEDIATE")
            try:
                yield books
            except BaseException:
                books.execute("ROLLBACK")
                raise
            books.execute("COMMIT")


async def _answer(ask: Callable[..., AnyAnswer], *acts: Act) -> AnyAnswer | Unknown:
    """What `ask` comes to; a file that cannot be used now leaves open what happened, which is an answer too."""
    try:
        return await asyncio.to_thread(ask, *acts)
    except sqlite3.OperationalError as error:
        return Unknown(detail=error.sqlite_errorname)


def _find(books: sqlite3.Connection, act: Act) -> sqlite3.Row | None:
    row: sqlite3.Row | None = books.execute("SELECT * FROM acts WHERE key = ?", (act.key,)).fetchone()
    return row


def _enter(books: sqlite3.Connection, act: Act, state: str = "standing") -> str:
    reference = f"{act.operation}-{uuid4().hex[:12]}"
    books.execute(
        "INSERT INTO acts (key, operation, intent_digest, reference, at, state) VALUES (?, ?, ?, ?, ?, ?)",
        (act.key, act.operation, act.intent_digest, reference, _text(datetime.now(UTC)), state),
    )
    return reference


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds")
