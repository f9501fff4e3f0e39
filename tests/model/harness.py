"""Runs the model on a database: opens the workers' ledgers, makes the machine of a run, and replays a failure."""

import ast
import asyncio
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import hypothesis
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.machine import EffectMachine, Harness
from tests.model.rows import Rows
from tests.support.ledger import LedgerDatabase, sqlite_database
from tests.support.postgres import Postgres

WORKERS: Final = 3
STEPS: Final = 16

_EXAMPLES = "ORDERFLOW_TEST_MODEL_EXAMPLES"
_REPLAY = "ORDERFLOW_TEST_MODEL_REPLAY"


@contextmanager
def on_sqlite(folder: Path) -> Iterator[Harness]:
    """Workers on one SQLite file, each with a connection of its own."""
    path = folder / "ledger.db"
    with _open(sqlite_database(path)) as (loop, ledgers), closing(sqlite3.connect(path, isolation_level=None)) as own:
        yield Harness(loop, ledgers, Rows(lambda sql: own.execute(sql).fetchall()))


@contextmanager
def on_postgres(server: Postgres) -> Iterator[Harness]:
    """Workers on one PostgreSQL database."""
    server.emptied()

    def run(sql: str) -> list[tuple[Any, ...]]:
        cursor = own.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []

    with _open(LedgerDatabase(server.url())) as (loop, ledgers), server.connect() as own:
        yield Harness(loop, ledgers, Rows(run))


@contextmanager
def _open(database: LedgerDatabase) -> Iterator[tuple[asyncio.AbstractEventLoop, Any]]:
    loop = asyncio.new_event_loop()
    try:
        ledgers = [loop.run_until_complete(database.open(ledger_connections=1)) for _ in range(WORKERS)]
        yield loop, ledgers
        loop.run_until_complete(database.aclose())
    finally:
        loop.close()


def examples(default: int) -> int:
    """How many examples to run: more where the environment says so."""
    return int(os.environ.get(_EXAMPLES, default))


def explore(harness: Harness, **limits: Any) -> None:
    """Run examples of the model on `harness`; `limits` are hypothesis's settings. A failure says how to replay it."""

    class Model(EffectMachine):
        pass

    Model.harness = harness
    machine: type[EffectMachine] = Model
    if blob := os.environ.get(_REPLAY):
        machine = hypothesis.reproduce_failure(hypothesis.__version__, ast.literal_eval(f"b{blob}"))(machine)
    chosen = settings(
        **{
            "deadline": None,
            "derandomize": _EXAMPLES not in os.environ,
            "database": None,
            "print_blob": True,
            "stateful_step_count": STEPS,
            "suppress_health_check": list(HealthCheck),
            **limits,
        }
    )
    run_state_machine_as_test(machine, settings=chosen)
