"""Cancelling at any moment, on the real server: the time-skipping one loses a task when this races an activity.

(It also forgets an activity that fails for a retry after its cancellation was asked for; here that is a plain failure.)
"""

import asyncio
import random
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowUpdateFailedError
from temporalio.service import RPCError

from orderflow.domain.orders import FINAL, Reason, Stage
from tests.support.shop import Order, Shop, open_for_business, order_event, order_of, quick

ORDERS = 30
OPERATIONS = ("reserve", "check", "charge", "notify")
FAILING = ("", "", *OPERATIONS, "refund")


async def test_whenever_an_order_is_cancelled_it_ends_and_its_books_are_right(busy_shop: Shop) -> None:
    """T01, T03, T09: 30 orders, some failing by themselves, each cancelled at some moment, half of them twice."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    plans = [(chance.choice(FAILING), chance.uniform(0, 2), chance.random() < 0.5) for _ in range(ORDERS)]
    await asyncio.gather(*(_cancel_somewhere(busy_shop, *plan) for plan in plans))


async def _cancel_somewhere(shop: Shop, failing: str, wait: float, twice: bool) -> None:
    """Let an order run, approved as soon as it asks; cancel it after `wait` seconds, wherever it is then."""
    event = order_event()
    if failing:
        shop.fault("decline", failing, order_of(event))
    order = await shop.start(event)
    approving = asyncio.create_task(_approve_when_asked(order))
    await asyncio.sleep(wait)  # not to wait for something: any moment will do
    for _ in range(1 + twice):
        await _cancel_unless_ended(order)
    view = await order.when(lambda view: view.stage in {*FINAL, Stage.COMPENSATION_FAILED})
    assert view.stage is not Stage.COMPENSATION_FAILED or failing == "refund"
    await asyncio.wait_for(approving, 5)


async def _cancel_unless_ended(order: Order) -> None:
    with suppress(RPCError):
        await order.cancel()


async def _approve_when_asked(order: Order) -> None:
    view = await order.when(lambda view: view.request or view.stage in {*FINAL, Stage.COMPENSATING})
    if view.request is not None:
        await _send_unless_ended(order, order.shop.sign(view.request))


async def _send_unless_ended(order: Order, token: str) -> None:
    with suppress(RPCError):
        await order.send(token)


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_an_attempt_that_fails_after_the_cancellation_is_not_tried_again(busy_shop: Shop, operation: str) -> None:
    """T03: the step's failure comes after the request to cancel; the reason is `cancelled`, and nothing stands."""
    busy_shop.fault("unavailable", operation, times=100)
    gate = busy_shop.hold(operation, after=True)
    order = await busy_shop.start()
    if operation in ("charge", "notify"):
        await order.until(Stage.AWAITING_APPROVAL)
        await order.approve()
    await order.when(lambda _: gate.reached.is_set())
    await order.cancel()
    await order.when(lambda view: view.cancel_requested)
    gate.open()
    ending = await order.ending()
    assert (ending.view.reason, ending.view.stage in FINAL) == (Reason.CANCELLED, True)
    asked = [line for line in order.lines() if line["kind"] == "act" and line["operation"] == operation]
    assert [line["outcome"] for line in asked] == ["unavailable"]


async def test_a_decision_a_cancellation_and_questions_at_the_same_moment(busy_shop: Shop) -> None:
    """T14, T34: a query splits a workflow task that verifies a decision in two; the history must replay all the same.

    Either the decision or the cancellation comes first, but in no case does the charge stand.
    """
    orders = await asyncio.gather(*(busy_shop.start() for _ in range(ORDERS)))
    tokens = await asyncio.gather(*(order.token() for order in orders))
    at_once = [
        asyncio.gather(order.send(token), _ask(order), order.cancel(), _ask(order))
        for order, token in zip(orders, tokens, strict=True)
    ]
    await asyncio.gather(*at_once)
    endings = await asyncio.gather(*(order.ending() for order in orders))
    assert {ending.view.reason for ending in endings} == {Reason.CANCELLED}
    assert [busy_shop.world.net_charged(order.id) for order in orders] == [0] * ORDERS


async def _ask(order: Order) -> None:
    for _ in range(5):
        await order.view()


def _short_lived(value: dict[str, Any]) -> None:
    quick(value)
    value["steps"][3]["approval"] |= {"expires_in": "PT3S", "charge_within": "PT3S"}


async def test_a_decision_that_comes_as_its_request_expires(client: Client, tmp_path: Path) -> None:
    """T10, T34: in time or too late, never both; the order completes or expires, and its history replays."""
    async with open_for_business(client, tmp_path, change=_short_lived) as shop:
        orders = await asyncio.gather(*(shop.start() for _ in range(ORDERS)))
        await asyncio.gather(*(_decide_at_the_last_moment(order) for order in orders))
        endings = await asyncio.gather(*(order.ending() for order in orders))
        assert {ending.view.reason for ending in endings} <= {None, Reason.APPROVAL_EXPIRED}


async def _decide_at_the_last_moment(order: Order) -> None:
    view = await order.until(Stage.AWAITING_APPROVAL)
    if view.request is not None:
        token = order.shop.sign(view.request)
        left = view.request.expires_at.timestamp() - time.time() + random.uniform(-0.3, 0.1)
        await asyncio.sleep(max(0, left))
        with suppress(RPCError, WorkflowUpdateFailedError):
            await asyncio.gather(order.decide(token), _ask(order))
