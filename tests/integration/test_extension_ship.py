"""The example package in a real worker process: a step of its own is done once, and taken back like any other."""

import json
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

import pytest
from temporalio.client import Client

from orderflow.domain.definition import Definition
from orderflow.domain.orders import Stage, StepState
from tests.support.extension import install
from tests.support.invariants import check_books
from tests.support.processes import worker_of
from tests.support.shop import Shop, open_shop

ALWAYS = datetime(2000, 1, 1, tzinfo=UTC)

AT_ANOTHER_PROVIDER = frozenset({"I-2", "ledger"})
"""What compares with the simulator's log, in which no parcel stands."""


@pytest.fixture(scope="module")
def definitions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The installed package's folder of definitions; processes that tests start find the package too."""
    site = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        folder = install(site)
        patch.syspath_prepend(site)
        yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "orderflow_ship"]:
        del sys.modules[name]


@dataclass(frozen=True)
class Carrier:
    """A shop that ships: the definition that does, and the books of the provider that the package brought."""

    shop: Shop
    definition: Definition
    database: Path

    async def log(self) -> list[str]:
        """What the carrier really did, the oldest first."""
        provider = import_module("orderflow_ship.shipping").open_shipping({"database": str(self.database)})
        return [entry.operation for entry in await provider.list(ALWAYS)]


@pytest.fixture
async def carrier(client: Client, tmp_path: Path, definitions: Path) -> AsyncIterator[Carrier]:
    """Such a shop with a real worker process that has nothing but the package and its settings."""
    database = tmp_path / "shipping.db"
    async with open_shop(client, tmp_path, kinds=[import_module("orderflow_ship").SHIP]) as shop:
        definition = shop.define(json.loads((definitions / "order_with_shipping.v1.json").read_text()))
        async with worker_of(shop, definitions_dir=definitions, provider_shipping_database=database):
            yield Carrier(shop, definition, database)


async def test_an_order_is_shipped_between_charge_and_message(carrier: Carrier) -> None:
    """Issue 2: one parcel, and the order completes."""
    order = await carrier.shop.start(definition=carrier.definition)
    await order.approve()
    outcome = await order.result()
    assert [(record.step, record.state) for record in outcome.steps][-3:] == [
        ("charge", StepState.DONE),
        ("ship", StepState.DONE),
        ("notify", StepState.DONE),
    ]
    assert await carrier.log() == ["ship"]
    await check_books(await order.books(), exempt=AT_ANOTHER_PROVIDER)


async def test_a_later_failure_cancels_the_shipment_first(carrier: Carrier) -> None:
    """Issue 2: in reverse order of what was done: parcel, money, stock."""
    order = await carrier.shop.start(definition=carrier.definition)
    carrier.shop.fault("decline", "notify", order.id)
    await order.approve()
    ending = await order.ending()
    assert ending.view.stage is Stage.FAILED_COMPENSATED
    assert [event.subject for event in ending.view.trail if event.detail == StepState.UNDONE] == [
        "ship",
        "charge",
        "reserve_inventory",
    ]
    assert await carrier.log() == ["ship", "cancel"]
    assert carrier.shop.world.net_charged(order.id) == 0
    await check_books(await order.books(), exempt=AT_ANOTHER_PROVIDER)
