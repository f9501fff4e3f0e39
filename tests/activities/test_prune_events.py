"""Forgetting events, nonces and gates: what never became an order, and what is of no use any more."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from orderflow.domain.errors import InvalidInput
from orderflow.ledger.events import Arrival
from orderflow.ledger.retention import prune_events
from orderflow.ledger.review import Ledger
from tests.activities.test_prune import PERIOD, age, an_old_order, pruned, rows
from tests.activities.test_review_ledger import standing
from tests.support.events import delivery, pause
from tests.support.ledger import LONG, LedgerDatabase, charge
from tests.support.observing import eventually
from tests.support.postgres import Postgres

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
async def ledger(database: LedgerDatabase) -> Ledger:
    """A ledger whose rows a test may make older."""
    opened: Ledger = await database.open()  # type: ignore[assignment]
    return opened


async def test_an_event_stays_as_long_as_its_order(database: LedgerDatabase, ledger: Ledger) -> None:
    """I02: while the order is remembered its event is a duplicate, however old it is; afterwards it is a new one."""
    sent = delivery()
    await ledger.receive(sent)
    await ledger.event_started(sent.source, sent.event_id, sent.fingerprint)
    database.run("UPDATE events SET received_at = 0, started_at = 1")
    assert (await pruned(ledger), await prune_events(ledger, PERIOD, dry_run=False)) == ([], 0)
    await an_old_order(database, ledger, sent.workflow_id, days=399)
    assert (await pruned(ledger), await prune_events(ledger, PERIOD, dry_run=False)) == ([], 0)
    assert await ledger.receive(delivery(webhook_id="late")) is Arrival.DUPLICATE
    age(database, sent.workflow_id, 2)
    assert await pruned(ledger) == [sent.workflow_id]
    assert await ledger.receive(delivery(webhook_id="later")) is Arrival.NEW


async def make_open(ledger: Ledger, workflow_id: str, how: str | None) -> None:
    """Let the ledger know something of an order of which nobody noted that it was started."""
    match how:
        case "effect":
            await ledger.claim(charge(workflow_id), holder="x", lease=LONG)
        case "ending":
            await ledger.end_order(workflow_id, "completed")
        case "item":
            item = standing().model_copy(update={"key": charge(workflow_id).key})
            await ledger.put_in_review(workflow_id, "reconcile", [item])


@pytest.mark.parametrize("known", ["effect", "ending", "item", "start", None])
async def test_only_an_event_that_never_became_an_order_is_forgotten_alone(
    database: LedgerDatabase, ledger: Ledger, known: str | None
) -> None:
    """W06: after the same period, when the ledger knows nothing of its order; until then it is resumed."""
    old, young = delivery("old"), delivery("young", webhook_id="other")
    for sent in (old, young):
        await ledger.receive(sent)
    await make_open(ledger, old.workflow_id, known)
    if known == "start":
        await ledger.event_started(old.source, old.event_id, old.fingerprint)
    database.run(f"UPDATE events SET received_at = received_at - {401 * 86_400_000} WHERE event_id = 'old'")
    expected = 0 if known else 1
    assert await prune_events(ledger, timedelta(days=402), dry_run=False) == 0
    assert await prune_events(ledger, PERIOD, dry_run=True) == expected
    assert len(rows(database)["events"]) == 2
    assert await prune_events(ledger, PERIOD, dry_run=False) == expected
    assert [row[1] for row in rows(database)["events"]] == (["old", "young"] if known else ["young"])


async def test_an_event_that_is_started_at_this_moment_is_not_forgotten(postgres: Postgres) -> None:
    """The door notes its start while it is about to go: it stays."""
    postgres.emptied()
    database = LedgerDatabase(postgres.url())
    ledger: Ledger = await database.open()  # type: ignore[assignment]
    await ledger.receive(delivery())
    database.run("UPDATE events SET received_at = 0")
    with postgres.connect() as other:
        other.execute("BEGIN")
        other.execute("UPDATE events SET started_at = 1")
        running = asyncio.ensure_future(prune_events(ledger, PERIOD, dry_run=False))

        async def it_waits() -> bool:
            return postgres.run("SELECT 1 FROM pg_locks WHERE NOT granted") != []

        await eventually(it_waits)
        other.execute("COMMIT")
    assert (await running, len(rows(database)["events"])) == (0, 1)
    await database.aclose()


async def test_many_unstarted_events_are_forgotten_part_by_part(database: LedgerDatabase, ledger: Ledger) -> None:
    """More than one transaction takes."""
    for start in range(0, 2500, 500):
        values = ", ".join(f"('/a', '{n}', 'fp1:a', 'order-{n}', 'shop', 0)" for n in range(start, start + 500))
        database.run(
            f"INSERT INTO events (source, event_id, fingerprint, workflow_id, caller, received_at) VALUES {values}"
        )
    assert [await prune_events(ledger, PERIOD, dry_run=dry) for dry in (True, False, False)] == [2500, 2500, 0]


async def test_nonces_and_gates_of_no_use_go_with_them(database: LedgerDatabase, ledger: Ledger) -> None:
    """W05: a nonce long after its window, the gate of a door that is gone; never the one that people closed."""
    now = int(datetime.now(UTC).timestamp())
    for number, timestamp in enumerate((now, now - 86_000, now - 87_000)):
        await ledger.receive(delivery(str(number), timestamp=timestamp))
    for scope in ("all", "door-1", "door-2"):
        await pause(ledger, scope=scope)
    database.run("UPDATE intake SET seen_at = seen_at - 87000000 WHERE scope <> 'door-2'")
    before = rows(database)
    assert await prune_events(ledger, PERIOD, dry_run=True) == 0
    assert rows(database) == before
    assert await prune_events(ledger, PERIOD, dry_run=False) == 0
    assert {row[2] for row in rows(database)["nonces"]} == {now - 86_000, now}
    assert [gate.scope for gate in await ledger.intake()] == ["all", "door-2"]


async def test_an_event_is_remembered_as_long_as_an_order(ledger: Ledger) -> None:
    """The same shortest period."""
    with pytest.raises(InvalidInput, match=r"at least 30 days"):
        await prune_events(ledger, timedelta(days=29), dry_run=True)
