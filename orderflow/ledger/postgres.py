"""The ledger on PostgreSQL: one database for any number of workers on any number of hosts."""

import asyncio
import random
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Self, TypeVar

import psycopg
from psycopg.errors import DeadlockDetected, SerializationFailure, UniqueViolation
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool

from orderflow.domain.errors import LedgerUnavailable
from orderflow.ledger import INGRESS, WORKER, Role
from orderflow.ledger.postgres_database import PostgresDatabase
from orderflow.ledger.schema import LATEST, require_latest
from orderflow.ledger.sql_ledger import SqlLedger
from orderflow.ledger.statements import FILES, POSTGRES, load_statements
from orderflow.ledger.transactions import Row, Transaction

T = TypeVar("T")
Connection = psycopg.AsyncConnection[DictRow]

_WRITES_NOTHING: Final[Mapping[Role, str]] = {WORKER: "write_no_effect", INGRESS: "write_no_event"}
_AGAIN: Final = (SerializationFailure, DeadlockDetected, UniqueViolation)
"""What a transaction is run again for. A key that another wrote meanwhile is found by it then."""

_TRIES: Final = 5
_PAUSE = 0.02  # seconds, doubled for each try
_CONNECTION_WITHIN = 5.0  # seconds
_WITHIN = 15.0  # seconds for one call, with all its tries


def _load() -> dict[str, str]:
    shared = {name: statement for file in FILES for name, statement in load_statements(file, POSTGRES).items()}
    own = {
        name: re.sub(r"(\w+)\(\)", lambda named: shared.get(named[1], named[0]), statement)
        for name, statement in load_statements("sql/postgres.sql", POSTGRES).items()
    }
    return {name: re.sub(r":(\w+)", r"%(\1)s", statement) for name, statement in (shared | own).items()}


STATEMENTS: Final = _load()
"""By name, with the driver's placeholders: what is sent, which the plans in `bench` are about."""


class _Lost(Exception):
    """The connection broke before COMMIT was sent, so nothing of the transaction was kept.

    A statement that commits itself may have been kept. Run again, a claim then finds itself held until its lease ends,
    and a settlement finds its claim gone: both are tried again by whoever asked, and what was written is adopted.
    """


class PostgresLedger(SqlLedger):
    """A `Ledger` in a PostgreSQL database. At most `connections` transactions run at once, each a short one."""

    def __init__(self, database: PostgresDatabase, pool: AsyncConnectionPool[Connection]) -> None:
        self._database = database
        self._pool = pool
        self._running = 0
        self._at_rest = asyncio.Event()
        self._at_rest.set()
        self._closed = False

    @classmethod
    async def open(cls, url: str, *, password: str | None = None, connections: int = 8) -> Self:
        """Open the ledger at a `postgresql://` address; `password` counts more than one that stands in it.

        Raises:
            InvalidSettings: if it cannot be used as it is: address, user, password, database, or its schema, which only
                `orderflow db upgrade` changes.
            LedgerUnavailable: if it cannot be reached now.
        """
        database = PostgresDatabase.at(url, password)
        require_latest(await database.schema(), f"the {database.where}")
        pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
            database.conninfo,
            kwargs={"autocommit": True, "row_factory": dict_row},
            min_size=1,
            max_size=connections,
            open=False,
            name="orderflow-ledger",
            timeout=_CONNECTION_WITHIN,
            reconnect_timeout=_CONNECTION_WITHIN,
        )
        await pool.open()
        return cls(database, pool)

    async def check(self, role: Role = WORKER) -> str:
        """Say what and where this ledger is, after writing to it.

        Raises `InvalidSettings` for a user who lacks what `role` needs.
        """
        version = await self._call(lambda connection: self._write_nothing_new(connection, role), opening=True)
        return f"{self._database.where}, server {version // 10000}.{version % 10000}, schema {LATEST}"

    async def aclose(self) -> None:
        """Finish what runs and close the connections; a second call does nothing."""
        self._closed = True
        await self._at_rest.wait()
        await self._pool.close()

    async def _read(self, transaction: Callable[[], Transaction[T]]) -> T:
        """Run one reading statement, which needs no transaction around it."""
        return await self._call(lambda connection: _drive(connection, transaction()))

    async def _write(self, transaction: Callable[[], Transaction[T]]) -> T:
        return await self._call(lambda connection: _transact(connection, transaction))

    async def _write_once(self, transaction: Callable[[], Transaction[T]]) -> T:
        """Let each statement commit itself: one round trip, where BEGIN and COMMIT would make it three."""
        return await self._call(lambda connection: _drive(connection, transaction()))

    async def _call(self, work: Callable[[Connection], Awaitable[T]], *, opening: bool = False) -> T:
        if self._closed:
            raise LedgerUnavailable(f"the {self._database.where} is closed")
        with self._database.translated(opening=opening), self._counted():
            async with asyncio.timeout(_WITHIN):
                return await self._patiently(work)

    async def _patiently(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Do `work`, all of it again when the database asks for that (D05) or had closed the connection before."""
        for tried in range(_TRIES - 1):
            try:
                return await self._once(work)
            except _AGAIN:
                await asyncio.sleep(random.uniform(0, _PAUSE * 2**tried))  # noqa: S311 (jitter, no secret)
            except _Lost:  # as after a restart of the server: then the others are lost too
                await self._pool.check()
        try:
            return await self._once(work)
        except _Lost as lost:
            raise lost.__cause__ or lost from None  # the driver's own error

    async def _once(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        async with self._pool.connection() as connection:
            return await work(connection)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self._running += 1
        self._at_rest.clear()
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                self._at_rest.set()

    async def _write_nothing_new(self, connection: Connection, role: Role) -> int:
        (access,) = await _rows(connection, "missing_grants", {"role": role})
        if access["missing"]:
            raise self._database.lacking(access["who"], access["missing"], role)
        await _rows(connection, _WRITES_NOTHING[role])
        return connection.info.server_version


async def _transact(connection: Connection, transaction: Callable[[], Transaction[T]]) -> T:
    await _rows(connection, "begin")
    result = await _drive(connection, transaction())
    await connection.commit()  # if the connection breaks now, nobody knows: that is not tried again here
    return result


async def _drive(connection: Connection, transaction: Transaction[T]) -> T:
    try:
        name, parameters = next(transaction)
        while True:
            name, parameters = transaction.send(await _rows(connection, name, parameters))
    except StopIteration as stop:
        result: T = stop.value
        return result


async def _rows(connection: Connection, statement: str, parameters: Any = None) -> list[Row]:
    try:
        cursor = await connection.execute(STATEMENTS[statement], parameters)
        return [*await cursor.fetchall()] if cursor.description else []
    except psycopg.Error as error:
        if connection.broken:
            raise _Lost from error
        raise
