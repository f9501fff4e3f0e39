"""One real Temporal dev server, started without a flag of ours, for all tests of this folder."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.client import Client

from tests.support.processes import TemporalCli
from tests.support.servers import DevServer, client_of
from tests.support.shop import Shop, open_shop, quick


@pytest.fixture(scope="session")
async def dev_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DevServer]:
    """A plain dev server."""
    async with DevServer(tmp_path_factory.mktemp("temporal"), plain=True) as server:
        yield server


@pytest.fixture(scope="session")
async def client(dev_server: DevServer) -> Client:
    """A client of it, with the search attributes registered."""
    return await client_of(dev_server)


@pytest.fixture
async def shop(client: Client, tmp_path: Path) -> AsyncIterator[Shop]:
    """A shop on that server, with short pauses and timeouts; its worker is not running yet."""
    async with open_shop(client, tmp_path, change=quick) as opened:
        yield opened


@pytest.fixture
def cli(dev_server: DevServer) -> TemporalCli:
    """Temporal's own command line, at that server."""
    return TemporalCli(dev_server.address)
