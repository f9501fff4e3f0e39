"""Real workers with their ledger on a real PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from temporalio.client import Client

from orderflow.domain.effects import EffectState
from orderflow.domain.orders import Stage
from orderflow.embedded import free_port
from orderflow.ledger.schema import LATEST
from tests.support.command_line import run_process
from tests.support.invariants import check_books
from tests.support.postgres import GUARDED, PASSWORD, Postgres
from tests.support.processes import WORKER, bare_environment, run, worker_of
from tests.support.servers import DevServer
from tests.support.shop import Shop, open_shop

SESSIONS: Final = f"""
SELECT count(*), count(*) FILTER (
    WHERE state = 'idle in transaction' AND clock_timestamp() - state_change > interval '1 second'
) FROM pg_stat_activity WHERE usename = '{GUARDED}'
"""
"""How many connections the worker's user has, and how many of them do nothing within a transaction for a second."""


@pytest.fixture
def server(postgres: Postgres) -> Postgres:
    """The server, its ledger without an effect, and its guarded user with the rights of a worker."""
    postgres.emptied()
    postgres.run(f"GRANT orderflow_worker TO {GUARDED}")
    return postgres


@pytest.fixture
async def shop(client: Client, tmp_path: Path, server: Postgres) -> AsyncIterator[Shop]:
    """A shop whose ledger is on PostgreSQL; its workers are processes."""
    async with open_shop(client, tmp_path, ledger_url=server.url()) as opened:
        yield opened


async def watch(server: Postgres) -> None:
    """Look at the worker's sessions until cancelled."""
    while True:
        ((sessions, waiting),) = await asyncio.to_thread(server.run, SESSIONS)
        assert (sessions <= 2, waiting) == (True, 0)
        await asyncio.sleep(0.2)


async def test_ten_orders_share_two_connections_while_their_charges_take_long(shop: Shop, server: Postgres) -> None:
    """D07: no transaction is open meanwhile, and every order ends right."""
    orders = [await shop.start() for _ in range(10)]
    for order in orders:
        shop.fault("delay", "charge", order.id, milliseconds=3000)
    own: dict[str, Any] = {"ledger_url": server.url(user=GUARDED), "ledger_password": PASSWORD, "ledger_connections": 2}
    async with worker_of(shop, **own) as worker, asyncio.TaskGroup() as group:
        watching = group.create_task(watch(server))
        for order in orders:
            await order.until(Stage.AWAITING_APPROVAL)
            await order.approve()
        for order in orders:
            assert (await order.result()).stage is Stage.COMPLETED
            await check_books(books := await order.books())
            assert {record.state for record in books.effects} == {EffectState.COMMITTED}
        watching.cancel()
    assert "PostgreSQL database ledger at " in worker.said
    assert PASSWORD not in worker.said


async def test_show_and_doctor_find_the_ledger_of_the_workers(
    shop: Shop, server: Postgres, dev_server: DevServer
) -> None:
    """Wherever they run, with the same settings."""
    order = await shop.start()
    environment = {
        "TEMPORAL_ADDRESS": dev_server.address,
        "ORDERFLOW_TASK_QUEUE": shop.task_queue,
        "ORDERFLOW_LEDGER_URL": server.url(user=GUARDED),
        "ORDERFLOW_LEDGER_PASSWORD": PASSWORD,
    }
    async with shop.worker():
        await order.until(Stage.AWAITING_APPROVAL)
        shown = (await run_process("show", order.id, "--json", environment=environment)).json
    assert [(effect["step"], effect["state"]) for effect in shown["effects"]] == [("reserve_inventory", "committed")]
    found = (await run_process("doctor", "--json", environment=environment)).json
    (ledger,) = [check for check in found["checks"] if check["name"] == "ledger"]
    assert ledger["health"] == "ok"
    assert f"schema {LATEST}" in ledger["says"]


async def test_a_worker_refuses_a_database_without_tables_until_it_is_upgraded(
    postgres: Postgres, dev_server: DevServer, tmp_path: Path
) -> None:
    """One line with the command; the command, run with the same settings, is all that it takes."""
    url = postgres.new_database("fresh")
    environment = bare_environment(TEMPORAL_ADDRESS=dev_server.address, ORDERFLOW_LEDGER_URL=url)
    refused = await run(*WORKER, folder=tmp_path, environment=environment)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.splitlines()[-1].endswith("has no tables yet; run `orderflow db upgrade`")
    assert (await run_process("db", "upgrade", environment=environment)).code == 0
    assert (await run_process("db", "current", "--json", environment=environment)).json["up_to_date"] is True


async def test_a_worker_with_another_roles_user_says_what_to_grant(
    server: Postgres, dev_server: DevServer, tmp_path: Path
) -> None:
    """Before it takes an order: one line for whoever administers the database."""
    url = server.url(user=server.member("orderflow_operator"))
    environment = bare_environment(TEMPORAL_ADDRESS=dev_server.address, ORDERFLOW_LEDGER_URL=url)
    refused = await run(*WORKER, folder=tmp_path, environment=environment)
    assert (refused.code, refused.out) == (2, "")
    assert 'for a worker: GRANT orderflow_worker TO "a_orderflow_operator"' in refused.err.splitlines()[-1]


async def test_a_worker_whose_database_is_not_there_exits_with_3(dev_server: DevServer, tmp_path: Path) -> None:
    """Whoever restarts it may find the database then."""
    address = f"postgresql://u@127.0.0.1:{free_port()}/d"
    environment = bare_environment(TEMPORAL_ADDRESS=dev_server.address, ORDERFLOW_LEDGER_URL=address)
    refused = await run(*WORKER, folder=tmp_path, environment=environment)
    assert refused.code == 3
    assert "check ORDERFLOW_LEDGER_URL, and that the server runs" in refused.err
    assert "Traceback" not in refused.err
