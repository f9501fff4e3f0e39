"""One dev server whose state is in a file, simulated providers as a server, and a seed for whatever is generated."""

import os
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
from temporalio.client import Client

from tests.chaos.crew import Crew, hurried, open_crew
from tests.support.postgres import Postgres
from tests.support.servers import DevServer, client_of

SEED: Final = "ORDERFLOW_TEST_CHAOS_SEED"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A busy machine may take its time over processes that die."""
    folder = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(folder):
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
async def dev_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DevServer]:
    """A dev server that finds its orders again after a restart."""
    folder = tmp_path_factory.mktemp("temporal")
    async with DevServer(folder, database=folder / "temporal.db") as server:
        yield server


@pytest.fixture(scope="session")
async def client(dev_server: DevServer) -> Client:
    """A client of it, with the search attributes registered."""
    return await client_of(dev_server)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
async def workers(
    request: pytest.FixtureRequest, client: Client, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Crew]:
    """Two workers for all tests of a module, on a database of either kind."""
    url = ""
    if request.param == "postgresql":
        postgres.emptied()
        url = postgres.url()
    folder = tmp_path_factory.mktemp(request.param)
    async with open_crew(client, folder, hurried(20), ledger_url=url) as opened:
        yield opened


@pytest.fixture
async def crew(workers: Crew) -> AsyncIterator[Crew]:
    """Those two workers, without an order; whatever a test does to them, all are awake after it."""
    yield workers
    workers.wake_up()
    workers.shop.orders.clear()
    workers.require_alive()


@pytest.fixture(scope="session")
def seed() -> int:
    """What all generated moments are drawn from; the variable `SEED` sets it."""
    return int(os.environ.get(SEED) or random.randrange(2**32))


@pytest.fixture(autouse=True)
def _told(seed: int) -> None:
    print(f"replay with {SEED}={seed}")
