"""One worker whose providers do not answer: it takes no harm, and neither do the orders after that."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, cast

import pytest
from temporalio.client import Client, WorkflowFailureError

from orderflow.catalogue import load_catalogue
from orderflow.domain.orders import Reason, Stage
from tests.chaos.crew import PATIENCE, TIMED_OUT, Crew, approved, check_order, hurried, open_crew
from tests.support.observing import at_stage
from tests.support.shop import Order, Shop, order_event, order_of, packaged

SLOTS: Final = 25
"""How many activities the worker runs at once."""

HANGING: Final = 50
NORMAL: Final = SLOTS

ALIKE: Final = TIMED_OUT | {"T34"}
"""Not checked for every one of so many orders with the same history: whether it replays."""


def resigned(value: dict[str, Any]) -> None:
    """Three attempts for each step."""
    hurried(3)(value)
    value["version"] = "1.0.2"


def impatient(value: dict[str, Any]) -> None:
    """A single attempt at a reservation, of two seconds."""
    hurried(3)(value)
    value["version"] = "1.0.3"
    reserve = value["steps"][1]
    reserve["start_to_close"] = "PT2S"
    reserve["retry"]["attempts"] = 1


@pytest.fixture(scope="module")
async def worker(client: Client, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Crew]:
    """One worker that publishes these definitions too, with its ledger in a file."""
    folder: Path = tmp_path_factory.mktemp("silent")
    (folder / "definitions").mkdir()
    for change in (resigned, impatient):
        definition = packaged(load_catalogue([]), change).model_dump_json(exclude_unset=True)
        (folder / "definitions" / f"{change.__name__}.json").write_text(definition)
    async with open_crew(client, folder, hurried(20), size=1, max_concurrent_activities=SLOTS) as opened:
        yield opened
        opened.require_alive()


async def test_a_charge_whose_every_answer_is_lost_is_refunded_once(worker: Crew) -> None:
    """T05: the provider has charged, and nobody can be told so: the order does not end without a refund."""
    shop = worker.shop
    order = await shop.start(definition=packaged(shop.catalogue, resigned))
    shop.fault("lost_reply", "charge", order.id, times=10)
    shop.fault("lost_reply", "lookup", order.id, provider="payments", times=10)
    ending = await approved(order)
    assert (ending.view.stage, ending.view.reason) == (Stage.FAILED_COMPENSATED, Reason.OUTCOME_UNKNOWN)
    await check_order(order)
    acts = [line for line in order.lines() if line["kind"] == "act" and line["provider"] == "payments"]
    assert [(line["operation"], line["outcome"]) for line in acts] == [("charge", "done"), ("refund", "done")]


async def test_fifty_activities_that_time_out_cost_the_worker_no_slot(worker: Crew) -> None:
    """T27: normal orders after them are at their charges all at once, and take no longer than before."""
    shop = worker.shop
    before = await seconds_for_normal_orders(shop)
    hanging = await asyncio.gather(*(start_hanging(shop) for _ in range(HANGING)))
    assert await ends(hanging) <= {Stage.FAILED, Stage.FAILED_COMPENSATED}
    assert await seconds_for_normal_orders(shop) < 5 * before


async def start_hanging(shop: Shop) -> Order:
    """Start an order whose reservation is never made and never answered."""
    event = order_event()
    shop.fault("hang", "reserve", order_of(event), commit=False)
    return await shop.start(event, packaged(shop.catalogue, impatient))


async def seconds_for_normal_orders(shop: Shop) -> float:
    """Run normal orders whose charges take a while; all are under way at the same time."""
    began = time.monotonic()
    orders = [await shop.start() for _ in range(NORMAL)]
    for order in orders:
        shop.fault("delay", "charge", order.id, milliseconds=3000)
    for order in orders:
        await at_stage(order.handle, Stage.AWAITING_APPROVAL, PATIENCE)
    tokens = await asyncio.gather(*(order.token() for order in orders))
    await asyncio.gather(*(order.send(token) for order, token in zip(orders, tokens, strict=True)))
    await asyncio.gather(*(order.result() for order in orders))
    took = time.monotonic() - began
    assert await ends(orders) == {Stage.COMPLETED}
    assert most_at_once(orders) == SLOTS
    return took


async def ends(orders: list[Order]) -> set[Stage]:
    """Wait for the end of all orders, check their books, and give how they ended."""

    async def end(order: Order) -> Stage:
        with suppress(WorkflowFailureError):
            await order.result()
        return (await check_order(order, ALIKE)).view.stage

    return set(await asyncio.gather(*map(end, orders)))


def most_at_once(orders: list[Order]) -> int:
    """How many charges were under way at the same time at most."""
    lines = [line for order in orders for line in order.lines() if line["operation"] == "charge"]
    in_order = sorted(lines, key=lambda line: cast("int", line["seq"]))
    return max(accumulate({"started": 1, "done": -1}.get(str(line["outcome"]), 0) for line in in_order))
