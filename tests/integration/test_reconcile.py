"""Reconciliation on the real server: what terminated, vanished and restored orders leave behind."""

from collections.abc import AsyncIterator

import pytest

from orderflow.client.reconciliations import reconcile
from orderflow.contracts import ReconcileReport, ReconcileRequest
from orderflow.domain.durations import Duration
from orderflow.domain.orders import Stage
from tests.support.shop import Order, Shop


async def reconciled(shop: Shop, *, dry_run: bool = False, since: str = "P1D") -> ReconcileReport:
    """One reconciliation by the shop's worker."""
    request = ReconcileRequest(dry_run=dry_run, since=Duration(since))
    return await reconcile(shop.client, request, say=lambda _: None, task_queue=shop.task_queue)


def told(report: ReconcileReport, order: Order) -> list[tuple[str, str | None]]:
    """What a report says about the effects of one order, each with its step."""
    found = [each for each in report.findings if each.order == order.id]
    return [(each.what, each.key and each.key.split(".")[1]) for each in found]


@pytest.fixture
async def shop(shop: Shop) -> AsyncIterator[Shop]:
    """A shop with a running worker."""
    async with shop.worker() as shop.running:
        yield shop


async def test_what_a_terminated_order_reserved_is_put_before_people_once(shop: Shop) -> None:
    """T53: nobody takes it back, and a second reconciliation changes nothing."""
    order = await shop.start()
    await order.until(Stage.AWAITING_APPROVAL)
    await order.handle.terminate("a test")
    report = await reconciled(shop)
    assert told(report, order) == [("opened", "reserve_inventory")]
    assert report.counts == {"ended": 1, "opened": 1}
    again = await reconciled(shop)
    assert told(again, order) == [("in_review", "reserve_inventory")]
    assert again.changes == 0
    [item] = await shop.ledger.reviews_of(order.id)
    assert (item.error, item.opened_by, item.closed_at) == ("terminated", "reconcile", None)
    assert shop.world.reserved(order.id) == {"tea": 2}
