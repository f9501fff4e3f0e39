"""The example package in a real worker process: a step of its own is done once, and taken back like any other."""

import json
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest
from temporalio.client import Client

from orderflow.domain.definition import Definition
from orderflow.domain.orders import Stage, StepState
from tests.support.extension import install
from tests.support.invariants import check_books
from tests.support.observing import at_stage, eventually
from tests.support.processes import WORKER, Child, worker_of
from tests.support.shop import Order, Shop, open_shop, order_event

ALWAYS: Final = datetime(2000, 1, 1, tzinfo=UTC)

AT_ANOTHER_PROVIDER: Final = frozenset({"I-2", "ledger"})
"""What compares with the simulator's log, in which no parcel stands."""

NEVER_REPORTS: Final = """
import asyncio, sys
from orderflow_ship.shipping import Shipping
ship = Shipping.perform
async def hang(self, act):
    if act.intent["order_id"] == "shipped":
        await ship(self, act)
    await asyncio.sleep(3600)
Shipping.perform = hang
from orderflow.worker import main
sys.exit(main())
"""
"""A worker whose provider never comes back: before it has shipped or, for one order, after that."""


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
    """A shop that ships: the package's definitions, the one that does, and the books of the package's provider."""

    shop: Shop
    definitions: Path
    definition: Definition
    database: Path

    def worker(self, name: str = "worker", command: Sequence[str] = WORKER) -> Child:
        """A real worker process that has nothing but the package and its settings."""
        settings = {"definitions_dir": self.definitions, "provider_shipping_database": self.database}
        return worker_of(self.shop, name, command, **settings)

    async def log(self) -> list[str]:
        """What the carrier really did, the oldest first."""
        provider = import_module("orderflow_ship.shipping").open_shipping({"database": str(self.database)})
        return [entry.operation for entry in await provider.list(ALWAYS)]


@pytest.fixture
async def carrier(client: Client, tmp_path: Path, definitions: Path) -> AsyncIterator[Carrier]:
    """Such a shop; its worker is not running yet."""
    async with open_shop(client, tmp_path, kinds=[import_module("orderflow_ship").SHIP]) as shop:
        definition = shop.define(json.loads((definitions / "order_with_shipping.v1.json").read_text()))
        yield Carrier(shop, definitions, definition, tmp_path / "shipping.db")


async def test_an_order_is_shipped_between_charge_and_message(carrier: Carrier) -> None:
    """Issue 2: one parcel, and the order completes."""
    order = await carrier.shop.start(definition=carrier.definition)
    async with carrier.worker():
        await order.approve()
        outcome = await order.result()
        books = await order.books()
    assert [(record.step, record.state) for record in outcome.steps][-3:] == [
        ("charge", StepState.DONE),
        ("ship", StepState.DONE),
        ("notify", StepState.DONE),
    ]
    assert await carrier.log() == ["ship"]
    await check_books(books, exempt=AT_ANOTHER_PROVIDER)


async def test_a_later_failure_cancels_the_shipment_first(carrier: Carrier) -> None:
    """Issue 2: in reverse order of what was done: parcel, money, stock."""
    order = await carrier.shop.start(definition=carrier.definition)
    carrier.shop.fault("decline", "notify", order.id)
    async with carrier.worker():
        await order.approve()
        ending = await order.ending()
        books = await order.books()
    assert ending.view.stage is Stage.FAILED_COMPENSATED
    assert [event.subject for event in ending.view.trail if event.detail == StepState.UNDONE] == [
        "ship",
        "charge",
        "reserve_inventory",
    ]
    assert await carrier.log() == ["ship", "cancel"]
    assert [line["operation"] for line in order.lines()][-2:] == ["refund", "release"]
    assert carrier.shop.world.net_charged(order.id) == 0
    await check_books(books, exempt=AT_ANOTHER_PROVIDER)


async def test_a_worker_killed_while_it_ships_ships_once(carrier: Carrier) -> None:
    """Issue 2: whether its provider had acted or not; the next worker makes sure of that before anything else."""
    shop = carrier.shop
    orders = [await shop.start(order_event(order_id=name), carrier.definition) for name in ("shipped", "unshipped")]
    async with carrier.worker("first", (sys.executable, "-c", NEVER_REPORTS)) as first:
        for order in orders:
            await order.approve()
        await eventually(lambda: _are_shipping(carrier, orders))
        await first.stop(signal.SIGKILL)
    assert await carrier.log() == ["ship"]
    async with carrier.worker("second"):
        for order in orders:
            await at_stage(order.handle, Stage.COMPLETED)
            books = await order.books()
            assert [each.activity_id for each in books.scheduled()][-2:] == ["ship", "notify"]
            await check_books(books, exempt={*AT_ANOTHER_PROVIDER, "I-5"})  # a task went to the dead worker
    assert await carrier.log() == ["ship", "ship"]


async def _are_shipping(carrier: Carrier, orders: list[Order]) -> bool:
    claimed = [effect.step for order in orders for effect in await carrier.shop.ledger.effects(order.id)]
    return claimed.count("ship") == len(orders) and await carrier.log() == ["ship"]
