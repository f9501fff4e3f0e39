"""Roles on a PostgreSQL ledger: each user may do what its work takes, and nothing else."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg
import pytest

from orderflow.domain.effects import EffectState
from orderflow.domain.errors import InvalidSettings, LedgerUnavailable
from orderflow.domain.operations import Resolution
from orderflow.ledger.postgres import PostgresLedger
from orderflow.ledger.postgres_database import PostgresDatabase
from orderflow.ledger.schema import LATEST, ROLES
from orderflow.ledger.statements import POSTGRES, load_statements
from orderflow.ledger.upgrade import upgrade
from tests.activities.test_review_ledger import signed, standing
from tests.support.bank import Bank
from tests.support.command_line import run_process
from tests.support.ledger import CHARGE, LONG, NO_TIME, REFUND, perform, undo
from tests.support.ledger_states import DONE, claimed
from tests.support.observing import eventually
from tests.support.postgres import Postgres, running_postgres

pytestmark = pytest.mark.timeout(60)

WORKER, INGRESS, OPERATOR, KEEPER, READER = ROLES
MAY_READ: Final = {"SELECT"}
KEEPS: Final = {"SELECT", "DELETE"}
SETS_GATES: Final = {"SELECT", "INSERT"} | {
    f"UPDATE {column}" for column in ("paused", "reason", "changed_by", "changed_at", "seen_at")
}
GRANTS: dict[str, dict[str, set[str]]] = {
    "effects": {
        WORKER: {"SELECT", "INSERT"}
        | {
            f"UPDATE {column}"
            for column in (
                "state", "token", "lease_until", "reference", "captured_minor", "refunded_minor", "decline_code",
                "result_json", "updated_at", "settled_at",
            )
        },
        OPERATOR: MAY_READ, KEEPER: KEEPS, READER: MAY_READ,
    },
    "attempts": {
        WORKER: {"SELECT", "INSERT", "UPDATE ended_at", "UPDATE ended"},
        OPERATOR: MAY_READ, KEEPER: KEEPS, READER: MAY_READ,
    },
    "endings": {
        WORKER: {"SELECT", "INSERT", "UPDATE stage", "UPDATE ended_at"},
        INGRESS: MAY_READ, OPERATOR: MAY_READ, KEEPER: KEEPS, READER: MAY_READ,
    },
    "review_items": {
        WORKER: {"SELECT", "INSERT"}
        | {
            f"UPDATE {column}"
            for column in (
                "opened_by", "amount_minor", "currency", "error", "detail", "opened_at", "closed_at", "closed_as",
            )
        },
        OPERATOR: MAY_READ, KEEPER: KEEPS, READER: MAY_READ,
    },
    "operations": {WORKER: {"SELECT", "INSERT"}, OPERATOR: MAY_READ},
    "events": {
        INGRESS: {"SELECT", "INSERT", "UPDATE started_at", "UPDATE fingerprint"},
        WORKER: MAY_READ, OPERATOR: MAY_READ, KEEPER: KEEPS, READER: MAY_READ,
    },
    "nonces": {INGRESS: {"SELECT", "INSERT", "DELETE"}, KEEPER: KEEPS},
    "intake": {
        INGRESS: SETS_GATES, OPERATOR: SETS_GATES, WORKER: MAY_READ, KEEPER: KEEPS, READER: MAY_READ,
    },
    "ledger_schema": dict.fromkeys(ROLES, MAY_READ),
}  # fmt: skip
"""All that is granted to anybody but the owner. A new table needs a row here, and its grants in its own revision."""

A_COLUMN: Final = {
    "effects": "amount_minor", "attempts": "holder", "endings": "workflow_id", "review_items": "step",
    "operations": "token", "events": "caller", "nonces": "event_id", "intake": "scope",
    "ledger_schema": "version_num",
}  # fmt: skip
"""One column of each table that nobody but the owner may change."""

GRANTED: Final = """
SELECT relname, coalesce(pg_get_userbyid(nullif(grantee, 0)), 'public'), privilege
FROM (
    SELECT relname, relowner, (acl).grantee, (acl).privilege_type AS privilege
    FROM (SELECT *, aclexplode(relacl) AS acl FROM pg_class WHERE relkind IN ('r', 'v', 'S', 'm', 'p')) AS tables
    WHERE relnamespace = 'public'::regnamespace
    UNION ALL
    SELECT relname, relowner, (acl).grantee, (acl).privilege_type || ' ' || attname
    FROM (SELECT *, aclexplode(attacl) AS acl FROM pg_attribute) AS columns JOIN pg_class ON pg_class.oid = attrelid
    WHERE relnamespace = 'public'::regnamespace
) AS grants WHERE grantee <> relowner AND pg_get_userbyid(grantee) <> 'guarded'
"""


@pytest.fixture
def server(postgres: Postgres) -> Postgres:
    """The server, with nothing in its ledger."""
    postgres.emptied()
    return postgres


async def opened_by(server: Postgres, role: str) -> PostgresLedger:
    """A ledger as a member of `role` opens it; close it."""
    return await PostgresLedger.open(server.url(user=server.member(role)))


def test_everybody_is_granted_exactly_what_is_expected(server: Postgres) -> None:
    """No table is forgotten, and nobody has more; a new table fails here until somebody decides who may do what."""
    found: dict[str, dict[str, set[str]]] = {
        table: {} for (table,) in server.run("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    }
    for table, role, privilege in server.run(GRANTED):
        found[table].setdefault(role, set()).add(privilege)
    assert found == GRANTS


def test_a_forgotten_table_would_be_noticed(server: Postgres) -> None:
    """The test above can fail."""
    server.run("CREATE TABLE forgotten (x int)")
    try:
        with pytest.raises(AssertionError):
            test_everybody_is_granted_exactly_what_is_expected(server)
    finally:
        server.run("DROP TABLE forgotten")


STATEMENTS: Final = {
    "SELECT": "SELECT count(*) FROM {table}",
    "INSERT": "INSERT INTO {table} DEFAULT VALUES",
    "UPDATE": "UPDATE {table} SET {column} = NULL",
    "DELETE": "DELETE FROM {table}",
    "TRUNCATE": "TRUNCATE {table} CASCADE",
    "TRIGGER": "CREATE TRIGGER t AFTER INSERT ON {table} EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    "DROP": "DROP TABLE {table} CASCADE",
    "ALTER": "ALTER TABLE {table} ADD COLUMN x int",
    "INDEX": "CREATE INDEX ON {table} ({column})",
    "CREATE": "CREATE TABLE {table}_too (x int)",
    "OWNER": "ALTER TABLE {table} OWNER TO CURRENT_USER",
    "ROLE": "CREATE ROLE {table}_too",
    "DISABLE": "ALTER TABLE {table} DISABLE TRIGGER ALL",
}
"""One statement for each thing that can be done to a table; what is not granted by its name is refused to all."""


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("table", GRANTS)
def test_every_statement_that_is_not_granted_is_refused(server: Postgres, role: str, table: str) -> None:
    """Tried for real as a member of each role, and taken back: reading, writing, and changing the schema."""
    allowed = GRANTS[table].get(role, set())
    with psycopg.connect(server.url(user=server.member(role))) as connection:
        for verb, statement in STATEMENTS.items():
            words = statement.format(table=table, column=A_COLUMN[table]).encode()
            try:
                connection.execute(words)
                refused = False
            except psycopg.errors.InsufficientPrivilege:
                refused = True
            except psycopg.IntegrityError:  # it may, and the rules of the table are the next that say no
                refused = False
            connection.rollback()
            assert refused is (verb not in allowed), words


@pytest.fixture
async def worker(server: Postgres) -> AsyncIterator[PostgresLedger]:
    """The ledger of a worker."""
    ledger = await opened_by(server, WORKER)
    yield ledger
    await ledger.aclose()


@pytest.mark.parametrize("file", ["sql/effects.sql", "sql/review.sql"])
def test_every_statement_of_a_ledger_is_a_workers(server: Postgres, file: str) -> None:
    """The database is asked about each, with every column it touches, without running it."""
    statements = load_statements(file, POSTGRES)
    with psycopg.connect(server.url(user=server.member(WORKER)), autocommit=True) as connection:
        for name, statement in statements.items():
            planned = re.sub(r":(\w+)", "NULL", statement)
            assert connection.execute(b"EXPLAIN " + planned.encode()).fetchall(), name
    assert len(statements) > 10


async def test_a_worker_does_all_that_an_order_takes(worker: PostgresLedger) -> None:
    """Start check, charge, refund, tombstone, a queue of people, a resolution, an ending."""
    assert (await worker.check()).endswith(f"schema {LATEST}")
    bank = Bank()
    await perform(worker, bank)
    await worker.put_in_review("order-1", "order", [standing()])
    await worker.book_operation(signed(), "a.b.c")
    assert (await undo(worker, bank)).state is EffectState.REVERSED
    assert await worker.put_in_review("order-1", "order", []) == [CHARGE.key]
    await worker.end_order("order-1", "failed_compensated")
    await worker.end_order("order-1", "completed")
    other = CHARGE.model_copy(update={"key": "order-2.charge.do", "workflow_id": "order-2"})
    held = await worker.claim(other, holder="x", lease=NO_TIME)
    await worker.renew(held, LONG)  # type: ignore[arg-type]
    await worker.renew(held, NO_TIME)  # type: ignore[arg-type]
    assert [*(await worker.unsettled("", 9)).orders] == [other.key]
    resolved = await worker.resolve(other.key, "order-2.charge.undo", Resolution.TAKEN_BACK)
    assert resolved is not None
    assert resolved.state is EffectState.REVERSED
    third = CHARGE.model_copy(update={"key": "order-3.charge.do", "workflow_id": "order-3"})
    assert (await worker.void(third)).state is EffectState.VOIDED
    assert (await worker.operations(CHARGE.key))[0].token == "a.b.c"
    assert len(await worker.attempts("order-1")) == 2


async def test_an_operator_sees_everything_and_changes_nothing(server: Postgres, worker: PostgresLedger) -> None:
    """`show` and `review` read; what is to be done is signed, and a worker does it."""
    await claimed(worker)
    await worker.book_operation(signed(), "a.b.c")
    ledger = await opened_by(server, OPERATOR)
    assert len(await ledger.effects("order-1")) == len(await ledger.attempts("order-1")) == 1
    assert await ledger.review_items(closed=True, limit=9) == await ledger.reviews_of("order-1") == []
    assert [said.token for said in await ledger.operations(CHARGE.key)] == ["a.b.c"]
    for write in (
        ledger.claim(REFUND, holder="x", lease=LONG),
        ledger.end_order("order-1", "completed"),
        ledger.put_in_review("order-1", "order", [standing()]),
        ledger.book_operation(signed("k" * 16), "d.e.f"),
        ledger.resolve(CHARGE.key, REFUND.key, Resolution.KEPT),
    ):
        with pytest.raises(LedgerUnavailable, match=r"permission denied for table .*takes another role"):
            await write
    await ledger.aclose()


async def test_a_reader_sees_effects_and_not_what_people_signed(server: Postgres, worker: PostgresLedger) -> None:
    """Their reasons are for operators."""
    await worker.settle(await claimed(worker), DONE)
    ledger = await opened_by(server, READER)
    assert [record.state for record in await ledger.effects("order-1")] == [EffectState.COMMITTED]
    with pytest.raises(LedgerUnavailable, match="permission denied for table operations"):
        await ledger.operations(CHARGE.key)
    await ledger.aclose()


@pytest.mark.parametrize("role", [INGRESS, OPERATOR, KEEPER, READER])
async def test_the_start_check_names_the_grant_that_is_missing(server: Postgres, role: str) -> None:
    """A worker that was given another role's user says what to type before it takes an order."""
    ledger = await opened_by(server, role)
    with pytest.raises(InvalidSettings, match=rf'a_{role} lacks INSERT on .*: GRANT orderflow_worker TO "a_{role}"'):
        await ledger.check()
    await ledger.aclose()


