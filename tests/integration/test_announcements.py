"""Announcements on a real server: resets, the queue from the command line, reconciliation, and what they cost."""

import pytest
from temporalio.client import WorkflowFailureError
from temporalio.worker import Replayer

from orderflow.announcing import AnnounceWorkflow
from orderflow.client import data_converter
from orderflow.domain.effects import EffectState
from orderflow.domain.operations import Operation
from orderflow.domain.orders import Stage, Standing
from tests.support.counter import Counter
from tests.support.observing import events_of, eventually, names_of
from tests.support.processes import TemporalCli
from tests.support.shop import Order, Shop, check_orders
from tests.support.subscribers import DOWN, TAKEN, TRIED_TWICE, Announced, Receiver, event_of, subscribed

pytestmark = pytest.mark.timeout(90)


async def completed(shop: Shop) -> Order:
    """A completed order."""
    order = await shop.start()
    await order.approve()
    await order.result()
    return order


async def left_untold(shop: Shop, heard: Receiver) -> Announced:
    """The announcement of a completed order that its subscriber did not take."""
    heard.reply = DOWN
    announced = Announced(await completed(shop), Stage.COMPLETED)
    await announced.waits()
    return announced


async def test_an_order_that_somebody_hears_of_costs_two_events_and_one_task_more(busy_shop: Shop) -> None:
    """ADR 0019: the start of a child, and what answers it; without subscribers `test_history_budget` holds."""
    async with subscribed(busy_shop):
        names = names_of(await events_of((await completed(busy_shop)).handle))
    assert names[-6:] == [
        "START_CHILD_WORKFLOW_EXECUTION_INITIATED",
        "CHILD_WORKFLOW_EXECUTION_STARTED",
        "WORKFLOW_TASK_SCHEDULED",
        "WORKFLOW_TASK_STARTED",
        "WORKFLOW_TASK_COMPLETED",
        "WORKFLOW_EXECUTION_COMPLETED",
    ]


async def test_an_order_that_is_reset_is_announced_again_only_in_another_stage(
    busy_shop: Shop, cli: TemporalCli
) -> None:
    """Issue 4 item 7: one announcement for each stage, also of a second run."""
    async with subscribed(busy_shop) as heard:
        order = await completed(busy_shop)
        await Announced(order, Stage.COMPLETED).handle.result()
        for expected in (["completed"], ["completed", "failed_compensated"]):
            where = ("--workflow-id", order.id, "--type", "FirstWorkflowTask")
            run = (await cli.json("reset", *where, "--reason", "a test"))["runId"]
            again = Order(
                busy_shop, busy_shop.client.get_workflow_handle(order.id, run_id=run), order.event, order.definition
            )
            if expected == ["completed"]:
                await again.approve()
            else:
                await again.until(Stage.AWAITING_APPROVAL)
                await again.cancel()
            ended = (await again.ending()).view.stage
            await Announced(order, ended).handle.result()
            assert [event_of(each).get_data()["stage"] for each in heard.told(order.id)] == expected
        busy_shop.orders.remove(order)


async def test_what_a_receiver_missed_is_sent_again_from_the_queue(open_counter: Counter) -> None:
    """Issue 4 item 7: listed, shown, sent again, and told by `show` of the order."""
    async with subscribed(open_counter.shop) as heard:
        announced = await left_untold(open_counter.shop, heard)
        [item] = [
            each for each in (await open_counter("review", "list", "--json")).json if each["key"] == announced.key()
        ]
        assert (item["error"], item["detail"]) == ("OutcomeUnknown", "http_500")
        shown = (await open_counter("review", "show", announced.key(), "--json")).json
        assert (shown["state"], [tried["ended"] for tried in shown["tried"]]) == ("pending", ["unknown: http_500"] * 2)
        ran = await open_counter("review", "retry", announced.key(), "--as", "carol")
        assert (ran.code, "still stands" in ran.err) == (1, True)
        heard.reply = TAKEN
        ran = await open_counter("review", "retry", announced.id, "--as", "carol")
        assert (ran.code, f"orderflow show {announced.order.id}" in ran.out) == (0, True)
        await announced.handle.result()
        page = await open_counter("show", announced.order.id, "--json")
        [told] = page.json["announcements"]
        assert (told["key"], told["state"]) == (announced.key(), "committed")
        assert [effect["workflow_id"] for effect in page.json["effects"]] == [announced.order.id] * 3
        assert "warehouse" in (await open_counter("show", announced.order.id)).out
        assert len({each.headers["webhook-id"] for each in heard.told(announced.order.id)}) == 1


