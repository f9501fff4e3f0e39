"""Reconciliation on the real server: what terminated, vanished and restored orders leave behind."""

import asyncio
import shutil
import sqlite3
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import timedelta
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
from temporalio.exceptions import TimeoutError as TimedOut

from orderflow.client import connect, ensure_search_attributes
from orderflow.client.fates import TemporalOrders
from orderflow.client.reconciliations import RECONCILE_ID, ReconcileFailed, reconcile
from orderflow.contracts import RECONCILE_WORKFLOW_TYPE, WORKFLOW_TYPE, ReconcileReport, ReconcileRequest
from orderflow.domain.durations import Duration
from orderflow.domain.effects import EffectState
from orderflow.domain.orders import Stage
from orderflow.domain.reconciliation import Fate
from tests.support.invariants import check_books
from tests.support.ledger import TABLES
from tests.support.observing import eventually
from tests.support.postgres import LEDGER, Postgres
from tests.support.reconciling import told
from tests.support.servers import DevServer
from tests.support.shop import Order, Shop, open_shop, order_event, quick

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


async def test_what_a_timed_out_order_reserved_is_put_before_people(shop: Shop) -> None:
    """Issue 5 item 7, T53: orderflow sets no timeout; who starts an order with one finds what it left in the queue."""
    order = await shop.start(execution_timeout=timedelta(seconds=4))
    await order.until(Stage.AWAITING_APPROVAL)
    with pytest.raises(WorkflowFailureError) as caught:
        await order.handle.result()
    assert isinstance(caught.value.cause, TimedOut)
    assert told(await reconciled(shop), order.id) == [("opened", "reserve_inventory")]
    [item] = await shop.ledger.reviews_of(order.id)
    assert (item.error, item.closed_at) == ("timed_out", None)
    assert shop.world.reserved(order.id) == {"tea": 2}


async def test_orders_that_failed_before_any_effect_are_never_brought_up(shop: Shop) -> None:
    """T08: nothing to undo is a normal end."""
    order = await shop.start(order_event(total_minor=901))
    assert (await order.ending()).view.stage is Stage.FAILED
    for _ in range(2):
        report = await reconciled(shop)
        assert (report.findings, report.changes, report.counts) == ((), 0, {})
    await check_books(await order.books())