@pytest.mark.parametrize("privilege", ["UPDATE (stage, ended_at) ON endings", "INSERT ON operations"])
async def test_the_start_check_notices_one_grant_that_is_missing(
    server: Postgres, worker: PostgresLedger, privilege: str
) -> None:
    """As after a restore that left out some."""
    server.run(f"REVOKE {privilege} FROM {WORKER}")
    verb, table = privilege.split()[0], privilege.split()[-1]
    try:
        with pytest.raises(InvalidSettings, match=f"a_{WORKER} lacks {verb} on {table};"):
            await worker.check()
    finally:
        server.run(f"GRANT {privilege} TO {WORKER}")
    await worker.check()


@pytest.mark.parametrize("hardened", [False, True])
async def test_a_user_without_a_role_is_told_which_to_ask_for(server: Postgres, hardened: bool) -> None:
    """Also where not even the schema is for everybody: it does not say that there are no tables."""
    if not server.run("SELECT 1 FROM pg_roles WHERE rolname = 'stranger'"):
        server.run("CREATE ROLE stranger LOGIN")
    if hardened:
        server.run("REVOKE ALL ON SCHEMA public FROM PUBLIC")
    try:
        with pytest.raises(InvalidSettings, match=r'stranger lacks SELECT on ledger_schema; .*TO "stranger"'):
            await PostgresLedger.open(server.url(user="stranger"))
        ledger = await opened_by(server, WORKER)
        await ledger.check()
        await ledger.aclose()
    finally:
        server.run("GRANT USAGE ON SCHEMA public TO PUBLIC")


