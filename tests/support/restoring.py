"""Backup and restore as docs/ledger-operations.md says: its own commands are run, word for word."""

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

from tests.architecture.product import ROOT
from tests.support.command_line import PROGRAM, Ran
from tests.support.ledger import LedgerDatabase, sqlite_database
from tests.support.postgres import Postgres
from tests.support.processes import bare_environment, run

PAGE: Final = ROOT / "docs" / "ledger-operations.md"
RESTORED: Final = "ledger_restored"
BACKED_UP: Final = "ledger_backed_up"


def documented(heading: str, language: str = "sh") -> list[str]:
    """The blocks of `language` below a heading of the page, up to the next heading."""
    text = PAGE.read_text("utf-8").partition(f"\n{heading}\n")[2]
    below = re.split(r"^##+ ", text, maxsplit=1, flags=re.MULTILINE)[0]
    return re.findall(rf"^```{language}\n(.*?)^```$", below, re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Home:
    """Where an administrator sits: a folder, and the environment in which the commands of the page are typed.

    `database` is the ledger that is backed up; `name` is that of its kind on the page.
    """

    folder: Path
    database: LedgerDatabase
    name: str
    environment: Mapping[str, str]

    def at(self, url: str, restored_url: str) -> Self:
        """The same administrator, whose commands go to other databases."""
        return replace(
            self, environment={**self.environment, "ORDERFLOW_LEDGER_URL": url, "RESTORED_URL": restored_url}
        )

    async def follow(self, heading: str) -> Ran:
        """Type what stands below `heading`; it stops at the first command that fails."""
        (block,) = documented(heading)
        return await run("sh", "-euc", block, folder=self.folder, environment=self.environment)

    async def back_up(self) -> None:
        """Back the ledger up, as it is now."""
        ended = await self.follow(f"### Backing up {self.name}")
        assert (ended.code, ended.err) == (0, "")

    async def restored(self) -> LedgerDatabase:
        """Close every ledger on the database, restore the backup, and give the database with the restored one."""
        await self.database.aclose()
        ended = await self.follow(f"### Restoring {self.name}")
        assert (ended.code, ended.err) == (0, "")
        if url := self.environment.get("RESTORED_URL"):
            return LedgerDatabase(url)
        return LedgerDatabase(self.database.url)


def sqlite_home(folder: Path) -> Home:
    """The embedded default: the ledger lies in the state folder."""
    (folder / ".orderflow").mkdir()
    return Home(folder, sqlite_database(folder / ".orderflow" / "ledger.db"), "an SQLite ledger", _typed(folder))


def postgres_home(folder: Path, server: Postgres) -> Home:
    """A database of its own, which is not upgraded yet."""
    url = server.new_database(BACKED_UP)
    server.run(f"DROP DATABASE IF EXISTS {RESTORED} WITH (FORCE)", database="postgres")
    environment = _typed(folder, server.programs)
    home = Home(folder, LedgerDatabase(url), "a PostgreSQL ledger", environment)
    return home.at(url, server.url(RESTORED))


def _typed(folder: Path, *programs: Path) -> dict[str, str]:
    """An environment whose PATH holds `orderflow`, also where no script of that name is installed."""
    commands = folder / "bin"
    commands.mkdir()
    (commands / "orderflow").write_text(f'#!/bin/sh\nexec {shlex.join(PROGRAM)} "$@"\n')
    (commands / "orderflow").chmod(0o755)
    environment = bare_environment()
    return environment | {"PATH": os.pathsep.join([*map(str, (commands, *programs)), environment["PATH"]])}
