"""Workers that come and go between any two steps, on the real server: the other one waits for those that left."""

from datetime import timedelta

import pytest
from temporalio.worker import Worker

from orderflow.domain.orders import Stage
from tests.support.shop import Order, Shop, check_orders


@pytest.mark.parametrize("operation", ["reserve", "charge", "refund", "release"])
async def test_a_worker_that_leaves_between_an_act_and_its_record_costs_no_second_act(
    shop: Shop, operation: str
) -> None:
    """T07, T35, I05: the provider has acted, the worker goes before it can write that down, the next one finds out."""
    gate = shop.hold(operation, after=True)
    shop.fault("decline", "notify")
    async with _fresh(shop):
        order = await shop.start()
        order.exempt.add("I-5 in time")
        if operation != "reserve":
            await _approve(order)
        await order.when(lambda _: gate.reached.is_set())
    gate.open()
    async with _fresh(shop) as shop.running:
        if operation == "reserve":
            await _approve(order)
        assert (await order.ending()).view.stage is Stage.FAILED_COMPENSATED
        acts = [line for line in order.lines() if line["operation"] == operation and line["kind"] == "act"]
        assert [line["outcome"] for line in acts] == ["done"]
        await check_orders(shop)


async def test_an_order_completes_with_a_new_worker_for_each_step(shop: Shop) -> None:
    """T35: no worker remembers anything, and each sees one step only; no workflow task fails."""
    order = await shop.start()
    order.exempt.add("I-5 in time")
    for operation in ("reserve", "charge", "notify"):
        gate = shop.hold(operation)
        async with _fresh(shop):
            if operation == "charge":
                await _approve(order)
            await gate.reached.wait()
        gate.open()
    async with _fresh(shop) as shop.running:
        assert (await order.ending()).view.stage is Stage.COMPLETED
        await check_orders(shop)


def _fresh(shop: Shop) -> Worker:
    """A worker that remembers nothing and does not wait when it leaves.

    It may take a workflow task along (see `_PAUSE` in `tests/support/shop.py`), which another one then does 10 s later.
    """
    return shop.worker(max_cached_workflows=0, graceful_shutdown=timedelta(0))


async def _approve(order: Order) -> None:
    await order.until(Stage.AWAITING_APPROVAL)
    await order.approve()
