"""The worker as a process of its own: it comes up by itself, drains when it is told to, and may die at any moment."""

import os
import signal
import sys
from collections.abc import AsyncIterator, Collection
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from temporalio.client import Client

from orderflow.catalogue import load_catalogue
from orderflow.client import connect, start_order
from orderflow.definitions import load_packaged
from orderflow.domain.approvals import Refusal
from orderflow.domain.orders import Stage
from orderflow.embedded import free_port
from tests.approval_requests import claims
from tests.support.invariants import Books, check_books
from tests.support.observing import at_stage, eventually
from tests.support.processes import WORKER, Child, TemporalCli, bare_environment, run, worker_of
from tests.support.servers import DevServer
from tests.support.shop import Order, Shop, open_shop, order_event, quick

NO_SIGNALS: Final = """
import asyncio, sys
def add_signal_handler(*_): raise NotImplementedError
asyncio.SelectorEventLoop.add_signal_handler = add_signal_handler
from orderflow.worker import main
sys.exit(main())
"""
"""A worker on an event loop that knows no signals, as on Windows."""

ELSEWHERE: Final = "127.1"
"""This machine, under a name that is not surely this machine."""


def hasty(value: dict[str, Any]) -> None:
    """Three attempts with short timeouts, under a version of its own, so that a worker can publish it."""
    quick(value)
    value["version"] = "1.0.1"


@pytest.fixture
async def shop(client: Client, tmp_path: Path) -> AsyncIterator[Shop]:
    """A shop for worker processes, with the packaged definition."""
    async with open_shop(client, tmp_path) as opened:
        yield opened


@pytest.fixture
async def hasty_shop(client: Client, tmp_path: Path) -> AsyncIterator[Shop]:
    """A shop for worker processes, whose attempts are soon given up."""
    async with open_shop(client, tmp_path, change=hasty) as opened:
        yield opened


def outcomes(shop: Shop, operation: str) -> list[Any]:
    """What the simulated providers wrote down of an operation, lookups included."""
    return [line["outcome"] for line in shop.world.log() if line.get("operation") == operation]


async def seen(shop: Shop, operation: str, times: int) -> None:
    """Wait until a provider was asked about an operation so often."""

    async def look() -> bool:
        return len(outcomes(shop, operation)) == times

    await eventually(look)


async def completed(order: Order, exempt: Collection[str] = ()) -> Books:
    """Wait for the end of an order, which must have been done right and once; gives its books."""
    assert (await order.result()).stage is Stage.COMPLETED
    assert order.shop.world.net_charged(order.id) == order.event.data.total_minor
    await check_books(books := await order.books(), exempt)
    return books


async def test_a_worker_makes_itself_at_home_beside_a_plain_dev_server(tmp_path: Path) -> None:
    """T41: nothing is registered and nothing configured; it says when it is ready, and orders have their stage."""
    async with DevServer(tmp_path, plain=True) as server:
        environment = bare_environment(TEMPORAL_ADDRESS=server.address)
        async with Child(WORKER, tmp_path / "here", environment) as worker:
            await worker.until_said(f"worker ready: default at {server.address}, task queue orderflow")
            assert "development keys in use" in worker.said
            client = await connect(address=server.address, use_profile=False)
            started = await start_order(client, order_event(), load_packaged(load_catalogue()))
            await at_stage(client.get_workflow_handle(started.order), Stage.AWAITING_APPROVAL)
            assert await worker.stop() == 0
    assert (tmp_path / "here" / ".orderflow" / "ledger.db").is_file()


async def test_sigterm_lets_a_charge_that_runs_come_to_its_end(shop: Shop) -> None:
    """T24: the stopping worker reports it as done, on its first attempt, and exits 0; the next one goes on."""
    order = await shop.start()
    shop.fault("delay", "charge", order.id, milliseconds=3000)
    async with worker_of(shop, "first") as first:
        await order.approve()
        await seen(shop, "charge", 1)
        assert outcomes(shop, "charge") == ["started"]
        assert await first.stop(signal.SIGTERM) == 0
    assert outcomes(shop, "charge") == ["started", "done"]
    assert "worker draining" in first.said
    async with worker_of(shop, "second"):
        books = await completed(order)
    started = [event.activity_task_started_event_attributes for event in books.events("ActivityTaskStarted")]
    assert [attributes.attempt for attributes in started] == [1, 1, 1, 1]
    assert not [name for name in ("ActivityTaskFailed", "ActivityTaskTimedOut") if books.events(name)]


async def test_sigkill_on_every_attempt_leaves_no_failed_order_with_a_charge(hasty_shop: Shop) -> None:
    """T25: each dies behind the provider's commit, until no attempt is left; the last look finds the charge."""
    shop = hasty_shop
    order = await shop.start()
    shop.fault("hang", "charge", order.id)
    shop.fault("hang", "lookup", order.id, times=2)
    for attempt in (1, 2, 3):
        async with worker_of(shop, f"worker-{attempt}") as worker:
            if attempt == 1:
                await order.approve()
            await seen(shop, "charge", attempt)
            assert await worker.stop(signal.SIGKILL) == -signal.SIGKILL
    async with worker_of(shop, "last"):
        books = await completed(order, exempt={"I-5"})  # a task that was meant for a dead worker timed out
    assert [line["kind"] for line in books.log if line["operation"] == "charge"] == ["act", *["lookup"] * 3]
    scheduled = [each.activity_id for each in books.scheduled()]
    assert scheduled == ["reserve_inventory", "risk_check", "charge", "charge-settle", "notify"]


