"""The embedded ledger: one SQLite file, for any number of processes of one host."""

import asyncio
import random
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

from orderflow.domain.errors import InvalidSettings, LedgerUnavailable
from orderflow.ledger import WORKER, Role
from orderflow.ledger.schema import LATEST, REVISIONS, require_known, statements
from orderflow.ledger.sql_ledger import SqlLedger
from orderflow.ledger.statements import FILES, SQLITE, load_statements
from orderflow.ledger.transactions import Row, Transaction

T = TypeVar("T")

_STATEMENTS = {name: statement for file in FILES for name, statement in load_statements(file, SQLITE).items()}

_FOLLOWED_BY = {"claim_effect": "begin_attempt", "receive_event": "keep_nonce"}
"""What belongs to a statement that gives a row: it is written with the columns of that row."""

_BUSY_SECONDS = 3.0  # SQLite's own wait for another writer; BEGIN IMMEDIATE makes it apply to all of a transaction
_TRIES = 4
_PRAGMAS = ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", "PRAGMA foreign_keys = ON")

_LOCKED = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_ADVICE = {
    sqlite3.SQLITE_NOTADB: "it is no SQLite database; name another file",
    sqlite3.SQLITE_CORRUPT: "it is damaged; restore a backup or name another file",
    sqlite3.SQLITE_CANTOPEN: "name a file in a folder where this user may write",
    sqlite3.SQLITE_READONLY: "let this user write to the file and its folder",
    sqlite3.SQLITE_PERM: "let this user write to the file and its folder",
}


@dataclass(frozen=True, eq=False)
class _Waiting:
    """A transaction that has not run yet, and who is to be told what came of it."""

    transaction: Callable[[], Transaction[Any]]
    told: asyncio.Future[Any]


@dataclass(frozen=True)
class _Outcome:
    """What a transaction gave, or what it raised."""

    result: Any = None
    error: Exception | None = None


class SqliteLedger(SqlLedger):
    """A `Ledger` in the SQLite file `path`. All SQL runs on one thread of its own, in order.

    Group commit: what is asked for while the disk is busy waits, and is then written with one COMMIT, which is one
    fsync for all of it. Each transaction stands in a savepoint of its own, and nobody is told before the COMMIT.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, thread: ThreadPoolExecutor) -> None:
        self._path = path
        self._connection = connection
        self._thread = thread
        self._waiting: deque[_Waiting] = deque()
        self._will_commit = False
        self._closed = False

    @classmethod
    async def open(cls, path: Path) -> Self:
        """Open the ledger in `path`; the file and its folder are made when they are missing, an older schema upgraded.

        Raises:
            InvalidSettings: if `path` cannot hold a ledger, or holds something else or a newer ledger.
            LedgerUnavailable: if the database cannot be used now.
        """
        thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="orderflow-ledger")
        try:
            connection = await asyncio.get_running_loop().run_in_executor(thread, partial(_connect, path))
        except BaseException:  # a cancellation too: no thread is left behind
            thread.shutdown(wait=False)
            raise
        return cls(path, connection, thread)

    async def check(self, role: Role = WORKER) -> str:
        """Say what and where this ledger is, after writing to it."""
        await self._on_thread(partial(_in_transaction, self._connection, self._write_nothing_new))
        return f"SQLite {sqlite3.sqlite_version} ledger in {self._path}, schema {LATEST}"

    async def aclose(self) -> None:
        """Finish what runs and close the database; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        await asyncio.get_running_loop().run_in_executor(self._thread, self._connection.close)
        self._thread.shutdown()

    async def _read(self, transaction: Callable[[], Transaction[T]]) -> T:
        return await self._on_thread(lambda: self._drive(transaction()))

    async def _write(self, transaction: Callable[[], Transaction[T]]) -> T:
        with self._usable():
            loop = asyncio.get_running_loop()
            waiting = _Waiting(transaction, loop.create_future())
            self._waiting.append(waiting)
            if not self._will_commit:
                self._will_commit = True
                self._thread.submit(self._commit_waiting, loop)
            result: T = await waiting.told
            return result

    async def _on_thread(self, work: Callable[[], T]) -> T:
        with self._usable():
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    @contextmanager
    def _usable(self) -> Iterator[None]:
        if self._closed:
            raise LedgerUnavailable(f"the ledger {self._path} is closed")
        try:
            yield
        except sqlite3.Error as error:
            raise LedgerUnavailable(f"the ledger {self._path} cannot be used now: {error}") from error

    def _commit_waiting(self, loop: asyncio.AbstractEventLoop) -> None:
        """On the thread: run all that waits in one transaction, and tell each what came of its own."""
        self._will_commit = False  # before looking: what is queued from here on is seen now, or gets a turn of its own
        queued = [self._waiting.popleft() for _ in range(len(self._waiting))]
        group = [waiting for waiting in queued if not waiting.told.cancelled()]
        if not group:
            return
        try:
            outcomes = _in_transaction(self._connection, partial(self._run_each, group))
        except Exception as error:  # noqa: BLE001 - not ours to judge: it is raised where the group is awaited
            outcomes = [_Outcome(error=error)] * len(group)
        loop.call_soon_threadsafe(_tell, group, outcomes)

    def _run_each(self, group: Sequence[_Waiting]) -> list[_Outcome]:
        return [self._run_apart(waiting.transaction) for waiting in group]

    def _run_apart(self, transaction: Callable[[], Transaction[Any]]) -> _Outcome:
        """Run one of a group, so that it takes no other with it when it raises."""
        self._connection.execute("SAVEPOINT one")
        try:
            outcome = _Outcome(self._drive(transaction()))
        except Exception as error:
            if not self._connection.in_transaction:
                raise  # SQLite took back all of the group, as it may when the disk is full
            self._connection.execute("ROLLBACK TO one")
            outcome = _Outcome(error=error)
        self._connection.execute("RELEASE one")
        return outcome

    def _drive(self, transaction: Transaction[T]) -> T:
        try:
            name, parameters = next(transaction)
            while True:
                name, parameters = transaction.send(self._run(name, parameters))
        except StopIteration as stop:
            result: T = stop.value
            return result

    def _run(self, name: str, parameters: Mapping[str, object]) -> list[Row]:
        """Run a statement with what belongs to it: SQLite writes one table in one statement."""
        if name == "settle_effect":
            self._rows(_STATEMENTS["end_attempt"], parameters)
        rows = self._rows(_STATEMENTS[name], parameters)
        if name in _FOLLOWED_BY and rows:
            self._rows(_STATEMENTS[_FOLLOWED_BY[name]], {**parameters, **rows[0]})
        return rows

    def _rows(self, statement: str, parameters: Any) -> list[Row]:
        return [dict(row) for row in self._connection.execute(statement, parameters).fetchall()]

    def _write_nothing_new(self) -> None:
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        self._connection.execute(f"PRAGMA user_version = {version}")


