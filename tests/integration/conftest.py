"""One real Temporal dev server, started without a flag of ours, for all tests of this folder."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.client import Client

from tests.support.command_line import unconfigure
from tests.support.counter import Counter
from tests.support.processes import TemporalCli
from tests.support.servers import DevServer, client_of
from tests.support.shop import Shop, check_orders, open_for_business, open_shop, quick


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


@pytest.fixture
def counter(shop: Shop, dev_server: DevServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counter:
    """A shell whose settings lead to the shop; no worker runs."""
    unconfigure(tmp_path, monkeypatch)
    monkeypatch.setenv("TEMPORAL_ADDRESS", dev_server.address)
    monkeypatch.setenv("ORDERFLOW_TASK_QUEUE", shop.task_queue)
    monkeypatch.setenv("ORDERFLOW_LEDGER_URL", f"sqlite:///{tmp_path / 'ledger.db'}")
    monkeypatch.setenv("ORDERFLOW_KEYS_DIR", "keys")
    for name, key in shop.keys.items():
        key.save(tmp_path / "keys" / f"{name}.json")
    dumped = shop.definition.model_dump_json(exclude_defaults=True)
    (tmp_path / "definition.json").write_text(dumped, encoding="utf-8")
    return Counter(shop, tmp_path)


@pytest.fixture
async def open_counter(counter: Counter) -> AsyncIterator[Counter]:
    """The same with a running worker; at the end the books of all orders are checked."""
    async with counter.shop.worker() as counter.shop.running:
        yield counter
        await check_orders(counter.shop)


@pytest.fixture
async def busy_shop(client: Client, tmp_path: Path) -> AsyncIterator[Shop]:
    """A shop whose worker runs; the books of all its orders are checked, replay included, when the test is over."""
    async with open_for_business(client, tmp_path, change=quick) as opened:
        yield opened
