"""The ledger's schema: made and brought up to date on either backend, by one SQL, and refused when it does not fit."""

import asyncio
import re
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from importlib.resources import files
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory
from pydantic import SecretStr

from orderflow.backends import Schema, open_existing_ledger, open_ledger, read_ledger_schema, upgrade_ledger
from orderflow.domain.effects import EffectState
from orderflow.domain.errors import InvalidSettings
from orderflow.ledger import schema, sqlite
from orderflow.ledger import upgrade as upgrade_module
from orderflow.ledger.schema import LATEST, REVISIONS, UPGRADE_LOCK, require_latest
from orderflow.ledger.statements import POSTGRES, SQLITE
from orderflow.settings import Settings
from tests.support.command_line import orderflow, run_process, unconfigure
from tests.support.ledger import state_of
from tests.support.ledger_states import committed
from tests.support.observing import eventually
from tests.support.postgres import GUARDED, PASSWORD, Postgres
from tests.support.processes import run

pytestmark = pytest.mark.timeout(60)

SCHEMA_1 = """
CREATE TABLE effects (
    key            TEXT    NOT NULL PRIMARY KEY,
    workflow_id    TEXT    NOT NULL,
    step           TEXT    NOT NULL,
    provider       TEXT    NOT NULL,
    operation      TEXT    NOT NULL,
    intent_digest  TEXT    NOT NULL,
    state          TEXT    NOT NULL
        CHECK (state IN ('pending', 'committed', 'declined', 'voided', 'reversing', 'reversed')),
    token          INTEGER NOT NULL CHECK (token >= 0),
    lease_until    INTEGER NOT NULL CHECK (lease_until = 0 OR state = 'pending'),
    amount_minor   INTEGER CHECK (amount_minor >= 0),
    currency       TEXT,
    reference      TEXT,
    captured_minor INTEGER CHECK (captured_minor >= 0),
    refunded_minor INTEGER CHECK (refunded_minor >= 0),
    decline_code   TEXT    CHECK ((decline_code IS NOT NULL) = (state = 'declined')),
    result_json    TEXT,
    created_at     INTEGER NOT NULL,
    updated_at     INTEGER NOT NULL,
    settled_at     INTEGER CHECK (state = 'reversing' OR (settled_at IS NULL) = (state = 'pending'))
) STRICT, WITHOUT ROWID;
CREATE INDEX effects_by_workflow ON effects (workflow_id, created_at);
CREATE TABLE attempts (
    key        TEXT    NOT NULL REFERENCES effects (key),
    token      INTEGER NOT NULL,
    holder     TEXT    NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at   INTEGER,
    ended      TEXT    CHECK ((ended IS NULL) = (ended_at IS NULL)),
    PRIMARY KEY (key, token)
) STRICT, WITHOUT ROWID;
PRAGMA user_version = 1;
"""
"""What the first releases, which knew no migrations, made of an SQLite file."""


