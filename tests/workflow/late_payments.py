"""A charge that was approved and cannot begin: its worker has no payment provider, and another one comes later."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from orderflow.dispatch import LONGEST_PAUSE
from orderflow.domain.approvals import ApprovalRequest
from tests.support.observing import events_of, names_of
from tests.support.shop import Order, Shop, check_orders
from tests.workflow.clock import Clock
from tests.workflow.decisions import asked


class Approved(NamedTuple):
    """An order, its request, and the decision on it that was accepted."""

    order: Order
    request: ApprovalRequest
    token: str


@asynccontextmanager
async def without_payments(shop: Shop) -> AsyncIterator[Approved]:
    """An approved order at a worker that cannot charge; in the end that worker is gone."""
    async with shop.worker(shop.activities_with(without={"payments"}), max_cached_workflows=0):
        order = await shop.start()
        request = await asked(order)
        token = shop.sign(request)
        assert (await order.decide(token)).accepted
        await order.seen(_charge_waits)
        yield Approved(order, request, token)


async def _charge_waits(order: Order) -> bool:
    """Besides the timer of the request there is that of the next try."""
    return names_of(await events_of(order.handle)).count("TIMER_STARTED") > 1


@asynccontextmanager
async def with_payments(clock: Clock, shop: Shop) -> AsyncIterator[None]:
    """A worker that can charge, and the charge has been tried; in the end the books are checked."""
    async with shop.worker() as shop.running:
        await clock.skip(LONGEST_PAUSE)
        yield
        await check_orders(shop)
