"""Deliveries that come again, at once, with other content, or while something is away: nothing lost, nothing twice."""

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from tests.e2e.conftest import PATIENT
from tests.support.answers import Answer
from tests.support.door import Door, open_door
from tests.support.observing import eventually
from tests.support.senders import as_bytes
from tests.support.servers import DevServer, client_of
from tests.support.street import Street

if TYPE_CHECKING:
    from tests.support.postgres import Postgres

NEW: Final = (202, "new")
DUPLICATE: Final = (200, "duplicate")
CONFLICT: Final = (409, "conflict")
AT_ONCE: Final = 50


async def runs_of(client: Client, order: str) -> int:
    """How many runs there have been of an order: its first run is its only one, or it has been started again."""
    try:
        described = await client.get_workflow_handle(order).describe()
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return 0
        raise
    first = described.raw_description.workflow_execution_info.first_run_id
    listed = [each.run_id async for each in client.list_workflows(f"WorkflowId = '{order}'")]
    return len({described.run_id, first, *listed})


@asynccontextmanager
async def a_door(street: Street, server: DevServer, name: str = "door") -> AsyncIterator[Door]:
    """A door of this test's own."""
    settings = {**street.environment, **PATIENT, "TEMPORAL_ADDRESS": server.address}
    async with open_door(street.folder, settings, name=name) as door:
        yield door


@pytest.fixture
def own_street(tmp_path: Path) -> Street:
    """A street, and so a ledger, of this test's own."""
    street = Street(tmp_path)
    street.admit()
    return street


@pytest.fixture
async def own_server(tmp_path: Path) -> AsyncIterator[DevServer]:
    """A Temporal of this test's own that remembers when it is killed."""
    async with DevServer(tmp_path, database=tmp_path / "temporal.db") as server:
        yield server


async def test_an_event_with_another_content_is_a_conflict(door: Door, street: Street, client: Client) -> None:
    """I01: whatever differs, the first content stands, and the log says that somebody should look."""
    event = street.shop.placed()
    first = await door.post(event, street.shop)
    items = [
        {"sku": "mug-blue", "quantity": 2, "unit_price_minor": 1250},
        {"sku": "tea", "quantity": 1, "unit_price_minor": 900},
    ]
    others = [
        {**event, "data": {**event["data"], "items": items, "total_minor": 3400}},
        {**event, "data": {**event["data"], "note": "another"}},
        {**event, "time": "2026-01-31T12:00:01Z"},
        {**event, "subject": "s"},
    ]
    answers = [await door.post(other, street.shop) for other in others]
    assert [answer.told for answer in answers] == [CONFLICT] * len(others)
    assert (await door.post(event, street.shop)).told == DUPLICATE
    assert await runs_of(client, first.order) == 1
    assert any('"conflict"' in line and "warning" in line for line in door.child.said.splitlines())


async def test_a_redelivery_is_a_duplicate_at_any_door(
    doors: tuple[Door, Door], street: Street, client: Client
) -> None:
    """W07: with a nonce, a stamp and a signature of its own; the answer names the same order."""
    event = street.shop.placed()
    first = await doors[0].post(event, street.shop)
    again = [await door.post(event, street.shop) for door in (*doors, *doors)]
    assert first.told == NEW
    assert [(answer.told, answer.order) for answer in again] == [(DUPLICATE, first.order)] * 4
    assert await runs_of(client, first.order) == 1


@pytest.fixture(params=["sqlite", "postgresql"])
def backend_url(request: pytest.FixtureRequest) -> str:
    """A ledger's address, of each kind."""
    if request.param == "sqlite":
        return ""
    postgres: Postgres = request.getfixturevalue("postgres")
    postgres.emptied()
    return postgres.url()


