"""The databases that are measured, in a folder that goes with them; both survive a power cut, as in production."""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil

from orderflow.backends import open_ledger
from orderflow.ledger import EffectLedger
from orderflow.settings import Settings
from tests.support.postgres import Postgres, running_postgres

SYNCS = 200


@dataclass(frozen=True)
class Databases:
    """A scratch folder, and a PostgreSQL server with a migrated database."""

    folder: Path
    postgres: Postgres

    def urls(self, name: str) -> dict[str, str]:
        """The addresses of two ledgers by what their databases are called; `name` tells SQLite files apart."""
        return {"SQLite": f"sqlite:///{self.folder / name}.db", "PostgreSQL": self.postgres.url()}


@contextmanager
def durable_databases() -> Iterator[Databases]:
    """Start PostgreSQL, with fsync on, and take both down afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="orderflow-bench-"))
    try:
        with running_postgres(durable=True) as postgres:
            yield Databases(folder, postgres)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def opened(url: str) -> EffectLedger:
    """Open the ledger at `url` as a worker does, with the settings' defaults."""
    return await open_ledger(Settings(ledger_url=url))


def milliseconds_of_a_sync(folder: Path) -> float:
    """The median time this disk takes to make one page durable."""
    taken = []
    file = folder / "sync"
    descriptor = os.open(file, os.O_CREAT | os.O_WRONLY)
    try:
        for _ in range(SYNCS):
            before = time.perf_counter()
            os.pwrite(descriptor, os.urandom(4096), 0)
            os.fsync(descriptor)
            taken.append(time.perf_counter() - before)
    finally:
        os.close(descriptor)
        file.unlink()
    return 1000 * median(taken)


def cpu_seconds(pid: int, *, with_children: bool = False) -> float:
    """The CPU that a process has used up to now; `with_children`, also those of its children that still live."""
    process = psutil.Process(pid)
    counted = [process, *(process.children(recursive=True) if with_children else ())]
    return sum(sum(one.cpu_times()[:2]) for one in counted)
