"""The whole way: signed bytes in, an approved order out, and the sender can read what became of it."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from temporalio.client import Client

from orderflow.domain.approvals import Decision
from orderflow.domain.events import validate_event
from orderflow.domain.orders import Stage
from tests.support.door import Door
from tests.support.observing import at_stage, eventually
from tests.support.senders import as_bytes
from tests.support.servers import DevServer
from tests.support.shop import Order, Shop, open_for_business
from tests.support.street import Street, door_on

DUPLICATE: Final = (200, "duplicate")


@pytest.fixture
async def shop(client: Client, tmp_path: Path) -> AsyncIterator[Shop]:
    """A shop whose worker runs; the books of all its orders are checked when the test is over."""
    async with open_for_business(client, tmp_path) as shop:
        yield shop


@pytest.fixture
async def door(shop: Shop, own_street: Street, dev_server: DevServer) -> AsyncIterator[Door]:
    """A door to that shop, over the same ledger."""
    async with door_on(own_street, dev_server, task_queue=shop.task_queue) as door:
        yield door


async def _ordered(door: Door, own_street: Street, shop: Shop, event: dict[str, Any]) -> Order:
    """The order of an event that came through the door, in the shop's own terms."""
    answer = await door.post(event, own_street.shop)
    assert answer.told == (202, "new")
    order = Order(shop, shop.client.get_workflow_handle(answer.order), validate_event(event), shop.definition)
    shop.orders.append(order)
    return order


async def _standing(door: Door, own_street: Street, order: Order) -> tuple[str, str | None, bool]:
    told = (await door.order(order.id, own_street.shop)).json
    return told["stage"], told["reason"], told["final"]


async def test_bytes_become_a_completed_order_that_its_sender_can_follow(
    door: Door, own_street: Street, shop: Shop
) -> None:
    """Issue 4, W07: in, waits, approved, completed; the event that comes again meanwhile starts nothing."""
    event = own_street.shop.placed()
    order = await _ordered(door, own_street, shop, event)
    await at_stage(order.handle, Stage.AWAITING_APPROVAL)
    assert await _standing(door, own_street, order) == ("awaiting_approval", None, False)
    assert (await door.post(event, own_street.shop)).told == DUPLICATE
    await order.approve()
    await order.until(Stage.COMPLETED)
    await order.result()
    assert await eventually(lambda: _is(door, own_street, order, ("completed", None, True)))
    assert (await door.post(event, own_street.shop)).told == DUPLICATE
    charges = [line for line in order.lines() if line.get("operation") == "charge"]
    assert [charge["amount_minor"] for charge in charges] == [3399]


async def test_a_rejected_order_says_why(door: Door, own_street: Street, shop: Shop) -> None:
    """Issue 4: the reason is the order's own code; nothing stays reserved."""
    order = await _ordered(door, own_street, shop, own_street.shop.placed())
    await at_stage(order.handle, Stage.AWAITING_APPROVAL)
    await order.send(await order.token(decision=Decision.REJECT))
    await order.until(Stage.FAILED_COMPENSATED)
    expected = ("failed_compensated", "approval_rejected", True)
    assert await eventually(lambda: _is(door, own_street, order, expected))
    assert {line["operation"] for line in order.lines()} == {"check", "reserve", "release"}


async def _is(door: Door, own_street: Street, order: Order, expected: tuple[str, str | None, bool]) -> bool:
    return await _standing(door, own_street, order) == expected


async def test_an_order_of_64_kib_goes_the_whole_way(door: Door, own_street: Street, shop: Shop) -> None:
    """T43: filled to the last byte with what counts, not with white space; one byte more is 413."""
    items = [{"sku": f"{number}-{'🍵' * 130}", "quantity": 1, "unit_price_minor": 1} for number in range(100)]
    event = own_street.shop.placed(data__items=items, data__total_minor=100)
    left = 65_536 - len(as_bytes(event))
    for item in items:
        item["sku"] = f"{item['sku']}{'x' * min(left, 256 - len(str(item['sku'])))}"
        left = 65_536 - len(as_bytes(event))
    assert left == 0
    order = await _ordered(door, own_street, shop, event)
    assert (await door.post(as_bytes(event) + b" ", own_street.shop)).told == (413, "body-too-large")
    await at_stage(order.handle, Stage.AWAITING_APPROVAL)
    await order.approve()
    await order.until(Stage.COMPLETED)
    await order.result()


@pytest.mark.parametrize(("currency", "amount"), [("JPY", 500), ("KWD", 1234), ("USD", 1099)])
async def test_the_amount_that_was_sent_is_the_amount_that_is_charged(
    door: Door, own_street: Street, shop: Shop, currency: str, amount: int
) -> None:
    """M01: in minor units, whatever number of decimals the currency has; the provider's own log says so."""
    items = [{"sku": "tea", "quantity": 1, "unit_price_minor": amount}]
    event = own_street.shop.placed(data__currency=currency, data__items=items, data__total_minor=amount)
    order = await _ordered(door, own_street, shop, event)
    await at_stage(order.handle, Stage.AWAITING_APPROVAL)
    await order.approve()
    await order.until(Stage.COMPLETED)
    await order.result()
    charges = [line for line in order.lines() if line.get("operation") == "charge"]
    assert [(charge["amount_minor"], charge["currency"]) for charge in charges] == [(amount, currency)]
