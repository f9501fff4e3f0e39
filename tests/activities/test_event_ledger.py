"""Any ledger: each delivery's nonce once, each event once, and the gate before them."""

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orderflow.domain.errors import LedgerUnavailable, UnreadableRow
from orderflow.domain.events import workflow_id
from orderflow.ledger.events import Arrival, EventRecord, IntakeRecord
from orderflow.ledger.review import Ledger
from tests.support.events import NOW, arrivals, delivery, pause
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
    await ledger.event_started("/shop", "1", "fp1:a")
    assert await arrivals(ledger, FIRST, again, delivery(timestamp=NOW + 2)) == [REPLAYED, REPLAYED, DUPLICATE]


async def test_an_event_is_known_as_it_came(database: LedgerDatabase, ledger: Ledger) -> None:
    """Whose, what, when, by the ledger's clock; the first start counts, and nothing else ever changes it."""
    assert await ledger.event_of(ORDER) is None
    await ledger.receive(FIRST)
    received = await ledger.event_of(ORDER)
    assert received is not None
    assert received == EventRecord("/shop", "1", "fp1:a", ORDER, "shop", received.received_at, None)
    assert abs(received.received_at - datetime.now(UTC)) < timedelta(minutes=1)
    await ledger.event_started("/shop", "1", "fp1:a")
    started = await ledger.event_of(ORDER)
    assert started is not None
    assert started.started_at is not None
    assert received.received_at <= started.started_at
    database.run("UPDATE events SET received_at = received_at - 10, started_at = started_at - 10")
    earlier = await ledger.event_of(ORDER)
    assert earlier != started
    await ledger.event_started("/shop", "1", "fp1:a")
    await arrivals(ledger, delivery(caller="other", timestamp=NOW + 9))
    assert await ledger.event_of(ORDER) == earlier


async def test_a_nonce_lasts_as_long_as_its_delivery_is_fresh(database: LedgerDatabase) -> None:
    """W05: the whole window, future skew included, after a restart, for every door; then it is forgotten."""
    now = int(datetime.now(UTC).timestamp())
    fresh = [delivery(str(at), webhook_id="msg_1", timestamp=now + at) for at in (60, 0, -290)]
    first: Ledger = await database.open()  # type: ignore[assignment]
    assert await arrivals(first, *fresh) == [NEW] * 3
    for at in (60, 0, -290):
        await first.event_started("/shop", str(at), "fp1:a")
    await first.aclose()
    doors: list[Any] = [await database.open() for _ in range(2)]
    for door in doors:
        assert await door.forget_nonces(timedelta(seconds=300)) == 0
        assert await arrivals(door, *fresh) == [REPLAYED] * 3
    assert await doors[0].forget_nonces(timedelta(seconds=280)) == 1
    assert await arrivals(doors[1], *fresh) == [REPLAYED, REPLAYED, DUPLICATE]


async def test_any_number_of_nonces_is_forgotten(database: LedgerDatabase, ledger: Ledger) -> None:
    """Part by part, and none that is still wanted."""
    for start in range(0, 2500, 500):
        rows = ", ".join(f"('shop', 'm{number}', {number}, '/shop', '1')" for number in range(start, start + 500))
        database.run(f"INSERT INTO nonces (caller, webhook_id, timestamp, source, event_id) VALUES {rows}")
    await ledger.receive(FIRST)
    assert await ledger.forget_nonces(timedelta(days=1)) == 2500
    assert kept(database) == (1, 1)


async def test_a_repeated_nonce_with_another_event_is_a_replay(database: LedgerDatabase, ledger: Ledger) -> None:
    """W05: whether that one is known or not, and although its first event waits; nothing is written."""
    other = delivery("2")
    await arrivals(ledger, FIRST, delivery("2", timestamp=NOW + 1))
    assert await arrivals(ledger, other, delivery("3"), FIRST) == [REPLAYED, REPLAYED, RESUMED]
    assert kept(database) == (2, 2)


async def test_nonces_of_two_callers_are_two(ledger: Ledger) -> None:
    """Whose secret verified is part of it; letters differ in case."""
    one, two = delivery("1", caller="shop"), delivery("2", caller="Shop")
    assert await arrivals(ledger, one, two, delivery("3", webhook_id="MSG_1")) == [NEW, NEW, NEW]