def read_schema(path: Path) -> str | None:
    """Look which schema the ledger in `path` has; `None` when there is no file, or none that was used.

    Raises `InvalidSettings` and `LedgerUnavailable` as `SqliteLedger.open` does; nothing is made or changed.
    """
    if not path.exists():
        return None
    with _translated(path), closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        return _schema(connection)


def _tell(group: Sequence[_Waiting], outcomes: Sequence[_Outcome]) -> None:
    for waiting, outcome in zip(group, outcomes, strict=True):
        if waiting.told.cancelled():
            continue
        if outcome.error is None:
            waiting.told.set_result(outcome.result)
        else:
            waiting.told.set_exception(outcome.error)


def _in_transaction(connection: sqlite3.Connection, work: Callable[[], T]) -> T:
    """Run `work` in a transaction that holds the write lock from its start; all of it again when that lock is taken."""
    return _patiently(partial(_transact, connection, work))


def _transact(connection: sqlite3.Connection, work: Callable[[], T]) -> T:
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = work()
        connection.execute("COMMIT")
    except BaseException:  # whatever ends it, nothing of it is kept
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return result


def _patiently(work: Callable[[], T]) -> T:
    for _ in range(_TRIES - 1):
        try:
            return work()
        except sqlite3.OperationalError as error:
            if _code(error) not in _LOCKED:
                raise
            time.sleep(random.uniform(0, 0.1))  # noqa: S311 (jitter, no secret)
    return work()


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF  # the primary code of an extended one


def _connect(path: Path) -> sqlite3.Connection:
    if path.is_dir():
        raise InvalidSettings(f"the ledger {path} is a folder; name a file in it")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(path, isolation_level=None, timeout=_BUSY_SECONDS)
    except (OSError, sqlite3.Error) as error:
        raise InvalidSettings(
            f"the ledger {path} cannot be opened: {error}; name a file in a folder of yours"
        ) from error
    try:
        connection.row_factory = sqlite3.Row
        _prepare(path, connection)
    except BaseException:  # whatever is wrong with it, the file is let go
        connection.close()
        raise
    return connection


def _prepare(path: Path, connection: sqlite3.Connection) -> None:
    with _translated(path):
        _in_transaction(connection, partial(_upgrade, path, connection))
        for pragma in _PRAGMAS:
            _patiently(partial(connection.execute, pragma))


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        if advice := _ADVICE.get(_code(error)):
            raise InvalidSettings(f"the ledger {path} cannot be used: {error}; {advice}") from error
        raise LedgerUnavailable(f"the ledger {path} cannot be used now: {error}") from error


def _upgrade(path: Path, connection: sqlite3.Connection) -> None:
    """Run what is missing, in one transaction; `user_version` is the number of the last revision."""
    found = _schema(connection)
    require_known(found, f"the ledger {path}")
    if found is None and connection.execute("SELECT 1 FROM sqlite_master").fetchone():
        raise InvalidSettings(f"the ledger {path} holds the tables of something else; name another file")
    for revision in REVISIONS[int(found or 0) :]:
        for statement in statements(revision, SQLITE):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {int(revision)}")


def _schema(connection: sqlite3.Connection) -> str | None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return f"{version:04}" if version else None