async def test_orders_of_a_server_that_forgot_them_are_orphans_until_they_come_again(tmp_path: Path) -> None:
    """T45: listed once; the same event again adopts what was done, charges nothing twice, and ends the matter."""
    folder = tmp_path / "shop"
    async with a_server(tmp_path / "first") as client, open_shop(client, folder, change=quick) as shop:
        gate = shop.hold("notify")
        async with shop.worker(graceful_shutdown=timedelta(0)):
            waiting, charged = await shop.start(), await shop.start()
            await charged.approve()
            await gate.reached.wait()
            await waiting.until(Stage.AWAITING_APPROVAL)
    async with a_server(tmp_path / "second") as client, open_shop(client, folder, change=quick) as shop:
        async with shop.worker() as shop.running:
            report = await reconciled(shop)
            assert told(report, waiting.id) == [("opened", "reserve_inventory")]
            assert sorted(told(report, charged.id)) == [("opened", "charge"), ("opened", "reserve_inventory")]
            assert {item.error for item in await shop.ledger.reviews_of(charged.id)} == {"vanished"}
            again = await shop.start(charged.event)
            await again.approve()
            assert (await again.result()).stage is Stage.COMPLETED
            await check_books(await again.books())
            closed = await reconciled(shop)
            assert sorted(told(closed, charged.id)) == [("closed", "charge"), ("closed", "reserve_inventory")]
            assert told(closed, waiting.id) == [("in_review", "reserve_inventory")]
            assert shop.world.net_charged(charged.id) == 900
        assert (await shop.ledger.reviews_of(charged.id))[0].closed_as == "superseded"


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_ledger_restored_from_an_older_copy_learns_what_it_forgot(
    kind: str, client: Client, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The difference is found and adopted, orders go on, and the books are what they were before the restore."""
    copied: SqliteCopy | PostgresCopy
    copied = SqliteCopy(tmp_path) if kind == "sqlite" else PostgresCopy(request.getfixturevalue("postgres"))
    async with open_shop(client, tmp_path, change=quick, ledger_url=copied.url) as before:
        async with before.worker():
            early, cut, going_on = await completed(before), await before.start(), await before.start()
            await cut.until(Stage.AWAITING_APPROVAL)
            await asyncio.to_thread(copied.take)
            late, failed, waiting = await completed(before), await before.start(), await before.start()
            before.fault("decline", "notify", failed.id)
            await failed.approve()
            assert (await failed.ending()).view.stage is Stage.FAILED_COMPENSATED
            await cut.approve()
            await cut.result()
            await going_on.until(Stage.AWAITING_APPROVAL)
            await waiting.until(Stage.AWAITING_APPROVAL)
        ended = [early, late, failed, cut]
        truth = {order.id: await rows(before, order) for order in [*ended, waiting, going_on]}
    await asyncio.to_thread(copied.restore)
    async with open_shop(client, tmp_path, change=quick, ledger_url=copied.url) as shop:
        shop.keys, shop.registry = before.keys, before.registry
        here = {order.id: Order(shop, order.handle, order.event, order.definition) for order in before.orders}
        async with shop.worker():  # on a task queue of its own: no order goes on meanwhile
            report = await reconciled(shop)
            assert sorted(told(report, late.id)) == [
                ("adopted", step) for step in ("charge", "notify", "reserve_inventory")
            ]
            assert sorted(told(report, failed.id)) == [("undone", "charge"), ("undone", "reserve_inventory")]
            assert told(report, early.id) == []
            assert {order: await rows(shop, here[order]) for order in truth} == truth
            assert (await reconciled(shop)).changes == 0
        shop.task_queue = before.task_queue
        async with shop.worker():
            for order in (waiting, going_on):
                await here[order.id].approve()
                assert (await here[order.id].result()).stage is Stage.COMPLETED
            for order in here.values():
                await check_books(await order.books(), {"I-5 in time"})  # a worker left, with what it had in its cache


async def rows(shop: Shop, order: Order) -> list[tuple[str, EffectState, int | None, int | None]]:
    """What the ledger says of what was done for an order; a provider's "no" it may forget."""
    done = [each for each in await shop.ledger.effects(order.id) if each.state is not EffectState.DECLINED]
    return sorted((each.key, each.state, each.captured_minor, each.refunded_minor) for each in done)


class SqliteCopy:
    """A copy of an SQLite ledger, taken while it is in use."""

    def __init__(self, folder: Path) -> None:
        self._file, self._copy = folder / "ledger.db", folder / "copy.db"
        self.url = f"sqlite:///{self._file}"

    def take(self) -> None:
        with closing(sqlite3.connect(self._file)) as source, closing(sqlite3.connect(self._copy)) as target:
            source.backup(target)

    def restore(self) -> None:
        for leftover in self._file.parent.glob("ledger.db*"):
            leftover.unlink()
        shutil.copy(self._copy, self._file)


class PostgresCopy:
    """A copy of the tables of a ledger on PostgreSQL."""

    def __init__(self, server: Postgres) -> None:
        self._server = server
        server.emptied()
        self.url = server.url(LEDGER)

    def take(self) -> None:
        for table in TABLES:
            self._server.run(f"DROP TABLE IF EXISTS copy_{table}; CREATE TABLE copy_{table} AS SELECT * FROM {table}")

    def restore(self) -> None:
        self._server.emptied()
        for table in reversed(TABLES):  # effects before their attempts
            self._server.run(f"INSERT INTO {table} SELECT * FROM copy_{table}; DROP TABLE copy_{table}")


@asynccontextmanager
async def a_server(folder: Path) -> AsyncIterator[Client]:
    """A dev server that remembers nothing when it is gone."""
    await asyncio.to_thread(folder.mkdir)
    async with DevServer(folder) as server:
        client = await connect(address=server.address, namespace="default", use_profile=False)
        await ensure_search_attributes(client)
        yield client


async def test_a_second_run_that_never_was_this_order_says_nothing_of_it(shop: Shop) -> None:
    """Whoever can start workflows could have a completed order refunded by a start that fails under its id."""
    order = await completed(shop)
    again = await shop.client.start_workflow(WORKFLOW_TYPE, "nonsense", id=order.id, task_queue=shop.task_queue)
    with pytest.raises(WorkflowFailureError):
        await again.result()
    assert (await TemporalOrders(shop.client).fate(order.id)).fate is Fate.VANISHED
    await reconciled(shop)
    assert shop.world.net_charged(order.id) == 900


async def test_a_schedule_can_reconcile(shop: Shop) -> None:
    """With no input at all: its defaults are what a schedule wants."""
    order = await shop.start()
    await order.until(Stage.AWAITING_APPROVAL)
    await order.handle.terminate("a test")
    action = ScheduleActionStartWorkflow(
        RECONCILE_WORKFLOW_TYPE, id=f"reconcile-{uuid.uuid4().hex}", task_queue=shop.task_queue
    )
    schedule = await shop.client.create_schedule(f"s-{uuid.uuid4().hex}", Schedule(action, ScheduleSpec()))
    try:
        await schedule.trigger()

        async def begun() -> str | None:
            actions = (await schedule.describe()).info.recent_actions
            return getattr(actions[0].action, "workflow_id", None) if actions else None

        handle = shop.client.get_workflow_handle(await eventually(begun), result_type=ReconcileReport)
        report: ReconcileReport = await handle.result()
    finally:
        await schedule.delete()
    assert told(report, order.id) == [("opened", "reserve_inventory")]


@pytest.mark.parametrize("inputs", [[{"dry_run": "yes"}], [{"dryrun": True}], [None], [{}, {}]])
async def test_a_start_that_makes_no_sense_fails_at_once(shop: Shop, inputs: list[object]) -> None:
    """It must not stay open for ever: it would keep every later one waiting."""
    handle = await shop.client.start_workflow(
        RECONCILE_WORKFLOW_TYPE, args=inputs, id=uuid.uuid4().hex, task_queue=shop.task_queue
    )
    with pytest.raises(WorkflowFailureError) as caught:
        await asyncio.wait_for(handle.result(), 20)
    assert getattr(caught.value.cause, "type", None) == "InvalidInput"


async def test_a_second_one_waits_for_the_first(client: Client, tmp_path: Path) -> None:
    """Two never run at once, and each gets the report of what it asked for."""
    async with open_shop(client, tmp_path, change=quick) as shop:
        first = asyncio.create_task(reconciled(shop, dry_run=True))
        handle = client.get_workflow_handle(RECONCILE_ID)
        await eventually(lambda: runs(client))
        said: list[str] = []
        request = ReconcileRequest()
        second = asyncio.create_task(reconcile(client, request, say=said.append, task_queue=shop.task_queue))
        await eventually(lambda: asyncio.sleep(0, said))
        async with shop.worker():
            assert ((await first).dry_run, (await second).dry_run) == (True, False)
        assert said[0] == "another reconciliation runs; waiting for its end"
        assert (await handle.describe()).status is WorkflowExecutionStatus.COMPLETED


async def runs(client: Client) -> bool:
    """Whether a reconciliation is open."""
    found = [each async for each in client.list_workflows(f'WorkflowId="{RECONCILE_ID}" AND ExecutionStatus="Running"')]
    return bool(found)


async def test_one_that_somebody_ends_says_so(client: Client, tmp_path: Path) -> None:
    """It is no report, and no bug either."""
    async with open_shop(client, tmp_path, change=quick) as shop:
        asked = asyncio.create_task(reconciled(shop))
        await eventually(lambda: runs(client))
        await client.get_workflow_handle(RECONCILE_ID).terminate("a test")
        with pytest.raises(ReconcileFailed, match="the reconciliation failed"):
            await asked
