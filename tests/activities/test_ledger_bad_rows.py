"""A stored row that cannot be read: it is told which, and it is nobody else's trouble (W18)."""

import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from orderflow.domain.effects import EffectState
from orderflow.domain.errors import LedgerUnavailable
from tests.support.bank import Bank
from tests.support.ledger import CHARGE, LedgerDatabase, charge, perform, sqlite_database
from tests.support.ledger_states import committed

pytestmark = pytest.mark.timeout(60)

THIS_ROW = rf"row of {CHARGE.key} cannot be read"

BAD_IN_A_FILE = {
    "a state of another release": ("state = 'frozen'", f"{THIS_ROW}: 'frozen'"),
    "a text that is no Unicode": ("reference = CAST(X'ff' AS TEXT)", "UTF-8 .*reference"),
}
"""What an SQLite file can hold: checks can be switched off there, and a text is whatever is called one."""


def damage(database: LedgerDatabase, change: str) -> None:
    """Change the row of the charge behind the ledger's back."""
    sql = f"UPDATE effects SET {change} WHERE key = '{CHARGE.key}'"
    if not database.url.startswith("sqlite"):
        with psycopg.connect(database.url, autocommit=True) as server:
            server.execute(sql.encode())
        return
    path = Path(database.url.removeprefix("sqlite:///"))
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("PRAGMA ignore_check_constraints = ON")
        file.execute(sql)


async def keeps_to_its_order(database: LedgerDatabase, change: str, said: str) -> None:
    """Damage the row of one order's charge, then look at that order and at others."""
    ledger = await database.open()
    await committed(ledger)
    other = await perform(ledger, Bank(), charge("order-2"))
    damage(database, change)
    for look in (lambda: ledger.get(CHARGE.key), lambda: ledger.effects("order-1"), lambda: perform(ledger, Bank())):
        with pytest.raises(LedgerUnavailable, match=said):
            await look()
    assert await ledger.effects("order-2") == [other]
    assert (await perform(ledger, Bank(), charge("order-3"))).state is EffectState.COMMITTED


async def test_a_row_that_cannot_be_read_is_named_and_spoils_no_other_order(database: LedgerDatabase) -> None:
    """Whoever asks for its order is told so in one line of ours; others are read and charged as ever (W18)."""
    await keeps_to_its_order(database, "updated_at = 100000000000000000", THIS_ROW)


@pytest.mark.parametrize("fault", BAD_IN_A_FILE)
async def test_a_damaged_file_spoils_no_other_order(tmp_path: Path, fault: str) -> None:
    """The same for what only an SQLite file takes (W18)."""
    database = sqlite_database(tmp_path / "ledger.db")
    await keeps_to_its_order(database, *BAD_IN_A_FILE[fault])
    await database.aclose()
