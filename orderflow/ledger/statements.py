"""Reads the named, explained statements of the `.sql` files beside this module, as each database wants them."""

import re
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

_NAMED = re.compile(r"^-- name: (\w+)(?: \((\w+)\))?\n(.*?)(?=^-- name: |\Z)", re.MULTILINE | re.DOTALL)
FILES: Final = ("sql/effects.sql", "sql/review.sql", "sql/retention.sql", "sql/events.sql")
"""What a ledger says to its database, on either backend."""

_COMMENT = re.compile(r"^\s*--.*\n?", re.MULTILINE)


@dataclass(frozen=True)
class Dialect:
    """What the `.sql` files leave open, because SQLite and PostgreSQL say it differently.

    A statement whose name is followed by a dialect's in brackets is only for that one: SQLite has no roles. `clock`
    replaces `now_ms()`: the database's own time in whole milliseconds since 1970; `bigint` replaces `BIGINT`;
    `bytewise` replaces `bytewise()`, a collation by code point; `table` replaces `table_options()`.
    """

    name: str
    clock: str
    bigint: str
    bytewise: str
    table: str

    def render(self, statement: str) -> str:
        """Give `statement` in this dialect."""
        for word, meaning in (
            ("now_ms()", self.clock),
            ("BIGINT", self.bigint),
            ("bytewise()", self.bytewise),
            ("table_options()", self.table),
        ):
            statement = statement.replace(word, meaning)
        return statement


SQLITE = Dialect(
    name="sqlite",
    clock="CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)",  # before 3.42 no unixepoch('subsec')
    bigint="INTEGER",
    bytewise="BINARY",
    table="STRICT, WITHOUT ROWID",
)

# Not now(), which is when the transaction began: one that waited for another's lock would grant a lease that is partly
# over, and judge other leases by a time that is past.
POSTGRES = Dialect(
    name="postgres",
    clock="CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)",
    bigint="BIGINT",
    bytewise='"C"',
    table="",
)


def load_statements(file: str, dialect: Dialect) -> dict[str, str]:
    """Give a `.sql` file's statements for `dialect` by name, in its order; `file` is a path from `orderflow/ledger`."""
    text = files("orderflow.ledger").joinpath(file).read_text(encoding="utf-8")
    return {
        name: dialect.render(_COMMENT.sub("", body)).strip().removesuffix(";").strip()
        for name, only, body in _NAMED.findall(text)
        if only in ("", dialect.name)
    }
