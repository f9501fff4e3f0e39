"""The door's user on a PostgreSQL ledger: all that deliveries take, and nothing of effects."""

import re
from collections.abc import AsyncIterator
from datetime import timedelta

import psycopg
import pytest

from orderflow.domain.errors import InvalidSettings, LedgerUnavailable
from orderflow.ledger import INGRESS
from orderflow.ledger.events import Arrival
from orderflow.ledger.postgres import STATEMENTS, PostgresLedger
from orderflow.ledger.schema import LATEST, ROLES
from orderflow.ledger.statements import POSTGRES, load_statements
from tests.activities.test_ledger_roles import opened_by
from tests.support.events import delivery, pause
from tests.support.ledger import CHARGE, LONG
from tests.support.postgres import Postgres

pytestmark = pytest.mark.timeout(60)

WORKER, _, OPERATOR, KEEPER, READER = ROLES


@pytest.fixture
def server(postgres: Postgres) -> Postgres:
    """The server, with nothing in its ledger."""
    postgres.emptied()
    return postgres


@pytest.fixture
async def door(server: Postgres) -> AsyncIterator[PostgresLedger]:
    """The ledger of a door."""
    ledger = await opened_by(server, INGRESS)
    yield ledger
    await ledger.aclose()


def test_every_statement_about_events_is_the_doors(server: Postgres) -> None:
    """As it is sent: the database is asked about each, with every column it touches, without running it."""
    names = [*load_statements("sql/events.sql", POSTGRES), "forget_nonces", "get_ending", "write_no_event"]
    with psycopg.connect(server.url(user=server.member(INGRESS)), autocommit=True) as connection:
        for name in names:
            planned = re.sub(r"%\(\w+\)s", "NULL", STATEMENTS[name])
            assert connection.execute(b"EXPLAIN " + planned.encode()).fetchall(), name
    assert len(names) > 10


async def test_a_door_does_all_that_a_delivery_takes(door: PostgresLedger) -> None:
    """Start check, a delivery and its copies, the start, the gates, forgetting."""
    assert (await door.check(INGRESS)).endswith(f"schema {LATEST}")
    first = delivery()
    assert [await door.receive(first) for _ in "ab"] == [Arrival.NEW, Arrival.RESUMED]
    await door.event_started(first.source, first.event_id, first.fingerprint)
    assert await door.receive(delivery(timestamp=1)) is Arrival.DUPLICATE
    assert await door.event_of(first.workflow_id) is not None
    assert await door.ending(first.workflow_id) is None
    assert await door.waiting_events(timedelta(0)) == 0
    await pause(door, scope="door-1")
    assert [gate.scope for gate in await door.intake()] == ["door-1"]
    assert await door.forget_nonces(timedelta(days=1)) == 1


async def test_a_door_has_nothing_to_do_with_effects(door: PostgresLedger) -> None:
    """Nor with what people decide: whoever takes the door over can neither read charges nor book any."""
    for refused in (
        door.get(CHARGE.key),
        door.claim(CHARGE, holder="x", lease=LONG),
        door.end_order("order-1", "completed"),
        door.review_items(closed=True, limit=1),
        door.operations(CHARGE.key),
        door.forget_unstarted(timedelta(0)),
    ):
        with pytest.raises(LedgerUnavailable, match=r"permission denied for table .*takes another role"):
            await refused


@pytest.mark.parametrize("role", [WORKER, OPERATOR, KEEPER, READER])
async def test_the_doors_start_check_names_what_another_roles_user_lacks(server: Postgres, role: str) -> None:
    """With the line to type; a worker's rights are not enough for a door."""
    ledger = await opened_by(server, role)
    with pytest.raises(InvalidSettings, match=rf'a_{role} lacks .*; for the door: GRANT {INGRESS} TO "a_{role}"'):
        await ledger.check(INGRESS)
    await ledger.aclose()


@pytest.mark.parametrize(
    "privilege",
    [
        "DELETE ON nonces",
        "INSERT ON events",
        "UPDATE (started_at, fingerprint) ON events",
        "SELECT ON endings",
        "SELECT ON intake",
    ],
)
async def test_the_doors_start_check_notices_one_grant_that_is_missing(
    server: Postgres, door: PostgresLedger, privilege: str
) -> None:
    """As after a restore that left out some."""
    server.run(f"REVOKE {privilege} FROM {INGRESS}")
    verb, table = privilege.split()[0], privilege.split()[-1]
    try:
        with pytest.raises(InvalidSettings, match=f"a_{INGRESS} lacks {verb} on {table};"):
            await door.check(INGRESS)
    finally:
        server.run(f"GRANT {privilege} TO {INGRESS}")
    await door.check(INGRESS)


async def test_an_operator_closes_the_gate_and_takes_no_event_in(server: Postgres) -> None:
    """`orderflow intake`, and where an order came from; a worker and a reader look at both."""
    operator = await opened_by(server, OPERATOR)
    await pause(operator)
    with pytest.raises(LedgerUnavailable, match="permission denied"):
        await operator.receive(delivery())
    await operator.aclose()
    for role in (WORKER, READER, OPERATOR):
        ledger = await opened_by(server, role)
        assert [gate.paused for gate in await ledger.intake()] == [True]
        assert await ledger.event_of(delivery().workflow_id) is None
        assert await ledger.waiting_events(timedelta(0)) == 0
        await ledger.aclose()


@pytest.mark.parametrize("role", [WORKER, READER, KEEPER])
async def test_nobody_else_sets_a_gate(server: Postgres, role: str) -> None:
    """A worker has no business at the door."""
    ledger = await opened_by(server, role)
    with pytest.raises(LedgerUnavailable, match="permission denied for table intake"):
        await pause(ledger)
    await ledger.aclose()