async def test_an_announcement_that_is_gone_is_left_to_people_and_a_repair_sends_it(open_counter: Counter) -> None:
    """Issue 4 item 7: terminated while it waits; reconciliation puts it before people and never sends or undoes it."""
    shop = open_counter.shop
    async with subscribed(shop) as heard:
        announced = await left_untold(shop, heard)
        told = Announced(announced.order, Stage.COMPLETED)
        await announced.handle.terminate()
        ran = await open_counter("review", "retry", announced.key(), "--as", "carol")
        assert (ran.code, "run `orderflow reconcile`" in ran.err) == (1, True)
        for _ in "ab":
            assert (await open_counter("reconcile", "--json")).code == 0
        [item] = await shop.ledger.reviews_of(announced.id)
        assert (item.opened_by, item.error, item.closed_at) == ("reconcile", "terminated", None)
        assert len(heard.told(announced.order.id)) == 2
        heard.reply = TAKEN
        assert (await open_counter("review", "retry", announced.key(), "--as", "carol", "--json")).json["settled"]
        record = await shop.ledger.get(told.key())
        assert record is not None
        assert record.state is EffectState.COMMITTED
        again = (await open_counter("reconcile", "--json")).json
        assert not [each for each in again["findings"] if each["order"] == announced.id]
        bodies = {each.body for each in heard.told(announced.order.id)}
        assert (len(heard.told(announced.order.id)), len(bodies)) == (3, 1)


async def test_what_a_cancelled_announcement_left_a_repair_sends(open_counter: Counter) -> None:
    """Issue 4 item 7: the queue takes operations on it at once; reconciliation changes nothing of that."""
    shop = open_counter.shop
    async with subscribed(shop, retry={**TRIED_TWICE, "initial_interval": "P1D", "maximum_interval": "P1D"}) as heard:
        heard.reply = DOWN
        announced = Announced(await completed(shop), Stage.COMPLETED)

        async def tried() -> bool:
            return bool(heard.told(announced.order.id))

        await eventually(tried)
        await announced.handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await announced.handle.result()
        assert (await open_counter("reconcile")).code == 0
        heard.reply = TAKEN
        assert (await open_counter("review", "retry", announced.key(), "--as", "carol", "--json")).json["settled"]
        assert len(heard.told(announced.order.id)) == 2


async def test_what_the_ledger_never_saw_begin_stays_before_people(open_counter: Counter) -> None:
    """Cancelled before its first attempt: no effect is known, the item alone says that somebody was not told."""
    shop = open_counter.shop
    async with subscribed(shop) as heard:
        announced = Announced(await completed(shop), Stage.COMPLETED)
        await announced.handle.result()
        key = announced.key("another")
        left = Standing(step="announce_another", key=key, amount_minor=None, currency=None, error="cancelled")
        await shop.ledger.put_in_review(announced.id, "reconcile", [left])
        assert (await open_counter("reconcile")).code == 0
        item = await shop.ledger.review_item(key)
        assert item is not None
        assert (item.error, item.closed_at) == ("cancelled", None)
        assert len(heard.told(announced.order.id)) == 1


async def test_an_announcement_with_people_replays(busy_shop: Shop) -> None:
    """T28: what a retry and a flood of junk leave in its history is what today's code would do."""
    async with subscribed(busy_shop) as heard:
        announced = await left_untold(busy_shop, heard)
        for number in range(20):
            await announced.handle.signal(f"junk-{number}", number)
            await announced.handle.execute_update("decide", {"approval": "x"})
        heard.reply = TAKEN
        assert (await announced.operate(Operation.RETRY)).accepted
        await announced.handle.result()
        history = await announced.handle.fetch_history()
    await Replayer(workflows=[AnnounceWorkflow], data_converter=data_converter()).replay_workflow(history)
    await check_orders(busy_shop)
