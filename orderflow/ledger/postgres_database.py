"""A PostgreSQL database as one connects to it: address, session settings, and what an error of its driver means."""

import asyncio
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Self

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import PoolTimeout

from orderflow.domain.errors import InvalidSettings, LedgerUnavailable, OrderflowError
from orderflow.ledger import INGRESS, WORKER, Role
from orderflow.ledger.schema import ROLES, UPGRADE
from orderflow.ledger.statements import POSTGRES, load_statements

_CONNECTION: Final = {
    "application_name": "orderflow",
    "connect_timeout": "5",
    # After a failover the old primary is a copy that is read only.
    "target_session_attrs": "read-write",
    # A server that vanished without a word is noticed within half a minute.
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "4",
    "tcp_user_timeout": "30000",
}

_WITHIN: Final = 15.0  # seconds, for several hosts and what is asked of the one that answers

# Milliseconds. A worker that is stopped within a transaction must not hold its locks for longer than a few seconds.
# Read committed for statements that commit themselves too, whatever the database's default is (see `begin`).
_WORK: Final = (
    "-c statement_timeout=5000 -c idle_in_transaction_session_timeout=5000"
    r" -c default_transaction_isolation=read\ committed -c default_transaction_read_only=off"
)
_UPGRADE: Final = "-c lock_timeout=10000"

_ADVICE: Final = (
    ("password authentication failed", "check the user in ORDERFLOW_LEDGER_URL and ORDERFLOW_LEDGER_PASSWORD"),
    ("no password supplied", "set ORDERFLOW_LEDGER_PASSWORD"),
    (r'role ".*" does not exist', "create that user, or name another in ORDERFLOW_LEDGER_URL"),
    (r'database ".*" does not exist', "create that database, or name another in ORDERFLOW_LEDGER_URL"),
    ("no pg_hba.conf entry", "let this user connect from here (pg_hba.conf), or add sslmode=require to the URL"),
    (
        "permission denied to create role",
        "an administrator makes the roles once for the server: "
        + " ".join(f"CREATE ROLE {role};" for role in ROLES)
        + f" then run `{UPGRADE}` again",
    ),
    ("permission denied", "grant this user what it needs, or name another in ORDERFLOW_LEDGER_URL"),
    (r'relation ".*" already exists', "it holds the tables of something else; name another in ORDERFLOW_LEDGER_URL"),
    ("invalid .* value", "correct ORDERFLOW_LEDGER_URL"),
    ("ProactorEventLoop", "on Windows the ledger is an SQLite file"),
)

_FOR: Final[Mapping[Role, str]] = {WORKER: "a worker", INGRESS: "the door"}

_STATEMENTS = load_statements("sql/postgres.sql", POSTGRES)


@dataclass(frozen=True)
class PostgresDatabase:
    """Where a ledger is. `where` is for people; `parameters` are libpq's and may hold a password."""

    where: str
    parameters: Mapping[str, str] = field(repr=False)

    @classmethod
    def at(cls, url: str, password: str | None = None) -> Self:
        """Take a `postgresql://` address apart; `password` counts more than one that stands in it.

        Raises `InvalidSettings` without repeating any of it: the driver's own message can quote the password.
        """
        try:
            given = {key: str(value) for key, value in conninfo_to_dict(url).items() if value is not None}
        except psycopg.Error:
            raise InvalidSettings(
                "ORDERFLOW_LEDGER_URL is no address of a database: use postgresql://user@host:5432/database,"
                " with % and @ in a name as %25 and %40"
            ) from None
        name = given.get("dbname") or given.get("user") or "of this user"
        host = given.get("host") or given.get("hostaddr") or "this machine"
        port = f":{given['port']}" if given.get("port") else ""
        secret = {"password": password} if password else {}
        return cls(f"PostgreSQL database {name} at {host}{port}", {**_CONNECTION, **given, **secret})

    @property
    def conninfo(self) -> str:
        """How the ledger connects."""
        return self._conninfo(_WORK)

    @property
    def conninfo_for_upgrade(self) -> str:
        """How migrations connect: they may take long, but queue for no lock behind which everything else would wait."""
        return self._conninfo(_UPGRADE)

    async def schema(self) -> str | None:
        """Look which schema it has; `None` before its first. Raises as `translated` says."""
        with self.translated(opening=True):
            async with asyncio.timeout(_WITHIN):
                async with await psycopg.AsyncConnection.connect(self.conninfo, autocommit=True) as connection:
                    who, may_look = await _row(connection, "get_access")
                    if may_look is None:
                        return None
                    if not may_look:
                        raise self.lacking(who, "SELECT on ledger_schema")
                    revision: str | None = (await _row(connection, "get_schema"))[0]
                    return revision

    @contextmanager
    def translated(self, *, opening: bool = False) -> Iterator[None]:
        """Let errors of the driver out as our own, which never repeat the password.

        Raises:
            InvalidSettings: when `opening`, for what somebody has to put right first.
            LedgerUnavailable: for everything else; a ledger in use may work again without anybody's doing.
        """
        try:
            yield
        except (psycopg.Error, TimeoutError) as error:
            raise self.explained(error, opening=opening) from error

    def explained(self, error: BaseException, *, opening: bool) -> OrderflowError:
        """Say what `error` means; see `translated`."""
        said = _said(error)
        if not opening:
            role = "; this takes another role of the ledger's" if said.startswith("permission denied") else ""
            return LedgerUnavailable(f"the {self.where} cannot be used now: {said}{role}")
        for pattern, advice in _ADVICE:
            if re.search(pattern, said):
                return InvalidSettings(f"the {self.where} cannot be used: {said}; {advice}")
        return LedgerUnavailable(
            f"the {self.where} cannot be used now: {said}; check ORDERFLOW_LEDGER_URL, and that the server runs"
        )

    def lacking(self, who: str, missing: str, role: Role = WORKER) -> InvalidSettings:
        """What to say to the user `who`, who lacks the privileges `missing` of `role`."""
        return InvalidSettings(
            f'the {self.where} cannot be used: {who} lacks {missing}; for {_FOR[role]}: GRANT {role} TO "{who}"'
            " (docs/ledger-operations.md has the roles of others)"
        )

    def _conninfo(self, options: str) -> str:
        own = self.parameters.get("options")
        return make_conninfo("", **{**self.parameters, "options": f"{options} {own}" if own else options})


async def _row(connection: "psycopg.AsyncConnection[tuple[Any, ...]]", statement: str) -> tuple[Any, ...]:
    row = await (await connection.execute(_STATEMENTS[statement])).fetchone()
    return row or (None, None)


def _said(error: BaseException) -> str:
    """The first line of the driver's message, without the address, which `where` gives already."""
    if isinstance(error, TimeoutError | PoolTimeout):
        return "it does not answer in time"
    message = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    line = (message or str(error)).strip().partition("\n")[0]
    return line.rpartition(" failed: ")[2].removeprefix("FATAL:").strip() or type(error).__name__
