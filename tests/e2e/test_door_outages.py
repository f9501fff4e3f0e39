"""Something is away, is stopped, or has forgotten: nothing is lost, and nothing is started twice."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from temporalio.client import Client

from tests.support.answers import Answer
from tests.support.command_line import PROGRAM
from tests.support.door import Door
from tests.support.observing import eventually, runs_of
from tests.support.processes import bare_environment, run
from tests.support.senders import as_bytes
from tests.support.servers import DevServer, client_of
from tests.support.street import Street, door_on

if TYPE_CHECKING:
    from tests.support.postgres import Postgres

NEW: Final = (202, "new")
DUPLICATE: Final = (200, "duplicate")
CONFLICT: Final = (409, "conflict")


@pytest.fixture
async def own_server(tmp_path: Path) -> AsyncIterator[DevServer]:
    """A Temporal of this test's own that remembers when it is killed."""
    async with DevServer(tmp_path, database=tmp_path / "temporal.db") as server:
        yield server


async def test_an_event_is_not_lost_while_temporal_is_away(own_street: Street, own_server: DevServer) -> None:
    """W06: 503 with Retry-After while it is, then the same event runs, once."""
    async with door_on(own_street, own_server) as door:
        event = own_street.shop.placed()
        await _kill(own_server)
        away = await asyncio.gather(*(door.post(event, own_street.shop) for _ in range(2)))
        assert [answer.status for answer in away] == [503, 503]
        assert {answer.cause for answer in away} <= {"unavailable", "intake-paused"}
        assert await own_street.events() == 1, "it was received before Temporal was found to be away"
        await eventually(lambda: _readiness_is(door, 503))
        await own_server.__aenter__()
        client = await client_of(own_server)
        taken = await eventually(lambda: _taken(door, event, own_street))
        assert taken.told in (NEW, DUPLICATE)
        assert (await door.post(event, own_street.shop)).told == DUPLICATE
        assert await runs_of(client, taken.order) == 1
        await eventually(lambda: _readiness_is(door, 200))


async def _kill(server: DevServer) -> None:
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    await server.__aexit__()


async def _taken(door: Door, event: object, street: Street) -> Answer | None:
    answer = await door.post(event, street.shop)
    if answer.status != 503:
        return answer
    return None


async def _readiness_is(door: Door, status: int) -> bool:
    return (await door.ask("/readyz")).status == status


async def test_an_event_is_not_lost_while_the_ledger_is_away(
    tmp_path: Path, dev_server: DevServer, postgres: "Postgres", client: Client
) -> None:
    """Issue 4: 503 while PostgreSQL is down, and it is found again without a restart of the door."""
    postgres.emptied()
    street = Street(tmp_path, postgres.url())
    street.admit()
    async with door_on(street, dev_server) as door:
        event = street.shop.placed()
        await postgres.stop()
        try:
            assert (await door.post(event, street.shop)).told == (503, "unavailable")
        finally:
            await postgres.start()
        taken = await eventually(lambda: _taken(door, event, street))
        assert taken.told == NEW
        assert await runs_of(client, taken.order) == 1


async def test_nothing_is_stored_while_an_operator_has_paused_the_intake(
    own_street: Street, dev_server: DevServer
) -> None:
    """Issue 4: from the moment the verb returns, 503 for new events and for known ones; resumed, the event is new."""
    environment = bare_environment(ORDERFLOW_STATE_DIR=str(own_street.folder), TEMPORAL_ADDRESS=dev_server.address)
    async with door_on(own_street, dev_server) as door:
        known, event = own_street.shop.placed(), own_street.shop.placed()
        order = (await door.post(known, own_street.shop)).order
        paused = await run(*PROGRAM, "intake", "pause", "--reason", "stock is counted", environment=environment)
        assert paused.code == 0, paused
        told = [(await door.post(each, own_street.shop)).told for each in (event, known)]
        assert told == [(503, "intake-paused")] * 2
        assert await own_street.events() == 1
        assert (await door.order(order, own_street.shop)).json["stage"] == "running"
        resumed = await run(*PROGRAM, "intake", "resume", environment=environment)
        assert resumed.code == 0, resumed
        assert (await door.post(event, own_street.shop)).told == NEW
        assert (await door.post(known, own_street.shop)).told == DUPLICATE


async def test_a_door_that_is_killed_between_writing_down_and_starting_is_made_good(
    own_street: Street, own_server: DevServer
) -> None:
    """W06, issue 4: the retry resumes at another door, be it the same bytes and headers or a delivery of its own."""
    assert own_server.pid is not None
    client = await client_of(own_server)
    events = [own_street.shop.placed(), own_street.shop.placed()]
    bodies = [as_bytes(event) for event in events]
    signed = [own_street.shop.headers(body) for body in bodies]
    async with door_on(own_street, own_server, "killed") as door:
        os.kill(own_server.pid, signal.SIGSTOP)
        try:
            sent = [asyncio.create_task(door.send(*each)) for each in zip(bodies, signed, strict=True)]
            await eventually(lambda: _received(own_street, len(events)))
            await door.child.stop(signal.SIGKILL)
            heard = await asyncio.gather(*sent, return_exceptions=True)
            assert [type(each) for each in heard] == [AssertionError] * len(events), "the door answered before it died"
        finally:
            os.kill(own_server.pid, signal.SIGCONT)
    async with door_on(own_street, own_server, "next") as door:
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
    async with door_on(own_street, dev_server) as door:
        assert (await door.send(body, captured)).told == NEW
        assert await door.child.stop(signal.SIGTERM) == 0
    async with door_on(own_street, dev_server) as door:
        assert (await door.send(body, captured)).told == (409, "replayed")
        assert (await door.post(body, own_street.shop)).told == DUPLICATE


async def test_a_fresh_namespace_burns_no_event(own_street: Street, tmp_path: Path) -> None:
    """T41: a plain dev server without search attributes, and nobody who registered them: the order starts."""
    async with DevServer(tmp_path, plain=True) as plain, door_on(own_street, plain) as door:
        event = own_street.shop.placed()
        taken = await eventually(lambda: _taken(door, event, own_street))
        assert taken.told in (NEW, DUPLICATE)
        client = await client_of(plain)
        assert await runs_of(client, taken.order) == 1


async def test_an_order_that_temporal_has_forgotten_is_not_started_again(
    own_street: Street, own_server: DevServer, dev_server: DevServer, client: Client
) -> None:
    """T44, T45: by the ledger alone; another Temporal stands for one whose retention is over."""
    event = own_street.shop.placed()
    async with door_on(own_street, own_server, "before") as door:
        order = (await door.post(event, own_street.shop)).order
    async with door_on(own_street, dev_server, "after") as door:
        again = await door.post(event, own_street.shop)
        assert (again.told, again.order) == (DUPLICATE, order)
        assert (await door.post({**event, "subject": "other"}, own_street.shop)).told == CONFLICT
        assert (await door.order(order, own_street.shop)).json["final"] is True
    assert await runs_of(client, order) == 0
