from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from orderflow.providers.http import Timeouts, open_http_providers
from orderflow.providers.simulated import PROVIDERS, SimulatedWorld
from orderflow.simulator import serving
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
