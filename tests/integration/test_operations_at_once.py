"""Operators, questions and cancellations at the same moment, on the real server: every history replays."""

import asyncio
import random
from contextlib import suppress

import pytest
from temporalio.client import WorkflowUpdateFailedError
from temporalio.service import RPCError

from orderflow.domain.operations import Operation, Resolution
from orderflow.domain.orders import FINAL, Stage, Standing
from tests.support.operations import operate, token_on
from tests.support.shop import Order, Shop

ORDERS = 8
REFUSALS = 2

pytestmark = pytest.mark.timeout(120)


async def test_whenever_operators_operate_the_order_ends_and_its_history_replays(busy_shop: Shop) -> None:
    """T06, T34: blindly, from before anything stands, some of it twice, among questions and cancellations."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    await asyncio.gather(*(_through(busy_shop, chance.uniform(0.3, 1.0)) for _ in range(ORDERS)))


async def _through(shop: Shop, pause: float) -> None:
    order = await shop.start()
    shop.fault("decline", "notify", order.id)
    shop.fault("decline", "refund", order.id, times=REFUSALS)
    await order.approve()
    asking = asyncio.create_task(_ask_until_the_end(order))
    while (await order.view()).stage not in FINAL:
        await asyncio.gather(*(_operate_blindly(order, minor) for minor in (900, None)), _cancel_unless_ended(order))
        await asyncio.sleep(pause)  # not to wait for something: any moment will do
    await asking
    order.exempt.add("I-5 in time")
    ending = await order.ending()
    assert (ending.view.stage, ending.view.standing) == (Stage.FAILED_COMPENSATED, ())
    assert _held(order) == 0


def _held(order: Order) -> int:
    """What the provider still holds of the customer's."""
    return order.shop.world.net_charged(order.id)


async def _operate_blindly(order: Order, minor: int | None) -> None:
    currency = None if minor is None else "EUR"
    left = Standing(step="charge", key=f"{order.id}.charge.do", amount_minor=minor, currency=currency, error="guessed")
    token = await token_on(order, left, Operation.RETRY)
    with suppress(RPCError, WorkflowUpdateFailedError):
        await asyncio.gather(operate(order, token), operate(order, token))


async def _cancel_unless_ended(order: Order) -> None:
    with suppress(RPCError):
        await order.cancel()


async def _ask_until_the_end(order: Order) -> None:
    ended = False
    while not ended:
        with suppress(TimeoutError):  # a question that the SDK drops in the crowd harms nobody
            ended = (await order.view()).stage in FINAL
        await asyncio.sleep(0.2)


async def test_two_people_who_resolve_at_the_same_moment(busy_shop: Shop) -> None:
    """T14, T34: whoever comes second finds it settled; the books say one resolution."""
    orders = await asyncio.gather(*(_left(busy_shop) for _ in range(ORDERS)))
    for order in orders:
        order.exempt |= {"I-3", "ledger"}
    lefts = [(await order.view()).standing[0] for order in orders]
    tokens = [
        [await token_on(order, left, Operation.RESOLVE, who, Resolution.KEPT) for who in ("carol", "oscar")]
        for order, left in zip(orders, lefts, strict=True)
    ]
    both = [operate(order, token) for order, pair in zip(orders, tokens, strict=True) for token in pair]
    answers = await asyncio.gather(*both, return_exceptions=True)
    assert sum(getattr(answer, "accepted", False) for answer in answers) >= ORDERS
    endings = await asyncio.gather(*(order.ending() for order in orders))
    assert {ending.view.stage for ending in endings} == {Stage.FAILED_COMPENSATED}


async def _left(shop: Shop) -> Order:
    order = await shop.start()
    shop.fault("decline", "notify", order.id)
    shop.fault("decline", "refund", order.id)
    await order.approve()
    await order.until(Stage.COMPENSATION_FAILED)
    return order
