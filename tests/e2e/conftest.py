"""One Temporal dev server and one street with two doors for the tests of this folder; no worker takes their orders."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.client import Client

from tests.support.door import Door
from tests.support.servers import DevServer, client_of
from tests.support.street import Street, door_on


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
    return _street(tmp_path_factory.mktemp("street"))


@pytest.fixture(scope="session")
async def doors(street: Street, client: Client, dev_server: DevServer) -> AsyncIterator[tuple[Door, Door]]:
    """Two doors over one ledger."""
    async with door_on(street, dev_server, "door-1") as first, door_on(street, dev_server, "door-2") as second:
        yield first, second


@pytest.fixture(scope="session")
def door(doors: tuple[Door, Door]) -> Door:
    """One of them."""
    return doors[0]


@pytest.fixture
def own_street(tmp_path: Path) -> Street:
    """A street, and so a ledger, of the test's own."""
    return _street(tmp_path)


def _street(folder: Path) -> Street:
    street = Street(folder)
    street.admit()
    return street