async def test_fifty_identical_requests_at_once_start_one_order(
    backend_url: str, tmp_path: Path, dev_server: DevServer, client: Client
) -> None:
    """I02: over two processes and each kind of ledger; one starts it, the others hear of it or are replays, no 5xx."""
    street = Street(tmp_path, backend_url)
    street.admit()
    async with a_door(street, dev_server, "one") as one, a_door(street, dev_server, "other") as other:
        event = street.shop.placed()
        body = as_bytes(event)
        signed = street.shop.headers(body)
        sent = [[one, other][number % 2].send(body, signed) for number in range(AT_ONCE)]
        same = Counter(answer.told for answer in await asyncio.gather(*sent))
        assert same[NEW] + same[DUPLICATE] >= 1
        assert {status for status, _ in same} <= {202, 200, 409}
        assert set(same) <= {NEW, DUPLICATE, (409, "replayed")}
        fresh = [[one, other][number % 2].post(event, street.shop) for number in range(AT_ONCE)]
        assert {answer.told for answer in await asyncio.gather(*fresh)} == {DUPLICATE}
        order = (await one.post(event, street.shop)).order
        assert await runs_of(client, order) == 1
        assert await street.events() == 1


async def test_fifty_deliveries_of_one_new_event_at_once_start_one_order(
    backend_url: str, tmp_path: Path, dev_server: DevServer, client: Client
) -> None:
    """I02: each with a nonce of its own, as of a sender with impatient retries; each hears of the same order."""
    street = Street(tmp_path, backend_url)
    street.admit()
    async with a_door(street, dev_server, "one") as one, a_door(street, dev_server, "other") as other:
        event = street.shop.placed()
        sent = [[one, other][number % 2].post(event, street.shop) for number in range(AT_ONCE)]
        answers = await asyncio.gather(*sent)
        assert {answer.status for answer in answers} <= {202, 200}
        assert len({answer.order for answer in answers}) == 1
        assert await runs_of(client, answers[0].order) == 1
        assert await street.events() == 1


async def test_fifty_contents_of_one_identity_at_once_start_one_order(
    doors: tuple[Door, Door], street: Street, client: Client
) -> None:
    """I01, I02: one content wins, all others are told that they conflict."""
    event = street.shop.placed()
    contents = [{**event, "subject": f"content {number}"} for number in range(AT_ONCE)]
    sent = [doors[number % 2].post(content, street.shop) for number, content in enumerate(contents)]
    answers = await asyncio.gather(*sent)
    assert Counter(answer.told for answer in answers) == {NEW: 1, CONFLICT: AT_ONCE - 1}


async def test_an_event_is_not_lost_while_temporal_is_away(own_street: Street, own_server: DevServer) -> None:
    """W06: 503 with Retry-After while it is, then the same event runs, once."""
    async with a_door(own_street, own_server) as door:
        event = own_street.shop.placed()
        await _kill(own_server)
        away = await asyncio.gather(*(door.post(event, own_street.shop) for _ in range(2)))
        assert [answer.status for answer in away] == [503, 503]
        assert {answer.cause for answer in away} <= {"unavailable", "intake-paused"}
        assert await own_street.events() == 1, "it was received before Temporal was found to be away"
        await own_server.__aenter__()
        client = await client_of(own_server)
        taken = await eventually(lambda: _taken(door, event, own_street))
        assert taken.told in (NEW, DUPLICATE)
        assert (await door.post(event, own_street.shop)).told == DUPLICATE
        assert await runs_of(client, taken.order) == 1
        assert await _readiness(door) == 200


async def _kill(server: DevServer) -> None:
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    await server.__aexit__()


async def _taken(door: Door, event: object, street: Street) -> Answer | None:
    answer = await door.post(event, street.shop)
    if answer.status != 503:
        return answer
    return None


async def _readiness(door: Door) -> int:
    return (await door.ask("/readyz")).status