async def test_a_ledger_in_a_schema_of_its_own_grants_that_one(server: Postgres) -> None:
    """As `options` in the URL says."""
    server.new_database("fresh")
    server.run("CREATE SCHEMA shop", database="fresh")
    here = {"options": "-c%20search_path%3Dshop"}
    await asyncio.to_thread(upgrade, PostgresDatabase.at(server.url("fresh", **here)))
    ledger = await PostgresLedger.open(server.url("fresh", user=server.member(WORKER), **here))
    await ledger.check()
    await ledger.aclose()


@pytest.fixture(scope="module")
def bare() -> Iterator[Postgres]:
    """A server of this module's own, whose roles a test may take away."""
    with running_postgres() as server:
        yield server


def without_roles(server: Postgres) -> None:
    """Make it a server that never had a ledger."""
    for name in ("ledger", "fresh", "other"):
        server.run(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)", database="postgres")
    for role in ROLES:
        server.run(f"DROP ROLE IF EXISTS {role}", database="postgres")
    for name in ("fresh", "other"):
        server.new_database(name)


@contextmanager
def another_role(server: Postgres) -> Iterator["psycopg.Connection[tuple[Any, ...]]"]:
    """Somebody else's first role, not committed yet."""
    with server.connect("postgres") as other:
        other.execute("BEGIN")
        other.execute(f"CREATE ROLE {WORKER} NOLOGIN".encode())
        yield other


