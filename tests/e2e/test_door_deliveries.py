"""Deliveries that come again, at once, or with another content: one order, one content."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from temporalio.client import Client

from tests.support.door import Door
from tests.support.observing import runs_of
from tests.support.senders import as_bytes
from tests.support.servers import DevServer
from tests.support.street import Street, door_on

if TYPE_CHECKING:
    from tests.support.postgres import Postgres

NEW: Final = (202, "new")
DUPLICATE: Final = (200, "duplicate")
CONFLICT: Final = (409, "conflict")
AT_ONCE: Final = 50


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
    async with door_on(street, dev_server, "one") as one, door_on(street, dev_server, "other") as other:
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
    async with door_on(street, dev_server, "one") as one, door_on(street, dev_server, "other") as other:
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