async def test_a_door_that_is_killed_between_writing_down_and_starting_is_made_good(
    own_street: Street, own_server: DevServer
) -> None:
    """W06, issue 4: the retry resumes at another door, be it the same bytes and headers or a delivery of its own."""
    assert own_server.pid is not None
    client = await client_of(own_server)
    events = [own_street.shop.placed(), own_street.shop.placed()]
    bodies = [as_bytes(event) for event in events]
    signed = [own_street.shop.headers(body) for body in bodies]
    async with a_door(own_street, own_server, "killed") as door:
        os.kill(own_server.pid, signal.SIGSTOP)
        try:
            sent = [asyncio.create_task(door.send(*each)) for each in zip(bodies, signed, strict=True)]
            await eventually(lambda: _received(own_street, len(events)))
            await door.child.stop(signal.SIGKILL)
            heard = await asyncio.gather(*sent, return_exceptions=True)
            assert [type(each) for each in heard] == [AssertionError] * len(events), "the door answered before it died"
        finally:
            os.kill(own_server.pid, signal.SIGCONT)
    async with a_door(own_street, own_server, "next") as door:
        identical = await door.send(bodies[0], signed[0])
        fresh = await door.post(events[1], own_street.shop)
        assert {identical.told, fresh.told} <= {NEW, DUPLICATE}
        assert [await runs_of(client, each.order) for each in (identical, fresh)] == [1, 1]
        assert (await door.send(bodies[0], signed[0])).told == (409, "replayed")
        assert (await door.post(events[1], own_street.shop)).told == DUPLICATE


async def _received(street: Street, number: int) -> bool:
    return await street.events() == number


async def test_a_nonce_outlives_the_door(own_street: Street, dev_server: DevServer) -> None:
    """W05: what was stamped ahead of time is a replay after a restart too."""
    body = as_bytes(own_street.shop.placed())
    captured = own_street.shop.headers(body, stamp=int(time.time()) + 50)
    async with a_door(own_street, dev_server) as door:
        assert (await door.send(body, captured)).told == NEW
        assert await door.child.stop(signal.SIGTERM) == 0
    async with a_door(own_street, dev_server) as door:
        assert (await door.send(body, captured)).told == (409, "replayed")
        assert (await door.post(body, own_street.shop)).told == DUPLICATE


async def test_a_fresh_namespace_burns_no_event(own_street: Street, tmp_path: Path) -> None:
    """T41: a plain dev server without search attributes, and nobody who registered them: the order starts."""
    async with DevServer(tmp_path, plain=True) as plain, a_door(own_street, plain) as door:
        event = own_street.shop.placed()
        taken = await eventually(lambda: _taken(door, event, own_street))
        assert taken.told in (NEW, DUPLICATE)
        client = await client_of(plain)
        assert await runs_of(client, taken.order) == 1


async def test_a_closed_order_is_not_started_again(door: Door, street: Street, client: Client) -> None:
    """T44: the ledger knows it, and if the ledger has lost it, Temporal does; neither lets another content pass."""
    event = street.shop.placed()
    order = (await door.post(event, street.shop)).order
    await client.get_workflow_handle(order).terminate()
    other = {**event, "subject": "other"}
    assert (await door.post(event, street.shop)).told == DUPLICATE
    await street.run(f"DELETE FROM events WHERE workflow_id = '{order}'")
    assert (await door.post(other, street.shop)).told == CONFLICT
    again = await door.post(event, street.shop)
    assert (again.told, again.order) == (DUPLICATE, order)
    assert (await door.post(other, street.shop)).told == CONFLICT
    assert await runs_of(client, order) == 1


async def test_an_order_that_temporal_has_forgotten_is_not_started_again(
    own_street: Street, own_server: DevServer, dev_server: DevServer, client: Client
) -> None:
    """T44, T45: by the ledger alone; another Temporal stands for one whose retention is over."""
    event = own_street.shop.placed()
    async with a_door(own_street, own_server, "before") as door:
        order = (await door.post(event, own_street.shop)).order
    async with a_door(own_street, dev_server, "after") as door:
        again = await door.post(event, own_street.shop)
        assert (again.told, again.order) == (DUPLICATE, order)
        assert (await door.post({**event, "subject": "other"}, own_street.shop)).told == CONFLICT
        assert (await door.order(order, own_street.shop)).json["final"] is True
    assert await runs_of(client, order) == 0
