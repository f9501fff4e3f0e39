"""Reconciliation on the real server: what terminated, vanished and restored orders leave behind."""

import asyncio
import shutil
import sqlite3
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleSpec,
    WorkflowExecutionStatus,
    WorkflowFailureError,
)

from orderflow.client import NoAnswer, connect, ensure_search_attributes
from orderflow.client.reconciliations import RECONCILE_ID, ReconcileFailed, reconcile
from orderflow.contracts import RECONCILE_WORKFLOW_TYPE, ReconcileReport, ReconcileRequest
from orderflow.domain.durations import Duration
from orderflow.domain.effects import EffectState
from orderflow.domain.orders import Stage
from tests.support.invariants import check_books
from tests.support.observing import eventually
from tests.support.postgres import LEDGER, Postgres
from tests.support.reconciling import told
from tests.support.servers import DevServer
from tests.support.shop import Order, Shop, open_shop, quick
from tests.support.tables import TABLES

pytestmark = pytest.mark.timeout(90)


@pytest.fixture
async def shop(shop: Shop) -> AsyncIterator[Shop]:
    """A shop with a running worker."""
    async with shop.worker() as shop.running:
        yield shop


async def reconciled(shop: Shop, *, dry_run: bool = False) -> ReconcileReport:
    """One reconciliation by the shop's worker."""
    request = ReconcileRequest(dry_run=dry_run, since=Duration("P1D"))
    return await reconcile(shop.client, request, say=lambda _: None, task_queue=shop.task_queue)


async def completed(shop: Shop) -> Order:
    """An order that came to its good end."""
    order = await shop.start()
    await order.approve()
    assert (await order.result()).stage is Stage.COMPLETED
    return order


async def test_what_a_terminated_order_reserved_is_put_before_people_once(shop: Shop) -> None:
    """T53: nobody takes it back, and a second reconciliation changes nothing."""
    order = await shop.start()
    await order.until(Stage.AWAITING_APPROVAL)
    await order.handle.terminate("a test")
    dry = await reconciled(shop, dry_run=True)
    assert told(dry, order.id) == [("would_be_opened", "reserve_inventory")]
    assert await shop.ledger.reviews_of(order.id) == []
    report = await reconciled(shop)
    assert told(report, order.id) == [("opened", "reserve_inventory")]
    assert report.counts == {"ended": 1, "opened": 1}
    again = await reconciled(shop)
    assert told(again, order.id) == [("in_review", "reserve_inventory")]
    assert again.changes == 0
    [item] = await shop.ledger.reviews_of(order.id)
    assert (item.error, item.opened_by, item.closed_at) == ("terminated", "reconcile", None)
    assert shop.world.reserved(order.id) == {"tea": 2}


async def test_orders_that_failed_before_any_effect_are_never_brought_up(shop: Shop) -> None:
    """T08: nothing to undo is a normal end."""
    order = await shop.start(order_that_breaks_a_rule())
    assert (await order.ending()).view.stage is Stage.FAILED
    for _ in range(2):
        report = await reconciled(shop)
        assert (report.findings, report.changes, report.counts) == ((), 0, {})
    await check_books(await order.books())
