"""Brings a PostgreSQL ledger to the latest schema, through alembic; nothing else needs alembic or SQLAlchemy."""

from importlib.resources import as_file, files

import psycopg
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from orderflow.ledger.postgres_database import PostgresDatabase
from orderflow.ledger.schema import LATEST


def upgrade(database: PostgresDatabase) -> None:
    """Run every revision that `database` does not have yet. Another upgrade at the same time is waited for.

    Raises:
        InvalidSettings: for what somebody has to put right first.
        LedgerUnavailable: when it cannot be reached now.
    """
    engine = create_engine("postgresql+psycopg://", creator=lambda: _connect(database), poolclass=NullPool)
    try:
        with as_file(files("orderflow.ledger") / "migrations") as folder, engine.connect() as connection:
            config = Config(attributes={"connection": connection})
            config.set_main_option("script_location", str(folder).replace("%", "%%"))
            command.upgrade(config, LATEST)
    except DBAPIError as error:
        raise database.explained(error.orig or error, opening=True) from error.orig


def _connect(database: PostgresDatabase) -> "psycopg.Connection[tuple[object, ...]]":
    return psycopg.connect(database.conninfo_for_upgrade)
