"""The database and Temporal itself die in the middle, and come back; the workers stay, and so do their orders."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from orderflow.domain.orders import Stage
from tests.chaos.crew import PATIENCE, Crew, approve_when_asked, check_order, start
from tests.support.observing import at_stage, eventually
from tests.support.postgres import Postgres
from tests.support.servers import DevServer
from tests.support.shop import Order, Shop

pytestmark = pytest.mark.parametrize("workers", ["postgresql"], indirect=True)

ORDERS = 10


@pytest.fixture
def chance(seed: int) -> random.Random:
    """What the moments are drawn from."""
    return random.Random(seed)


async def test_no_order_of_two_workers_fails_for_a_database_that_dies(
    crew: Crew, postgres: Postgres, chance: random.Random
) -> None:
    """I05: first for so long that a worker complains, then, by a SIGKILL, for a moment; no act is done twice."""
    before = acts(crew.shop)
    moments = (chance.randint(1, 20), chance.randint(21, 40))  # of the 50 acts that there are with those that begin
    async with under_load(crew.shop) as orders:
        await until_acts(crew.shop, before + moments[0])
        await postgres.stop()
        await crew.until_said("cannot be used now")
        await postgres.start()
        await until_acts(crew.shop, before + moments[1])
        await postgres.kill()
        await asyncio.sleep(chance.uniform(0, 1))  # not to wait for something: any moment will do
        await postgres.start()
    await all_completed(orders)


async def test_orders_of_two_workers_go_on_when_temporal_was_killed_and_started_again(
    crew: Crew, dev_server: DevServer, chance: random.Random
) -> None:
    """T35: those that were at a provider, and those that waited for a person; nobody restarts a worker."""
    before = acts(crew.shop)
    waiting = [await start(crew.shop) for _ in range(ORDERS // 2)]
    for order in waiting:
        await at_stage(order.handle, Stage.AWAITING_APPROVAL, PATIENCE)
    async with under_load(crew.shop, ORDERS // 2) as orders:
        pass
    await until_acts(crew.shop, before + chance.randint(20, 32))  # of 35: while they charge
    await dev_server.restart()
    for order in waiting:
        await order.approve()
    await all_completed([*waiting, *orders])


@asynccontextmanager
async def under_load(shop: Shop, number: int = ORDERS) -> AsyncIterator[list[Order]]:
    """Run orders whose charges take a while; all are approved at the end."""
    async with asyncio.TaskGroup() as approving:
        orders = [await start(shop) for _ in range(number)]
        for order in orders:
            shop.fault("delay", "charge", order.id, milliseconds=1500)
            approving.create_task(approve_when_asked(order))
        yield orders


def acts(shop: Shop) -> int:
    """How often the providers were asked to act."""
    return sum(line["kind"] == "act" for line in shop.world.log())


async def until_acts(shop: Shop, number: int) -> None:
    """Wait until the providers have been asked to act so often."""

    async def look() -> bool:
        return acts(shop) >= number

    await eventually(look, PATIENCE)


async def all_completed(orders: list[Order]) -> None:
    """Wait for the end of every order, which must have been done right and once."""
    endings = await asyncio.gather(*(order.ending() for order in orders))
    assert [ending.view.stage for ending in endings] == [Stage.COMPLETED] * len(orders)
    for order in orders:
        await check_order(order)