async def test_another_content_is_a_conflict_whatever_else_is(database: LedgerDatabase, ledger: Ledger) -> None:
    """I01: before and after the start, with the nonce of the first one and with a fresh one, which is not kept."""
    others = [delivery(fingerprint="fp1:b", timestamp=NOW + at) for at in (0, 1)]
    await ledger.receive(FIRST)
    assert await arrivals(ledger, *others) == [CONFLICT] * 2
    await ledger.event_started("/shop", "1", "fp1:a")
    assert await arrivals(ledger, *others) == [CONFLICT] * 2
    await ledger.end_order(ORDER, "completed")
    assert await arrivals(ledger, *others) == [CONFLICT] * 2
    assert kept(database) == (1, 1)
    assert await arrivals(ledger, delivery(timestamp=NOW + 1)) == [DUPLICATE]


async def test_an_order_that_ended_is_never_started_again(database: LedgerDatabase, ledger: Ledger) -> None:
    """After Temporal forgot it too: an event that nobody noted as started, and one that came by another way."""
    await ledger.receive(FIRST)
    await ledger.end_order(ORDER, "failed")
    assert await arrivals(ledger, FIRST, delivery(timestamp=NOW + 1)) == [REPLAYED, DUPLICATE]
    assert await ledger.waiting_events(timedelta(0)) == 0
    direct = delivery("direct", webhook_id="msg_2")
    await ledger.end_order(direct.workflow_id, "completed")
    before = kept(database)
    assert await arrivals(ledger, direct, direct) == [ELSEWHERE] * 2
    assert (await ledger.event_of(direct.workflow_id), kept(database)) == (None, before)


async def test_while_the_gate_is_closed_nothing_is_written(database: LedgerDatabase, ledger: Ledger) -> None:
    """Nor the nonce of a known event, and no conflict is looked for; then all is as if nothing had been sent."""
    again, other = delivery(timestamp=NOW + 1), delivery("2", timestamp=NOW + 2)
    await ledger.receive(FIRST)
    await pause(ledger)
    refused = (FIRST, again, other, delivery(fingerprint="fp1:b"))
    assert await arrivals(ledger, *refused) == [PAUSED] * 4
    assert kept(database) == (1, 1)
    await ledger.event_started("/shop", "1", "fp1:a")
    await pause(ledger, paused=False)
    assert await arrivals(ledger, *refused) == [REPLAYED, DUPLICATE, NEW, CONFLICT]


async def test_what_one_door_found_out_closes_no_other(ledger: Ledger) -> None:
    """Its own gate is its own business; the ledger refuses for `all` only."""
    await pause(ledger, scope="door-1")
    assert await ledger.receive(FIRST) is NEW


async def test_gates_are_listed_as_they_stand(database: LedgerDatabase, ledger: Ledger) -> None:
    """`all` first; who says the same again is seen and changes nothing else; another reason is a change."""
    assert await ledger.intake() == []
    door = await ledger.set_intake("a-door", paused=True, reason="backlog", changed_by="a-door")
    first = await ledger.set_intake("all", paused=True, reason="maintenance", changed_by="carol")
    assert await ledger.intake() == [first, door]
    assert first == IntakeRecord("all", True, "maintenance", "carol", first.changed_at, first.changed_at)
    assert abs(first.changed_at - datetime.now(UTC)) < timedelta(minutes=1)
    database.run("UPDATE intake SET changed_at = changed_at - 10, seen_at = seen_at - 10")
    first = (await ledger.intake())[0]
    again = await ledger.set_intake("all", paused=True, reason="maintenance", changed_by="dave")
    assert again == IntakeRecord("all", True, "maintenance", "carol", first.changed_at, again.seen_at)
    assert first.seen_at < again.seen_at
    for paused, reason in ((True, "fire"), (False, "fire")):
        changed = await ledger.set_intake("all", paused=paused, reason=reason, changed_by="dave")
        assert changed == IntakeRecord("all", paused, reason, "dave", changed.changed_at, changed.changed_at)
        assert changed.changed_at > again.changed_at
        assert (await ledger.intake())[0] == changed


