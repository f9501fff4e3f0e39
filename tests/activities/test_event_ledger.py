"""Any ledger: each delivery's nonce once, each event once, and the gate before them."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from orderflow.ledger.events import Arrival, EventRecord
from orderflow.ledger.review import Ledger
from tests.support.events import NOW, arrivals, delivery
from tests.support.ledger import LedgerDatabase

pytestmark = pytest.mark.timeout(60)

NEW, RESUMED, DUPLICATE = Arrival.NEW, Arrival.RESUMED, Arrival.DUPLICATE
CONFLICT, REPLAYED, ELSEWHERE, PAUSED = Arrival.CONFLICT, Arrival.REPLAYED, Arrival.ELSEWHERE, Arrival.PAUSED
FIRST = delivery()
ORDER = FIRST.workflow_id


@pytest.fixture
async def ledger(database: LedgerDatabase) -> Ledger:
    """A ledger that a door uses."""
    opened: Ledger = await database.open()  # type: ignore[assignment]
    return opened


def kept(database: LedgerDatabase) -> tuple[int, int]:
    """How many events and how many nonces the ledger holds."""
    ((events, nonces),) = database.run("SELECT (SELECT COUNT(*) FROM events), (SELECT COUNT(*) FROM nonces)")
    return events, nonces


async def test_an_event_is_new_once_and_resumed_until_its_order_is_started(ledger: Ledger) -> None:
    """W06: with the same nonce or a fresh one, before the start it is resumed; after it, a duplicate or a replay."""
    again = delivery(timestamp=NOW + 1)
    assert await arrivals(ledger, FIRST, FIRST, again) == [NEW, RESUMED, RESUMED]
    await ledger.event_started("/shop", "1")
    assert await arrivals(ledger, FIRST, again, delivery(timestamp=NOW + 2)) == [REPLAYED, REPLAYED, DUPLICATE]


async def test_an_event_is_known_as_it_came(ledger: Ledger) -> None:
    """Whose, what, when, by the ledger's clock; the first start counts, and nothing else ever changes it."""
    assert await ledger.event_of(ORDER) is None
    await ledger.receive(FIRST)
    received = await ledger.event_of(ORDER)
    assert received is not None
    assert received == EventRecord("/shop", "1", "fp1:a", ORDER, "shop", received.received_at, None)
    assert abs(received.received_at - datetime.now(UTC)) < timedelta(minutes=1)
    await ledger.event_started("/shop", "1")
    started = await ledger.event_of(ORDER)
    assert started is not None
    assert started.started_at is not None
    assert received.received_at <= started.started_at
    await asyncio.sleep(0.01)
    await ledger.event_started("/shop", "1")
    await arrivals(ledger, delivery(caller="other", timestamp=NOW + 9))
    assert await ledger.event_of(ORDER) == started
