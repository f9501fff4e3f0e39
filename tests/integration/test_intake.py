"""The gate of a door in front of a real server: what Temporal tells of a backlog, and what it does not while away."""

import os
import signal
import sys
import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.client import Client

from orderflow.client import connect
from orderflow.client.backlog import look
from orderflow.domain.intake import Look
from orderflow.domain.orders import Stage
from orderflow.ingress.gate import Gate
from orderflow.settings import Settings
from tests.support.counter import Counter
from tests.support.observing import eventually
from tests.support.servers import DevServer
from tests.support.shop import Shop, open_shop

pytestmark = pytest.mark.timeout(90)


async def looks_until(gate: Gate, *, closed: bool) -> bool:
    """Let a gate look until it stands so; gives that it does."""

    async def turn() -> bool:
        await gate.look()
        return (gate.verdict() is not None) is closed

    return await eventually(turn, pause=0.2)


async def seen_until(client: Client, task_queue: str, wanted: Callable[[Look], bool]) -> Look:
    """Look at a task queue until something is seen."""

    async def turn() -> Look | None:
        seen = await look(client, task_queue)
        return seen if wanted(seen) else None

    return await eventually(turn, pause=0.2)


async def test_an_empty_queue_has_no_age(client: Client) -> None:
    """Nor has one that nobody ever used."""
    assert await look(client, f"nobody-{uuid.uuid4().hex}") == Look(oldest=timedelta(0), waiting=0)


async def test_a_backlog_without_a_worker_closes_the_door_and_a_worker_opens_it(shop: Shop) -> None:
    """The order that waited goes on: the gate is before new events only."""
    settings = Settings(task_queue=shop.task_queue, intake_backlog_limit=1)
    gate = Gate(shop.ledger, shop.client, settings, "door")
    order = await shop.start()
    assert await looks_until(gate, closed=True)
    seen = await seen_until(shop.client, shop.task_queue, lambda seen: (seen.oldest or timedelta(0)).seconds >= 3)
    assert (seen.fault, seen.waiting) == (None, 1)
    async with shop.worker():
        await order.until(Stage.AWAITING_APPROVAL)
        assert await looks_until(gate, closed=False)
        await order.cancel()
        await order.ending()


async def test_the_status_tells_what_waits_now_and_how_the_door_stands(counter: Counter) -> None:
    """What Temporal says itself stands beside what the door has found out, which may be two seconds old."""
    shop = counter.shop
    gate = Gate(shop.ledger, shop.client, Settings(task_queue=shop.task_queue, intake_backlog_limit=1), "door")
    await counter.submit()
    assert await looks_until(gate, closed=True)
    await gate.tell()
    told = (await counter("intake", "status", "--json")).json
    assert (told["temporal"]["fault"], told["temporal"]["waiting_tasks"]) == (None, 1)
    assert told["temporal"]["oldest_task_seconds"] > 1
    assert [(door["door"], door["open"]) for door in told["doors"]] == [("door", False)]
    assert "wait for a worker: 1, the oldest for" in (await counter("intake", "status")).out


async def test_a_pause_does_not_touch_the_orders_that_run(open_counter: Counter) -> None:
    """They are approved and charged as if nothing were."""
    order = await open_counter.pending()
    assert (await open_counter("intake", "pause", "--reason", "the warehouse moves", "--by", "carol")).code == 0
    assert (await open_counter("approve", order.id, "--as", "alice")).code == 0
    await order.until(Stage.COMPLETED)
    assert open_counter.charges(order) == ["done"]


async def test_tasks_of_an_order_whose_worker_has_stopped_are_seen(shop: Shop) -> None:
    """They do not stay in the queue of that worker's own, of which nothing is told."""
    async with shop.worker():
        order = await shop.start()
        await order.until(Stage.AWAITING_APPROVAL)
    await order.cancel()
    await seen_until(shop.client, shop.task_queue, lambda seen: bool(seen.waiting))
    async with shop.worker():
        await order.ending()


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGSTOP on Windows")
async def test_a_temporal_that_hangs_does_not_answer(tmp_path: Path) -> None:
    """Nor does the look hang with it."""
    async with DevServer(tmp_path) as server:
        client = await connect(address=server.address, namespace="default", use_profile=False)
        assert (await look(client, "orders")).fault is None
        assert server.pid is not None
        os.kill(server.pid, signal.SIGSTOP)
        try:
            await seen_until(client, "orders", lambda seen: seen.fault is not None)  # a signal takes a moment
        finally:
            os.kill(server.pid, signal.SIGCONT)


async def test_a_temporal_that_stops_closes_the_door_and_one_that_is_back_opens_it(tmp_path: Path) -> None:
    """The same client throughout: a door is not restarted for it."""
    async with DevServer(tmp_path, database=tmp_path / "temporal.db") as server:
        client = await connect(address=server.address, namespace="default", use_profile=False)
        async with open_shop(client, tmp_path) as shop:
            gate = Gate(shop.ledger, client, Settings(task_queue=shop.task_queue), "door")
            assert await looks_until(gate, closed=False)
            await server.__aexit__()
            assert await looks_until(gate, closed=True)
            await gate.tell()
            (said,) = await shop.ledger.intake()
            assert (said.scope, said.paused, said.changed_by) == ("door", True, "door")
            assert server.address in said.reason
            await server.__aenter__()
            assert await looks_until(gate, closed=False)
