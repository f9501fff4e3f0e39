"""What one effect costs on PostgreSQL beside ten thousand others and beside millions, and how it is found there."""

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from statistics import median
from typing import Any, Final

import psycopg

from bench.databases import Databases, opened
from bench.effects import acts, perform
from orderflow.domain.effects import Act
from orderflow.ledger import EffectLedger
from orderflow.ledger.postgres import STATEMENTS
from orderflow.ledger.postgres_database import PostgresDatabase
from orderflow.ledger.statements import POSTGRES, load_statements
from orderflow.ledger.upgrade import upgrade
from tests.support.postgres import Postgres

AT_MOST = 1.3
FEW = 10_000
_BATCH = 1_000_000
_EFFECTS = 600
_BLOCKS = 10

# Keys rise evenly over all that a key can be: new ones, as hashes, fall anywhere between them. Without triggers
# no foreign key is looked up, which takes most of the time otherwise.
_NUMBERED: Final = """(
    SELECT n, 'order-' || lpad(to_hex((n * %(step)s)::bigint), 16, '0') || left(md5(n::text), 16) AS id
    FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS n
) AS numbered"""

_FILL: Final = f"""
SET session_replication_role = replica;
INSERT INTO effects (key, workflow_id, step, provider, operation, intent_digest, state, token, lease_until,
    amount_minor, currency, reference, captured_minor, result_json, created_at, updated_at, settled_at)
SELECT id || '.charge.do', id, 'charge', 'payments', 'charge', repeat(md5(id), 2), 'committed', 1, 0,
    1000, 'EUR', 'ch_' || left(id, 16), 1000, '{{}}', 1700000000000 + n, 1700000000100 + n, 1700000000100 + n
FROM {_NUMBERED};
INSERT INTO attempts (key, token, holder, started_at, ended_at, ended)
SELECT id || '.charge.do', 1, 'worker-1/01234567-89ab-cdef-0123-456789abcdef/1/1', 1700000000000 + n,
    1700000000100 + n, 'done'
FROM {_NUMBERED};
INSERT INTO endings (workflow_id, stage, ended_at)
SELECT id, 'completed', 1700000000100 + n FROM {_NUMBERED};
"""  # noqa: S608 (nothing in it comes from outside)

_PARTS: Final = {"begin_attempt", "end_attempt"}
_PAGE: Final = "unsettled_effects"
_EXPLAINED: Final = [
    *(name for name in load_statements("sql/effects.sql", POSTGRES) if name not in _PARTS),
    "page_of_effects",
    _PAGE,
]

_PARAMETERS: Final[dict[str, object]] = {
    "key": "order-1.charge.do", "workflow_id": "order-1", "step": "charge", "provider": "payments",
    "operation": "charge", "intent_digest": "digest", "amount_minor": 1000, "currency": "EUR", "lease_ms": 15000,
    "claim_by_ms": None, "token": 1, "holder": "worker", "ended": "done", "state": "committed", "reference": "ch_1",
    "captured_minor": 1000, "refunded_minor": 1000, "decline_code": None, "result_json": "{}",
    "after": "", "last": "order-00", "limit": 2000,
}  # fmt: skip


@dataclass(frozen=True)
class Growth:
    """Milliseconds of one claim and settle: beside few rows and beside many, alternately, medians.

    `waiting` is whether COMMIT waits for the disk, as it does in production; without that wait what grows shows more.
    """

    waiting: bool
    rows: int
    few: float
    many: float
    ratio: float
    ratio_low: float
    ratio_high: float


@dataclass(frozen=True)
class Plans:
    """How PostgreSQL runs each named statement beside `rows` effects, all of orders that are known to have completed.

    `page_seconds` is what reconciliation's next page takes there: it finds nothing.
    """

    rows: int
    fill_seconds: float
    megabytes: float
    page_seconds: float
    statements: dict[str, str]

    @property
    def scans(self) -> list[str]:
        """The statements that read a whole table."""
        return [name for name, plan in self.statements.items() if re.search("Seq Scan on (effects|attempts)", plan)]


async def measure_growth(databases: Databases, rows: int) -> tuple[list[Growth], Plans]:
    """Fill one database with few effects and one with `rows`, and do the same on both."""
    server = databases.postgres
    _filled(server, "few", FEW)
    seconds = _filled(server, "many", rows)
    compared = [await _compare(server, rows, waiting) for waiting in (True, False)]
    (size,) = server.run("SELECT pg_database_size('many') / 1e6", database="many")[0]
    return compared, Plans(rows, seconds, float(size), _page_seconds(server), dict(_plans(server)))


def _filled(server: Postgres, name: str, rows: int) -> float:
    """Make a database with `rows` effects and an attempt at each; gives the seconds that it took."""
    before = time.perf_counter()
    upgrade(PostgresDatabase.at(server.new_database(name)))
    with psycopg.connect(server.url(name), autocommit=True, cursor_factory=psycopg.ClientCursor) as connection:
        for first in range(1, rows + 1, _BATCH):
            last = min(first + _BATCH - 1, rows)
            connection.execute(_FILL, {"first": first, "last": last, "step": 2**62 // rows})
        connection.execute("VACUUM (ANALYZE) effects")
        connection.execute("VACUUM (ANALYZE) attempts")
        connection.execute("VACUUM (ANALYZE) endings")
        connection.execute("CHECKPOINT")
    return time.perf_counter() - before


async def _compare(server: Postgres, rows: int, waiting: bool) -> Growth:
    option = {} if waiting else {"options": "-c%20synchronous_commit%3Doff"}
    few, many = await opened(server.url("few", **option)), await opened(server.url("many", **option))
    these = acts(f"growth {waiting}")
    try:
        await _alternately(few, many, [*islice(these, 100)])
        blocks = [await _alternately(few, many, [*islice(these, _EFFECTS // _BLOCKS)]) for _ in range(_BLOCKS)]
    finally:
        await few.aclose()
        await many.aclose()
    ratios = sorted(median(of_many) / median(of_few) for of_few, of_many in blocks)
    all_few = median([taken for of_few, _ in blocks for taken in of_few])
    all_many = median([taken for _, of_many in blocks for taken in of_many])
    return Growth(waiting, rows, all_few, all_many, all_many / all_few, ratios[1], ratios[-2])


async def _alternately(few: EffectLedger, many: EffectLedger, these: list[Act]) -> tuple[list[float], list[float]]:
    taken: tuple[list[float], list[float]] = ([], [])
    for act in these:
        for ledger, times in zip((few, many), taken, strict=True):
            before = time.perf_counter()
            await perform(ledger, act)
            times.append(1000 * (time.perf_counter() - before))
    return taken


def _page_seconds(server: Postgres) -> float:
    with server.connect("many") as connection:
        before = time.perf_counter()
        [(last,)] = connection.execute(STATEMENTS["page_of_effects"].encode(), _PARAMETERS).fetchall()
        connection.execute(STATEMENTS[_PAGE].encode(), {**_PARAMETERS, "last": last}).fetchall()
        return time.perf_counter() - before


def _plans(server: Postgres) -> Iterator[tuple[str, str]]:
    with server.connect("many") as connection:
        for name in _EXPLAINED:
            explained: list[tuple[Any, ...]] = connection.execute(
                f"EXPLAIN (COSTS OFF) {STATEMENTS[name]}".encode(), _PARAMETERS
            ).fetchall()
            yield name, "\n".join(str(line) for (line,) in explained)