@pytest.mark.parametrize("ending", ["COMMIT", "ROLLBACK"])
async def test_upgrades_of_two_ledgers_on_one_server_make_the_roles_once(bare: Postgres, ending: str) -> None:
    """Roles are the server's: both upgrades run into a third that is making them, and both come to their end (D04)."""
    without_roles(bare)
    with another_role(bare) as other:
        running = [
            asyncio.create_task(run_process("db", "upgrade", environment={"ORDERFLOW_LEDGER_URL": bare.url(name)}))
            for name in ("fresh", "other")
        ]

        async def both_wait() -> bool:
            return bare.run("SELECT count(*) FROM pg_locks WHERE NOT granted", database="postgres") == [(2,)]

        await eventually(both_wait)
        other.execute(ending)
    assert [(ran.code, ran.err) for ran in await asyncio.gather(*running)] == [(0, "")] * 2
    for name in ("fresh", "other"):
        assert bare.run("SELECT version_num FROM ledger_schema", database=name) == [(LATEST,)]
        ledger = await PostgresLedger.open(bare.url(name, user=bare_member(bare)))
        await ledger.check()
        await ledger.aclose()


def bare_member(server: Postgres) -> str:
    """A worker's user on a server that is not that of the session."""
    if not server.run("SELECT 1 FROM pg_roles WHERE rolname = 'w'", database="postgres"):
        server.run("CREATE ROLE w LOGIN", database="postgres")
    server.run(f"GRANT {WORKER} TO w", database="postgres")
    return "w"


async def test_an_owner_who_may_make_no_roles_is_told_what_an_administrator_types(bare: Postgres) -> None:
    """Nothing is left of the upgrade; after those very lines it is all that it takes."""
    without_roles(bare)
    bare.run("DROP ROLE IF EXISTS landlord; CREATE ROLE landlord LOGIN", database="postgres")
    bare.run("ALTER DATABASE fresh OWNER TO landlord", database="postgres")
    database = PostgresDatabase.at(bare.url("fresh", user="landlord"))
    with pytest.raises(InvalidSettings, match=r"permission denied to create role; an administrator") as refused:
        await asyncio.to_thread(upgrade, database)
    assert await database.schema() is None
    for line in re.findall(r"CREATE ROLE \w+;", refused.value.message):
        bare.run(line, database="postgres")
    await asyncio.to_thread(upgrade, database)
    assert await database.schema() == LATEST
    ledger = await PostgresLedger.open(bare.url("fresh", user=bare_member(bare)))
    await ledger.check()
    await ledger.aclose()
    bare.new_database("fresh")