@pytest.fixture(params=["sqlite", "postgres"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    """A place for a ledger that has none yet, on each backend."""
    if request.param == "sqlite":
        return Settings(ledger_url=f"sqlite:///{tmp_path / 'ledger.db'}")
    server: Postgres = request.getfixturevalue("postgres")
    return Settings(ledger_url=server.new_database("fresh"))


async def test_an_upgrade_makes_a_ledger_and_a_second_one_changes_nothing(settings: Settings) -> None:
    """Before, nothing is there, and looking makes nothing; after, orders can be taken."""
    assert (await read_ledger_schema(settings)).found is None
    before, after = await upgrade_ledger(settings)
    assert (before.found, after.found, after.needed) == (None, LATEST, LATEST)
    ledger = await open_ledger(settings)
    await committed(ledger)
    assert await upgrade_ledger(settings) == (after, after)
    assert await state_of(ledger) is EffectState.COMMITTED
    await ledger.aclose()


async def test_upgrades_at_the_same_time_make_one_postgres_ledger(postgres: Postgres) -> None:
    """Every worker's container may run one: both saw an empty database; the first fills it, the other finds it done."""
    environment = {"ORDERFLOW_LEDGER_URL": postgres.new_database("fresh")}
    with postgres.connect("fresh") as first:
        first.execute(f"SELECT pg_advisory_lock({UPGRADE_LOCK})".encode())
        running = [asyncio.create_task(run_process("db", "upgrade", "--json", environment=environment)) for _ in "ab"]

        async def both_wait() -> bool:
            waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            return postgres.run(waiting) == [(2,)]

        await eventually(both_wait)
    ended = await asyncio.gather(*running)
    assert [(ran.code, ran.err, ran.json["from"], ran.json["to"]) for ran in ended] == [(0, "", None, LATEST)] * 2


async def test_workers_that_start_at_the_same_time_make_one_sqlite_ledger(tmp_path: Path) -> None:
    """The lock of the file is taken before its schema is looked at."""
    ledgers = await asyncio.gather(*(sqlite.SqliteLedger.open(tmp_path / "ledger.db") for _ in range(8)))
    await committed(ledgers[0])
    assert await state_of(ledgers[7]) is EffectState.COMMITTED
    for ledger in ledgers:
        await ledger.aclose()


async def test_opening_makes_an_sqlite_ledger_and_refuses_an_empty_postgres(settings: Settings) -> None:
    """The embedded one belongs to its worker; a database on a server to whoever runs the upgrade."""
    if "sqlite" in settings.ledger_url:
        await (await open_ledger(settings)).aclose()
        assert (await read_ledger_schema(settings)).found == LATEST
        return
    with pytest.raises(InvalidSettings, match="no tables yet; run `orderflow db upgrade`"):
        await open_ledger(settings)
    assert (await read_ledger_schema(settings)).found is None


@pytest.fixture
async def of_the_future(settings: Settings, request: pytest.FixtureRequest) -> Settings:
    """A ledger that a later release has upgraded."""
    await upgrade_ledger(settings)
    if "sqlite" in settings.ledger_url:
        with closing(sqlite3.connect(settings.ledger_url.removeprefix("sqlite:///"))) as connection:
            connection.execute("PRAGMA user_version = 9999")
    else:
        request.getfixturevalue("postgres").run("UPDATE ledger_schema SET version_num = '9999'", database="fresh")
    return settings


async def test_a_ledger_of_a_later_release_is_refused_and_left_alone(of_the_future: Settings) -> None:
    """Neither opened nor taken back."""
    says = f"has schema 9999, this orderflow knows {LATEST}; run the newer one"
    with pytest.raises(InvalidSettings, match=says):
        await open_ledger(of_the_future)
    with pytest.raises(InvalidSettings, match=says):
        await upgrade_ledger(of_the_future)
    assert (await read_ledger_schema(of_the_future)).found == "9999"


def test_a_ledger_that_is_behind_is_refused_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once there is a second revision."""
    monkeypatch.setattr(schema, "REVISIONS", ("0001", "0002"))
    monkeypatch.setattr(schema, "LATEST", "0002")
    require_latest("0002", "the ledger")
    with pytest.raises(InvalidSettings, match=r"has schema 0001, .* needs 0002; run `orderflow db upgrade`$"):
        require_latest("0001", "the ledger")


async def test_an_sqlite_ledger_of_the_first_releases_keeps_working(tmp_path: Path) -> None:
    """Its number is the first revision's; it has exactly the tables of a new one."""
    old, new = (Settings(ledger_url=f"sqlite:///{tmp_path / name}") for name in ("old.db", "new.db"))
    with closing(sqlite3.connect(tmp_path / "old.db")) as connection:
        connection.executescript(SCHEMA_1)
    for settings in (old, new):
        ledger = await open_ledger(settings)
        await committed(ledger)
        assert await state_of(ledger) is EffectState.COMMITTED
        await ledger.aclose()
    assert _tables(tmp_path / "old.db") == _tables(tmp_path / "new.db")


def _tables(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        made = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name").fetchall()
    return [re.sub(r"\s+", " ", sql.replace("COLLATE BINARY", "")) for (sql,) in made]


@pytest.mark.parametrize("revision", REVISIONS[:-1])
async def test_a_postgres_ledger_of_an_older_release_is_upgraded_with_what_it_holds(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch, revision: str
) -> None:
    """Refused before, with the command; after it, every row is there, and the tables are those of a new one."""
    old, new = (Settings(ledger_url=postgres.new_database(name)) for name in ("old", "fresh"))
    monkeypatch.setattr(upgrade_module, "LATEST", revision)
    await upgrade_ledger(old)
    monkeypatch.undo()
    held = (
        "INSERT INTO effects (key, workflow_id, step, provider, operation, intent_digest, state, token, lease_until,"
        " created_at, updated_at)"
        " VALUES ('a.charge.do', 'a', 'charge', 'payments', 'charge', 'x', 'pending', 1, 0, 1, 1)"
    )
    postgres.run(held, database="old")
    with pytest.raises(InvalidSettings, match=rf"has schema {revision}, .* needs {LATEST}; run `orderflow db upgrade`"):
        await open_ledger(old)
    for settings in (old, new):
        await upgrade_ledger(settings)
    ledger = await open_ledger(old)
    assert await state_of(ledger, "a.charge.do") is EffectState.PENDING
    await ledger.aclose()
    made = (
        "SELECT table_name, column_name, data_type, is_nullable FROM information_schema.columns"
        " WHERE table_schema = 'public' UNION ALL SELECT indexname, indexdef, '', '' FROM pg_indexes"
        " WHERE schemaname = 'public' ORDER BY 1, 2"
    )
    assert postgres.run(made, database="old") == postgres.run(made, database="fresh")


async def test_an_older_sqlite_ledger_is_upgraded_when_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what is missing is run, and nothing of it is kept when it fails."""
    path = tmp_path / "ledger.db"
    await (await sqlite.SqliteLedger.open(path)).aclose()
    known: Callable[..., list[str]] = schema.statements
    second = ["ALTER TABLE effects ADD COLUMN note TEXT", "no SQL"]
    following = f"{int(LATEST) + 1:04}"
    for module in (schema, sqlite):
        monkeypatch.setattr(module, "REVISIONS", (*REVISIONS, following))
    monkeypatch.setattr(
        sqlite, "statements", lambda name, dialect: second if name == following else known(name, dialect)
    )
    with pytest.raises(Exception, match="syntax error"):
        await sqlite.SqliteLedger.open(path)
    assert (sqlite.read_schema(path), "note" in str(_tables(path))) == (LATEST, False)
    second.pop()
    await (await sqlite.SqliteLedger.open(path)).aclose()
    assert (sqlite.read_schema(path), "note" in str(_tables(path))) == (following, True)


def test_each_revision_is_an_sql_file_and_an_alembic_step_on_the_one_before() -> None:
    """One chain, whoever walks it; neither dialect leaves a word of ours in it."""
    script = ScriptDirectory(str(files("orderflow.ledger") / "migrations"))
    chain = [step.revision for step in script.walk_revisions()][::-1]
    assert chain == [*REVISIONS]
    assert script.get_heads() == [LATEST]
    for dialect in (SQLITE, POSTGRES):
        sql = " ".join(statement for revision in REVISIONS for statement in schema.statements(revision, dialect))
        assert not re.search(r"now_ms|bytewise|table_options", sql)


async def test_a_database_in_use_by_something_else_is_left_alone(postgres: Postgres) -> None:
    """Its tables stay, and nothing of ours is beside them."""
    url = postgres.new_database("theirs")
    postgres.run("CREATE TABLE attempts (x int); INSERT INTO attempts VALUES (1)", database="theirs")
    with pytest.raises(InvalidSettings, match="holds the tables of something else"):
        await upgrade_ledger(Settings(ledger_url=url))
    left = postgres.run("SELECT relname FROM pg_stat_user_tables", database="theirs")
    assert left == [("attempts",)]


async def test_a_user_who_may_not_make_tables_is_told_so(postgres: Postgres) -> None:
    """The upgrade is the owner's business."""
    postgres.new_database("fresh")
    settings = Settings(ledger_url=postgres.url("fresh", user=GUARDED), ledger_password=SecretStr(PASSWORD))
    with pytest.raises(InvalidSettings, match=r"permission denied.*grant this user what it needs"):
        await upgrade_ledger(settings)


def test_the_verbs_say_what_is_and_what_they_did(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For people and for programs."""
    unconfigure(tmp_path, monkeypatch)
    monkeypatch.setenv("ORDERFLOW_LEDGER_URL", settings.ledger_url)
    none, upgraded, again = (orderflow("db", *verb) for verb in (["current"], ["upgrade"], ["upgrade"]))
    assert (none.code, upgraded.code, again.code) == (0, 0, 0)
    assert re.search(rf"schema +none\nneeded +{LATEST}", none.out)
    assert re.fullmatch(rf"(SQLite file|PostgreSQL database) .*: schema none became {LATEST}\n", upgraded.out)
    assert again.out.endswith(f" has schema {LATEST} already\n")
    current, third = orderflow("db", "current", "--json").json, orderflow("db", "upgrade", "--json").json
    assert current == {"ledger": third["ledger"], "schema": LATEST, "needed": LATEST, "up_to_date": True}
    assert (third["from"], third["to"]) == (LATEST, LATEST)


@pytest.mark.parametrize("verb", ["upgrade", "current"])
def test_a_verb_that_reaches_no_server_exits_with_3(verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And with one line, without the password."""
    unconfigure(tmp_path, monkeypatch)
    monkeypatch.setenv("ORDERFLOW_LEDGER_URL", "postgresql://u@127.0.0.1:9/d")
    monkeypatch.setenv("ORDERFLOW_LEDGER_PASSWORD", PASSWORD)
    ran = orderflow("db", verb)
    assert (ran.code, len(ran.err.splitlines())) == (3, 1)
    assert "check ORDERFLOW_LEDGER_URL" in ran.err
    assert PASSWORD not in ran.err


async def test_nobody_makes_a_ledger_by_looking_at_one(tmp_path: Path) -> None:
    """`show` in the wrong folder says so, and the next one finds as little."""
    settings = Settings(ledger_url=f"sqlite:///{tmp_path / 'ledger.db'}")
    for _ in range(2):
        with pytest.raises(InvalidSettings, match=r"there is no ledger at .*; run this where the worker runs"):
            await open_existing_ledger(settings)


async def test_an_sqlite_ledger_loads_none_of_what_postgres_needs(tmp_path: Path) -> None:
    """A worker of the embedded default starts as fast as before, and where the extra is not installed."""
    script = (
        "import asyncio, sys, orderflow.worker, orderflow.cli.checks\n"
        "from orderflow.backends import upgrade_ledger\n"
        "from orderflow.settings import Settings\n"
        "asyncio.run(upgrade_ledger(Settings(ledger_url=sys.argv[1])))\n"
        "print({name for name in sys.modules} & {'alembic', 'psycopg', 'psycopg_pool', 'sqlalchemy'})"
    )
    ran = await run(sys.executable, "-c", script, f"sqlite:///{tmp_path / 'ledger.db'}")
    assert (ran.code, ran.out, ran.err) == (0, "set()\n", "")


@pytest.mark.parametrize("missing", ["psycopg", "psycopg_pool", "alembic", "sqlalchemy"])
async def test_a_library_that_is_not_installed_is_named_with_what_to_install(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL comes with an extra; alembic and SQLAlchemy are needed for the upgrade alone."""
    ours = ("orderflow.ledger.postgres", "orderflow.ledger.upgrade")
    for name in [name for name in sys.modules if name.startswith(ours)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    settings = Settings(ledger_url="postgresql://u@127.0.0.1:9/d")
    with pytest.raises(InvalidSettings, match=rf"{missing} is not installed: pip install 'orderflow\[postgres\]'"):
        await (open_ledger(settings) if missing.startswith("psycopg") else _upgrade_only(settings, monkeypatch))


async def _upgrade_only(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    async def empty(_: Settings) -> Schema:
        return Schema("ledger", None)

    monkeypatch.setattr("orderflow.backends.read_ledger_schema", empty)
    await upgrade_ledger(settings)