STRANGE = [
    ("/a", "b::c"), ("/a::b", "c"), ("ab", "c"), ("a", "bc"), ("/x|y", "z"), ("/x", "y|z"),
    ("/a", "b'; DROP TABLE events; --"), ("/a", 'b"'), ("/a", "b\\0"), ("/a", "%s %(source)s :source ?"),
    ("/a", "caf\u00e9"), ("/a", "cafe\u0301"), ("/a", "CAF\u00c9"), ("/a", "caf\u00e9 "), ("/a", "\U0001f4a9"),
    ("/a", "stra\u00dfe"), ("/a", "strasse"), ("/a", "\ufb01"), ("/a", "fi"), ("/a", "1"), ("/a", "01"), ("/A", "1"),
    ("/a", "id"), ("/a", "ID"),
    ("s" * 1024, "\U0010fffd" * 256), ("s" * 1024, "\U0010fffd" * 255),
]  # fmt: skip


async def test_no_two_identities_are_one(database: LedgerDatabase, ledger: Ledger) -> None:
    """C04, I12: exact code points in two columns, on both backends alike; the longest ones too."""
    sent = [delivery(event_id, source, timestamp=NOW + n) for n, (source, event_id) in enumerate(STRANGE)]
    assert await arrivals(ledger, *sent) == [NEW] * len(STRANGE)
    for source, event_id in STRANGE[::2]:
        await ledger.event_started(source, event_id, "fp1:a")
    for number, (source, event_id) in enumerate(STRANGE):
        known = await ledger.event_of(workflow_id(source, event_id))
        assert known is not None
        assert (known.source, known.event_id, known.started_at is None) == (source, event_id, number % 2 == 1)
    assert kept(database) == (len(STRANGE), len(STRANGE))


@pytest.mark.parametrize("field", ["source", "event_id", "fingerprint", "workflow_id", "caller"])
async def test_no_identity_gets_a_default(database: LedgerDatabase, ledger: Ledger, field: str) -> None:
    """I13: what is missing is refused by the tables themselves; no row, and the next delivery is taken."""
    lacking = dataclasses.replace(FIRST, **{field: None})  # type: ignore[arg-type]
    with pytest.raises(LedgerUnavailable):
        await ledger.receive(lacking)
    assert kept(database) == (0, 0)
    assert await ledger.receive(FIRST) is NEW


async def test_events_that_wait_are_counted(database: LedgerDatabase, ledger: Ledger) -> None:
    """W06: those that were received long ago, until their order is started."""
    await arrivals(ledger, FIRST, delivery("2", timestamp=NOW + 1), delivery("3", timestamp=NOW + 2))
    database.run("UPDATE events SET received_at = received_at - 60000 WHERE event_id <> '3'")
    waiting = [await ledger.waiting_events(timedelta(seconds=seconds)) for seconds in (0, 59, 61)]
    await ledger.event_started("/shop", "1", "fp1:a")
    assert [*waiting, await ledger.waiting_events(timedelta(seconds=59))] == [3, 2, 0, 1]


async def test_a_row_that_cannot_be_read_spoils_no_other(database: LedgerDatabase, ledger: Ledger) -> None:
    """W18: whoever asks for that event is told so; every delivery is judged as ever, its own too."""
    other = delivery("2", timestamp=NOW + 1)
    await arrivals(ledger, FIRST, other)
    database.run("UPDATE events SET received_at = 100000000000000000 WHERE event_id = '1'")
    with pytest.raises(UnreadableRow, match=f"row of the event of {ORDER} cannot be read"):
        await ledger.event_of(ORDER)
    assert await ledger.event_of(other.workflow_id) is not None
    assert await ledger.waiting_events(timedelta(0)) == 1
    assert await arrivals(ledger, FIRST, other, delivery("3", timestamp=NOW + 2)) == [RESUMED, RESUMED, NEW]


async def test_a_gate_that_cannot_be_read_is_named_and_stands(database: LedgerDatabase, ledger: Ledger) -> None:
    """W18: deliveries are judged without its times; saying anew how it stands puts it right."""
    await pause(ledger)
    database.run("UPDATE intake SET seen_at = 100000000000000000, changed_at = 100000000000000000")
    with pytest.raises(UnreadableRow, match="row of the gate all cannot be read"):
        await ledger.intake()
    assert await ledger.receive(FIRST) is PAUSED
    await pause(ledger, paused=False)
    assert [gate.paused for gate in await ledger.intake()] == [False]
