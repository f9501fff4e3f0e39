"""Every ending that an order can have, as a script that brings one order there on a real server."""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from orderflow.definitions import packaged_definitions
from orderflow.domain.approvals import Decision
from orderflow.domain.operations import Operation, Resolution
from orderflow.domain.orders import Stage
from orderflow.subscribers import Subscribers
from tests.support.operations import operate, queued, signed
from tests.support.scripted_door import Reply
from tests.support.shop import Order, Shop, order_event, order_of, quick
from tests.support.subscribers import DOWN, TAKEN, Announced, receiver, subscribed, subscribers

Ending = Callable[[Shop], Awaitable[Order | Announced]]


def impatient() -> dict[str, Any]:
    """The packaged definition with an approval that expires after a second."""
    value: dict[str, Any] = json.loads(packaged_definitions()[0])
    quick(value)
    value["version"] = "1.0.1"
    for step in value["steps"]:
        if "approval" in step:
            step["approval"]["expires_in"] = "PT1S"
    return value


async def completed(shop: Shop) -> Order:
    """Approved by signal, charged, told."""
    order = await shop.start()
    await order.approve()
    await order.until(Stage.COMPLETED)
    return order


async def completed_by_update(shop: Shop) -> Order:
    """Approved by update, after a refused decision."""
    order = await shop.start()
    await order.decide(await order.token("carol"))
    await order.decide(await order.token("alice"))
    await order.until(Stage.COMPLETED)
    return order


async def failed(shop: Shop) -> Order:
    """Nothing in stock, so nothing to undo."""
    too_many: dict[str, Any] = {"items": [{"sku": "tea", "quantity": 5000, "unit_price_minor": 1}], "total_minor": 5000}
    order = await shop.start(order_event(**too_many))
    await order.until(Stage.FAILED)
    return order


async def failed_by_risk(shop: Shop) -> Order:
    """Risk says no while inventory is reserved: the batch settles, then the reservation is taken back."""
    event = order_event()
    shop.fault("decline", "check", order_of(event))
    order = await shop.start(event)
    await order.until(Stage.FAILED_COMPENSATED)
    return order


async def rejected(shop: Shop) -> Order:
    """A person says no."""
    order = await shop.start()
    await order.approve(decision=Decision.REJECT)
    await order.until(Stage.FAILED_COMPENSATED)
    return order


async def expired(shop: Shop) -> Order:
    """Nobody says anything in time."""
    order = await shop.start(definition=shop.define(impatient()))
    await order.until(Stage.FAILED_COMPENSATED)
    return order


async def declined(shop: Shop) -> Order:
    """The card is declined."""
    order = await shop.start()
    shop.fault("decline", "charge", order.id)
    await order.approve()
    await order.until(Stage.FAILED_COMPENSATED)
    return order


async def cancelled(shop: Shop) -> Order:
    """Cancelled while it waits for approval."""
    order = await shop.start()
    await order.until(Stage.AWAITING_APPROVAL)
    await order.handle.cancel()
    await order.until(Stage.FAILED_COMPENSATED)
    return order


async def retried(shop: Shop) -> Order:
    """Each provider is away once, and the charge's reply is lost once."""
    event = order_event()
    for operation, kind in (("reserve", "unavailable"), ("check", "unavailable"), ("charge", "lost_reply")):
        shop.fault(kind, operation, order_of(event))
    order = await shop.start(event)
    await order.approve()
    await order.until(Stage.COMPLETED)
    return order


async def reviewed(shop: Shop) -> Order:
    """Risk has no opinion: a person reviews it, and another approves the charge."""
    event = order_event()
    shop.fault("manual_review", "check", order_of(event))
    order = await shop.start(event)
    await order.until(Stage.MANUAL_REVIEW)
    await order.approve("bob")
    await order.until(Stage.AWAITING_APPROVAL)
    await order.approve("alice")
    await order.until(Stage.COMPLETED)
    return order


async def compensation_failed(shop: Shop) -> Order:
    """The message and the refund are refused for good: the order stays open."""
    order = await shop.start()
    shop.fault("decline", "notify", order.id)
    shop.fault("decline", "refund", order.id, times=100)
    await order.approve()
    await order.until(Stage.COMPENSATION_FAILED)
    return order


async def operated(shop: Shop) -> Order:
    """The refund is refused twice and left standing: an operator has it tried again, then resolves it."""
    order = await compensation_failed(shop)
    for operation, outcome in ((Operation.RETRY, None), (Operation.RESOLVE, Resolution.KEPT)):
        await order.when(lambda view: view.stage is Stage.COMPENSATION_FAILED and queued(view))
        await operate(order, await signed(order, operation, outcome=outcome))
        await order.when(lambda view: not view.operations and view.stage is not Stage.COMPENSATING)
    await order.until(Stage.FAILED_COMPENSATED)
    return order


async def announced(shop: Shop) -> Order:
    """Somebody hears that it has completed."""
    async with subscribed(shop):
        return await completed(shop)


async def announcing(shop: Shop) -> Announced:
    """An announcement: refused, left to people, tried again in vain, then taken."""
    async with subscribed(shop) as heard:
        heard.reply = DOWN
        telling = Announced(await completed(shop), Stage.COMPLETED)
        await telling.waits()
        await telling.operate(Operation.RETRY)
        await telling.waits(lambda view: bool(view.standing) and not view.operations)
        heard.reply = TAKEN
        await telling.operate(Operation.RETRY)
        await telling.ending()
    return telling


async def announcing_resolved(shop: Shop) -> Announced:
    """One subscriber is told, one wants to hear no more, one a person says need not hear."""
    with receiver() as told, receiver() as gone, receiver() as down:
        gone.reply, down.reply = Reply(410), Reply(404)
        named = {"told": told, "gone": gone, "down": down}
        shop.subscribers = subscribers(*({"name": name, "url": each.door.url} for name, each in named.items()))
        telling = Announced(await completed(shop), Stage.COMPLETED)
        await telling.operate(Operation.RESOLVE, Resolution.KEPT)
        await telling.ending()
    shop.subscribers = Subscribers()
    return telling


ENDINGS: Final[Mapping[str, Ending]] = {
    ending.__name__: ending
    for ending in (
        completed,
        completed_by_update,
        failed,
        failed_by_risk,
        rejected,
        expired,
        declined,
        cancelled,
        retried,
        reviewed,
        compensation_failed,
        operated,
        announced,
        announcing,
        announcing_resolved,
    )
}
