"""Which database the ledger is in: the one that the settings name; opens it, and looks at its schema."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orderflow.domain.errors import InvalidSettings
from orderflow.ledger import WORKER, Role
from orderflow.ledger.mounts import network_file_system
from orderflow.ledger.review import Ledger
from orderflow.ledger.schema import LATEST, require_known
from orderflow.ledger.sqlite import SqliteLedger, read_schema
from orderflow.settings import PostgresTarget, Settings, SqliteTarget

if TYPE_CHECKING:
    from orderflow.ledger.postgres_database import PostgresDatabase

log = logging.getLogger(__name__)

WHERE_IT_IS = "run this where the worker runs, or set ORDERFLOW_LEDGER_URL"
"""What to do where no ledger is."""


@dataclass(frozen=True)
class Schema:
    """The schema of a ledger, `None` before its first, and the one that this orderflow works with."""

    ledger: str
    found: str | None
    needed: str = LATEST


async def open_ledger(settings: Settings) -> Ledger:
    """Open the ledger that the settings name. An SQLite file is made or upgraded; PostgreSQL has to be ready.

    Raises:
        InvalidSettings: when it cannot be used as it is; says what to do or to run.
        LedgerUnavailable: when it cannot be reached now.
    """
    match settings.ledger:
        case SqliteTarget(path):
            return await SqliteLedger.open(path)
        case PostgresTarget(url, password, connections):
            with _the_extra():
                from orderflow.ledger.postgres import PostgresLedger
            return await PostgresLedger.open(url, password=password, connections=connections)


async def open_working_ledger(
    settings: Settings, opened: AsyncExitStack, say: Callable[[str], None], role: Role = WORKER
) -> Ledger:
    """Open the ledger that the settings name and prove that `role` can work with it; `opened` closes it.

    Raises `InvalidSettings` and `LedgerUnavailable` as `open_ledger` does.
    """
    if doubt := doubts(settings):
        log.warning(doubt)
    ledger = await open_ledger(settings)
    opened.push_async_callback(ledger.aclose)
    say(await ledger.check(role))
    return ledger


async def open_existing_ledger(settings: Settings) -> Ledger:
    """Open the ledger that the settings name to look at it: an SQLite file is not made, in whatever folder this runs.

    Raises as `open_ledger` does.
    """
    if (path := missing_ledger(settings)) is not None:
        raise InvalidSettings(f"there is no ledger at {path}; {WHERE_IT_IS}")
    return await open_ledger(settings)


def missing_ledger(settings: Settings) -> Path | None:
    """Where the SQLite file would be that no worker has made yet; `None` if there is one, or on PostgreSQL."""
    target = settings.ledger
    return target.path if isinstance(target, SqliteTarget) and not target.path.exists() else None


def doubts(settings: Settings) -> str | None:
    """What speaks against the place of the ledger: an SQLite file on another machine's file system (D02)."""
    if not isinstance(settings.ledger, SqliteTarget):
        return None
    path = settings.ledger.path
    if (kind := network_file_system(path)) is None:
        return None
    return (
        f"the ledger {path} is on a {kind} file system, where SQLite cannot keep two processes apart: move it to"
        " a local disk, or use PostgreSQL (ORDERFLOW_LEDGER_URL)"
    )


async def read_ledger_schema(settings: Settings) -> Schema:
    """Look which schema the ledger has; changes nothing, makes nothing. Raises as `open_ledger` does."""
    match settings.ledger:
        case SqliteTarget(path):
            return Schema(f"SQLite file {path}", read_schema(path))
        case PostgresTarget() as target:
            database = _database(target)
            return Schema(database.where, await database.schema())


async def upgrade_ledger(settings: Settings) -> tuple[Schema, Schema]:
    """Bring the ledger to the latest schema, making it if need be; gives its schema before and after.

    Raises as `open_ledger` does.
    """
    before = await read_ledger_schema(settings)
    require_known(before.found, f"the {before.ledger}")
    match settings.ledger:
        case SqliteTarget(path):
            await (await SqliteLedger.open(path)).aclose()
        case PostgresTarget() as target:
            await asyncio.to_thread(_upgrade, _database(target))
    return before, await read_ledger_schema(settings)


def _database(target: PostgresTarget) -> "PostgresDatabase":
    with _the_extra():
        from orderflow.ledger.postgres_database import PostgresDatabase
    return PostgresDatabase.at(target.url, target.password)


def _upgrade(database: "PostgresDatabase") -> None:
    with _the_extra():
        from orderflow.ledger.upgrade import upgrade
    upgrade(database)


@contextmanager
def _the_extra() -> Iterator[None]:
    """Around an import of psycopg or alembic, which an installation without PostgreSQL does not have."""
    try:
        yield
    except ImportError as error:
        raise InvalidSettings(
            f"ORDERFLOW_LEDGER_URL names a PostgreSQL database, and {error.name or 'a library of psycopg'} is not"
            " installed: pip install 'orderflow[postgres]', or use an SQLite file"
        ) from None
