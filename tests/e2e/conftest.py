"""One Temporal dev server and one street with two doors for the tests of this folder; no worker takes their orders."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from temporalio.client import Client

from tests.support.door import Door, open_door
from tests.support.servers import DevServer, client_of
from tests.support.street import Street

PATIENT = {"ORDERFLOW_INTAKE_BACKLOG_LIMIT": "3600", "ORDERFLOW_TASK_QUEUE": "nobody-works"}
"""Settings of doors behind which nobody works, and which stay open all the same."""


@pytest.fixture(scope="session")
async def dev_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DevServer]:
    """A dev server."""
    async with DevServer(tmp_path_factory.mktemp("temporal")) as server:
        yield server


@pytest.fixture(scope="session")
async def client(dev_server: DevServer) -> Client:
    """A client of it, with the search attributes registered."""
    return await client_of(dev_server)


@pytest.fixture(scope="session")
def street(tmp_path_factory: pytest.TempPathFactory) -> Street:
    """Callers of the doors."""
    street = Street(tmp_path_factory.mktemp("street"))
    street.admit()
    return street


@pytest.fixture(scope="session")
async def doors(street: Street, client: Client, dev_server: DevServer) -> AsyncIterator[tuple[Door, Door]]:
    """Two doors over one ledger."""
    settings = {**street.environment, **PATIENT, "TEMPORAL_ADDRESS": dev_server.address}
    async with AsyncExitStack() as opened:
        first, second = [
            await opened.enter_async_context(open_door(street.folder, settings, name=f"door-{number}"))
            for number in (1, 2)
        ]
        yield first, second


@pytest.fixture(scope="session")
def door(doors: tuple[Door, Door]) -> Door:
    """One of them."""
    return doors[0]