async def test_messages_that_come_while_no_worker_runs_are_looked_at_later(shop: Shop, cli: TemporalCli) -> None:
    """T11: before the first step nothing can be approved; while the order waits, a bad message hides no good one."""
    order = await shop.start()
    now = int(datetime.now(UTC).timestamp())
    await order.send(shop.keys["alice"].sign(claims(workflow_id=order.id, iat=now, expires_at=now + 3600)))
    async with worker_of(shop, "first") as first:
        await at_stage(order.handle, Stage.AWAITING_APPROVAL)
        token = await order.token()
        assert [refused.reason for refused in (await order.view()).refusals] == [Refusal.NO_SUCH_REQUEST]
        assert await first.stop() == 0
    await cli.json("signal", "--workflow-id", order.id, "--name", "approve")
    await order.send(token)
    async with worker_of(shop, "second"):
        await completed(order)
        reasons = [refused.reason for refused in (await order.view()).refusals]
    assert reasons == [Refusal.NO_SUCH_REQUEST, Refusal.MALFORMED]


async def test_without_a_server_one_line_says_what_to_start(tmp_path: Path) -> None:
    """Issue 2: exit code 3, for a supervisor to try again."""
    address = f"127.0.0.1:{free_port()}"
    ran = await run(*WORKER, folder=tmp_path, environment=absent(address, wait="0"))
    assert (ran.code, ran.out) == (3, "")
    assert len(ran.err.splitlines()) == 1
    assert address in ran.err
    assert "temporal server start-dev" in ran.err


def absent(address: str, wait: str) -> dict[str, str]:
    """The environment of a worker whose server is not there yet."""
    return bare_environment(TEMPORAL_ADDRESS=address, ORDERFLOW_WAIT_FOR_SERVER=wait)


async def test_a_server_that_comes_later_is_waited_for(tmp_path: Path) -> None:
    """Issue 2: started in any order, they find each other."""
    server = DevServer(tmp_path, plain=True)
    async with Child(WORKER, tmp_path / "here", absent(server.address, wait="60")) as worker:
        await worker.until_said("still trying")
        async with server:
            await worker.until_said("worker ready")
            assert await worker.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_worker_that_waits_for_a_server_can_be_stopped(number: signal.Signals, tmp_path: Path) -> None:
    """However long it would have waited."""
    environment = absent(f"127.0.0.1:{free_port()}", wait="forever")
    async with Child(WORKER, tmp_path, environment) as worker:
        await worker.until_said("still trying")
        assert await worker.stop(number) == 0


async def test_away_from_this_machine_no_key_is_made_up(dev_server: DevServer, tmp_path: Path) -> None:
    """DESIGN section 10: exit code 2, and the line names what is missing; nothing was made."""
    address = f"{ELSEWHERE}:{dev_server.address.rpartition(':')[2]}"
    ran = await run(*WORKER, folder=tmp_path, environment=bare_environment(TEMPORAL_ADDRESS=address))
    assert (ran.code, ran.out) == (2, "")
    assert "ORDERFLOW_APPROVERS_FILE is not set" in ran.err
    assert len(ran.err.splitlines()) == 1
    assert os.listdir(tmp_path) == []


async def test_a_setting_of_no_provider_ends_the_worker_before_it_makes_anything(
    dev_server: DevServer, tmp_path: Path
) -> None:
    """I07: exit code 2 and one line, for a name that is misspelt."""
    told = {"ORDERFLOW_PROVIDER_PAYMENT_LISTS": "true", "TEMPORAL_ADDRESS": dev_server.address}
    ran = await run(*WORKER, folder=tmp_path, environment=bare_environment(**told))
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1)
    assert ran.err.startswith("ORDERFLOW_PROVIDER_PAYMENT_LISTS: belongs to no provider; there are ")
    assert "payments" in ran.err
    assert "did you mean ORDERFLOW_PROVIDER_PAYMENTS_LISTS?" in ran.err
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_loop_that_knows_no_signals_is_no_obstacle(
    number: signal.Signals, dev_server: DevServer, tmp_path: Path
) -> None:
    """T51: as on Windows, the worker runs all the same and can be stopped."""
    command = (sys.executable, "-c", NO_SIGNALS)
    environment = bare_environment(TEMPORAL_ADDRESS=dev_server.address, ORDERFLOW_TASK_QUEUE=f"no-signals-{number}")
    async with Child(command, tmp_path, environment) as worker:
        await worker.until_said("worker ready")
        assert await worker.stop(number) == 0
        assert "worker stopped" in worker.said
