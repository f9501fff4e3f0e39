from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from orderflow.ledger import EffectLedger
from orderflow.providers.http import Timeouts, open_http_providers
from orderflow.providers.simulated import PROVIDERS, SimulatedWorld
from orderflow.simulator import serving
from tests.support.ledger import LedgerDatabase, sqlite_database
from tests.support.postgres import Postgres
from tests.support.providers import Backend, new_order


@pytest.fixture(scope="module", params=["in_process", "http"])
async def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Backend]:
    """The simulated providers, called in process and then through their HTTP server."""
    world = SimulatedWorld(tmp_path_factory.mktemp("world") / "log.jsonl")
    names = (*PROVIDERS, "shipping")
    if request.param == "in_process":
        yield Backend(world, {name: world.provider(name) for name in names})
        await world.aclose()
        return
    async with serving(world) as url:
        providers = open_http_providers(url, names, Timeouts(read=30))
        yield Backend(world, providers)
        await providers["risk"].aclose()


@pytest.fixture
def order() -> str:
    """A workflow id that no other test uses."""
    return new_order()


@pytest.fixture
def world(tmp_path: Path) -> SimulatedWorld:
    """A new world, with a log of its own."""
    return SimulatedWorld(tmp_path / "state" / "log.jsonl")


@pytest.fixture(params=["sqlite", "postgres"])
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[LedgerDatabase]:
    """A database without an effect, on each backend."""
    if request.param == "sqlite":
        opened = sqlite_database(tmp_path / "ledger.db")
    else:
        server: Postgres = request.getfixturevalue("postgres")
        server.emptied()
        opened = LedgerDatabase(server.url())
    yield opened
    await opened.aclose()


@pytest.fixture
async def ledger(database: LedgerDatabase) -> EffectLedger:
    """A ledger on it."""
    return await database.open()
