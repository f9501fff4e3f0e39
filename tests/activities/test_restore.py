"""Backup, restore and roles as docs/ledger-operations.md says, and what a restored ledger believes."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from orderflow.backends import upgrade_ledger
from orderflow.domain.effects import EffectState
from orderflow.domain.errors import InvalidSettings
from orderflow.ledger import EffectLedger
from orderflow.ledger.postgres import PostgresLedger
from orderflow.ledger.review import Ledger
from orderflow.ledger.schema import LATEST, ROLES
from orderflow.settings import Settings
from tests.activities.test_prune import rows
from tests.activities.test_review_ledger import signed, standing
from tests.support.bank import Bank
from tests.support.command_line import Ran
from tests.support.events import delivery, pause
from tests.support.ledger import CHARGE, NO_TIME, TABLES, charge, perform, state_of, undo
from tests.support.ledger_states import claimed
from tests.support.postgres import Postgres, running_postgres
from tests.support.processes import run
from tests.support.restoring import RESTORED, Home, documented, postgres_home, sqlite_home

pytestmark = pytest.mark.timeout(90)


@pytest.fixture(params=["sqlite", "postgres"])
async def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    """Where backups are made, with a ledger that has all its tables and nothing in it."""
    if request.param == "sqlite":
        made = sqlite_home(tmp_path)
    else:
        made = postgres_home(tmp_path, request.getfixturevalue("postgres"))
    await upgrade_ledger(Settings(ledger_url=made.database.url))
    return made


async def opened(home: Home) -> Ledger:
    """A ledger on the database that is backed up."""
    ledger: Ledger = await home.database.open()  # type: ignore[assignment]
    return ledger


async def a_bit_of_everything(ledger: Ledger, bank: Bank) -> None:
    """An event and a gate, a charge, one that is on its way, an ending, an item, an operation."""
    await ledger.receive(delivery())
    await pause(ledger)
    await perform(ledger, bank)
    await ledger.claim(charge("order-2"), holder="x", lease=NO_TIME)
    await ledger.end_order("order-1", "completed")
    await ledger.put_in_review("order-1", "order", [standing()])
    await ledger.book_operation(signed(), "a.b.c")


async def test_a_restored_ledger_is_the_one_that_was_backed_up(home: Home) -> None:
    """Every row of that moment and none that came after, made while the ledger was open and in use."""
    ledger, bank = await opened(home), Bank()
    await a_bit_of_everything(ledger, bank)
    at_backup = rows(home.database)
    await home.back_up()
    assert rows(home.database) == at_backup
    await perform(ledger, bank, charge("order-3"))
    await undo(ledger, bank)
    database = await home.restored()
    assert rows(database) == at_backup
    assert all(at_backup[table] for table in TABLES)
    restored = await database.open()
    assert (await restored.check()).endswith(f"schema {LATEST}")
    assert await state_of(restored, charge("order-3").key) is None
    assert (await perform(restored, bank, charge("order-4"))).state is EffectState.COMMITTED
    await database.aclose()


async def restored(home: Home) -> EffectLedger:
    """The ledger that was restored."""
    return await (await home.restored()).open()


async def test_a_worker_asks_about_what_the_backup_has_as_pending(home: Home) -> None:
    """I05: what was made after the backup is adopted; nothing is sent."""
    ledger, bank = await opened(home), Bank()
    await claimed(ledger, NO_TIME)
    await home.back_up()
    await perform(ledger, bank)
    late = await restored(home)
    assert (await perform(late, bank)).state is EffectState.COMMITTED
    assert bank.acts("charge") == 1
    await late.aclose()


async def test_a_worker_that_starts_too_early_sends_what_the_backup_does_not_know(home: Home) -> None:
    """Why reconciliation comes first: a provider that has forgotten the key, as this one does, charges again (I07)."""
    ledger, bank = await opened(home), Bank()
    await home.back_up()
    await perform(ledger, bank)
    late = await restored(home)
    await perform(late, bank)
    assert bank.calls[-1] == ("perform", CHARGE.key)
    assert bank.acts("charge") == 2
    await late.aclose()


async def test_taking_back_what_was_taken_back_after_the_backup_gives_back_nothing(home: Home) -> None:
    """M04: the refund of what remains is the refund of nothing."""
    ledger, bank = await opened(home), Bank()
    await perform(ledger, bank)
    await home.back_up()
    await undo(ledger, bank)
    late = await restored(home)
    assert await state_of(late) is EffectState.COMMITTED
    assert (await undo(late, bank)).state is EffectState.REVERSED
    assert (bank.acts("refund"), bank.net()) == (1, 0)
    await late.aclose()


async def test_a_backup_never_overwrites_another(tmp_path: Path) -> None:
    """SQLite refuses a file that is there."""
    home = sqlite_home(tmp_path)
    await (await home.database.open()).aclose()
    await home.back_up()
    again: Ran = await home.follow("### Backing up an SQLite ledger")
    assert again.code != 0
    assert "already exists" in again.err


async def test_a_copy_of_the_file_alone_is_no_backup(tmp_path: Path) -> None:
    """D01: what was committed last stands in the log beside it; the documented way has it."""
    home = sqlite_home(tmp_path)
    await perform(await home.database.open(), Bank())
    shutil.copy(tmp_path / ".orderflow" / "ledger.db", tmp_path / "copied.db")
    await home.back_up()
    with closing(sqlite3.connect(tmp_path / "copied.db")) as copied:
        assert copied.execute("SELECT * FROM effects").fetchall() == []
    with closing(sqlite3.connect(tmp_path / "ledger-backup.db")) as backup:
        assert len(backup.execute("SELECT * FROM effects").fetchall()) == 1
    await home.database.aclose()


async def test_what_a_killed_worker_left_is_not_played_into_the_restored_ledger(tmp_path: Path) -> None:
    """D01: the log of the old file goes away with it."""
    home, state = sqlite_home(tmp_path), tmp_path / ".orderflow"
    ledger, bank = await home.database.open(), Bank()
    await home.back_up()
    await perform(ledger, bank)
    shutil.copytree(state, tmp_path / "killed")
    await home.database.aclose()
    shutil.rmtree(state)
    shutil.move(tmp_path / "killed", state)
    assert (state / "ledger.db-wal").stat().st_size > 0
    database = await home.restored()
    assert rows(database) == {table: [] for table in TABLES}


async def test_shrinking_gives_space_back(tmp_path: Path) -> None:
    """After much was forgotten; everything else is still there."""
    home = sqlite_home(tmp_path)
    ledger: Ledger = await home.database.open()  # type: ignore[assignment]
    for number in range(200):
        await ledger.put_in_review(f"order-{number}", "order", [standing(detail="x" * 2000)])
        home.database.run(f"UPDATE review_items SET key = 'key-{number}' WHERE key = '{CHARGE.key}'")
    await perform(ledger, Bank())
    await ledger.aclose()
    home.database.run("DELETE FROM review_items")
    file = tmp_path / ".orderflow" / "ledger.db"
    before = file.stat().st_size
    assert (await home.follow("### Shrinking an SQLite ledger")).code == 0
    assert file.stat().st_size < before / 2
    assert len(rows(home.database)["effects"]) == 1


async def test_a_restored_postgres_ledger_still_grants_each_role_its_own(postgres: Postgres, tmp_path: Path) -> None:
    """A worker's user works on the restored one as before, and another's is refused as before."""
    home = postgres_home(tmp_path, postgres)
    await upgrade_ledger(Settings(ledger_url=home.database.url))
    await home.back_up()
    await home.restored()
    worker = await PostgresLedger.open(postgres.url(RESTORED, user=postgres.member("orderflow_worker")))
    await worker.check()
    await worker.aclose()
    reader = await PostgresLedger.open(postgres.url(RESTORED, user=postgres.member("orderflow_reader")))
    with pytest.raises(InvalidSettings, match="GRANT orderflow_worker"):
        await reader.check()
    await reader.aclose()


async def test_on_another_server_the_documented_lines_come_first(postgres: Postgres, tmp_path: Path) -> None:
    """Without the roles a restore stops and leaves nothing; with them, and the documented users, work goes on."""
    home = postgres_home(tmp_path, postgres)
    await upgrade_ledger(Settings(ledger_url=home.database.url))
    await perform(await home.database.open(), Bank())
    await home.back_up()
    await home.database.aclose()
    users, roles = documented("## Roles on PostgreSQL", "sql")
    assert [line.removeprefix("CREATE ROLE ").removesuffix(";") for line in roles.splitlines()] == [*ROLES]
    with running_postgres() as other:
        other.run("DROP DATABASE ledger", database="postgres")
        other.run("".join(f"DROP ROLE {role};" for role in ROLES), database="postgres")
        there = home.at(other.url("postgres"), other.url(RESTORED))
        refused = await there.follow("### Restoring a PostgreSQL ledger")
        assert (refused.code != 0, 'role "orderflow_worker" does not exist' in refused.err) == (True, True)
        assert other.run("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'", database=RESTORED) == [(0,)]
        other.run(f"DROP DATABASE {RESTORED}", database="postgres")
        for sql in (roles, users):
            other.run(sql, database="postgres")
        assert (await there.follow("### Restoring a PostgreSQL ledger")).code == 0
        ledger = await PostgresLedger.open(other.url(RESTORED, user="shop_worker"))
        await ledger.check()
        assert await state_of(ledger) is EffectState.COMMITTED
        await ledger.aclose()
        keeper = {"ORDERFLOW_LEDGER_URL": other.url(RESTORED, user="shop_operator")}
        pruned = await run(
            "orderflow", "db", "prune", "--json", folder=tmp_path, environment={**home.environment, **keeper}
        )
        assert pruned.json["orders"] == 0
