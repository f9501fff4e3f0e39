"""Orders that have finished are announced: once for each final stage, signed, by an effect of its own."""

from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import WorkflowFailureError

from orderflow.contracts import ANNOUNCE_WORKFLOW_TYPE
from orderflow.domain.effects import EffectState
from orderflow.domain.errors import LedgerUnavailable
from orderflow.domain.operations import Operation, Resolution
from orderflow.domain.orders import Reason, Stage
from orderflow.ledger.sqlite import SqliteLedger
from tests.replay.endings import cancelled, completed, declined, failed, rejected
from tests.support.observing import events_of, eventually, names_of
from tests.support.scripted_door import Reply
from tests.support.shop import Order, Shop
from tests.support.subscribers import DOWN, NAME, TAKEN, Announced, event_of, receiver, subscribed, subscribers

ENDINGS = {
    completed: (Stage.COMPLETED, None),
    failed: (Stage.FAILED, Reason.DECLINED),
    declined: (Stage.FAILED_COMPENSATED, Reason.DECLINED),
    rejected: (Stage.FAILED_COMPENSATED, Reason.APPROVAL_REJECTED),
    cancelled: (Stage.FAILED_COMPENSATED, Reason.CANCELLED),
}


async def is_told(shop: Shop, key: str, state: EffectState = EffectState.COMMITTED) -> None:
    """Wait until the ledger says so."""

    async def look() -> bool:
        record = await shop.ledger.get(key)
        return record is not None and record.state is state

    await eventually(look)


@pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: ending.__name__)
async def test_each_final_stage_is_announced_once_and_without_personal_data(ending: Any, shop: Shop) -> None:
    """Issue 4 item 7: what a receiver's own libraries verify and parse says which order ended, how and why."""
    stage, reason = ENDINGS[ending]
    async with subscribed(shop) as heard:
        order: Order = await ending(shop)
        await order.ending()
        announced = Announced(order, stage)
        await announced.ending()
        [received] = heard.told(order.id)
    event = event_of(received)
    assert (event.get_type(), event.get_source()) == ("dev.orderflow.order.finished.v1", "/orderflow")
    assert event.get_id() == announced.id
    assert event.get_data() == {
        "order": order.id,
        "event_source": order.event.source,
        "event_id": order.event.id,
        "stage": stage.value,
        "reason": None if reason is None else reason.value,
        "definition": f"{order.definition.name} {order.definition.version}",
    }
    assert received.headers["content-type"] == "application/cloudevents+json"
    assert b"someone@example.com" not in received.body
    await is_told(shop, announced.key())
    assert await shop.ledger.ending(announced.id) == "completed"


async def test_without_subscribers_nothing_of_an_order_changes(shop: Shop) -> None:
    """Issue 4 item 7: nobody who hears, no command more; the same where nobody hears of that end."""
    async with subscribed(shop, stages=["failed"]) as heard:
        order = await completed(shop)
        await order.ending()
        names = names_of(await events_of(order.handle))
        assert not [name for name in names if "CHILD" in name]
        assert not heard.door.received


async def test_each_hears_of_what_it_asked_for(shop: Shop) -> None:
    """Issue 4 item 7: by stage and by the event's source; each is told apart from the others."""
    with receiver() as one, receiver() as other, receiver() as third:
        shop.subscribers = subscribers(
            {"name": "one", "url": one.door.url, "stages": ["completed"]},
            {"name": "other", "url": other.door.url, "sources": ["/another"]},
            {"name": "third", "url": third.door.url, "sources": ["/shop"]},
        )
        third.reply = DOWN
        order = await completed(shop)
        announced = Announced(order, Stage.COMPLETED)
        view = await announced.waits()
        assert [left.key for left in view.standing] == [announced.key("third")]
        assert (len(one.told(order.id)), len(other.door.received), len(third.told(order.id))) == (1, 0, 2)
        third.reply = TAKEN
        assert (await announced.operate(Operation.RETRY)).accepted
        await announced.ending()
        assert (len(one.told(order.id)), len(third.told(order.id))) == (1, 3)
        assert len({each.body for each in third.told(order.id)}) == 1
        assert len({each.headers["webhook-id"] for each in third.told(order.id)}) == 1


async def test_a_receiver_that_stays_down_is_left_to_people_who_may_say_that_it_need_not_hear(shop: Shop) -> None:
    """Issue 4 item 7: retries, then the queue; a retry that fails leaves it there; a resolution ends it."""
    async with subscribed(shop) as heard:
        heard.reply = Reply(401)
        order = await completed(shop)
        await order.ending()
        announced = Announced(order, Stage.COMPLETED)
        await announced.waits()
        [item] = await shop.ledger.reviews_of(announced.id)
        assert (item.key, item.error, item.detail) == (announced.key(), "ProviderUnavailable", "http_401")
        assert (item.opened_by, item.amount_minor) == ("order", None)
        heard.reply = Reply(500)
        assert (await announced.operate(Operation.RETRY)).accepted
        await announced.waits(lambda view: not view.operations and view.standing[0].error == "OutcomeUnknown")
        assert len(heard.told(order.id)) == 3
        assert (await announced.operate(Operation.RESOLVE, Resolution.KEPT)).accepted
        await announced.ending()
        assert len(heard.told(order.id)) == 3
    await is_told(shop, announced.key())
    [item] = await shop.ledger.reviews_of(announced.id)
    assert item.closed_as == "kept"


async def test_a_subscriber_that_is_gone_is_asked_once(shop: Shop) -> None:
    """Standard Webhooks: 410 is a definitive no; nothing waits for people."""
    async with subscribed(shop) as heard:
        heard.reply = Reply(410)
        order = await completed(shop)
        announced = Announced(order, Stage.COMPLETED)
        await announced.ending()
        assert len(heard.told(order.id)) == 1
    await is_told(shop, announced.key(), EffectState.DECLINED)
    assert not await shop.ledger.reviews_of(announced.id)


async def test_an_announcement_that_is_cancelled_leaves_what_it_did_not_tell_to_people(shop: Shop) -> None:
    """Issue 4 item 7: it ends; the queue shows it, for a repair to act on."""
    slow = {"attempts": 5, "initial_interval": "P1D", "backoff": 1, "maximum_interval": "P1D"}
    async with subscribed(shop, retry=slow) as heard:
        heard.reply = DOWN
        order = await completed(shop)
        announced = Announced(order, Stage.COMPLETED)

        async def tried() -> bool:  # and not at it any more: the time-skipping server loses a cancellation then
            pending = (await announced.handle.describe()).raw_description.pending_activities
            return bool(heard.told(order.id)) and any(each.attempt == 2 for each in pending)

        await eventually(tried)
        await announced.handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await announced.ending()
        [item] = await shop.ledger.reviews_of(announced.id)
        assert (item.key, item.opened_by, item.closed_at) == (announced.key(), "reconcile", None)


async def test_nobody_but_an_order_announces_its_end(shop: Shop) -> None:
    """T54: what is signed in our name comes from the order itself, whoever can start workflows."""
    async with subscribed(shop) as heard:
        order = await completed(shop)
        announced = Announced(order, Stage.COMPLETED)
        await announced.ending()
        started = (await events_of(announced.handle))[0].workflow_execution_started_event_attributes
        [told] = await shop.client.data_converter.decode(started.input.payloads)
        told["announcement"]["stage"] = "failed"
        forged = Announced(order, Stage.FAILED)
        with pytest.raises(WorkflowFailureError):
            await shop.client.execute_workflow(ANNOUNCE_WORKFLOW_TYPE, told, id=forged.id, task_queue=shop.task_queue)
        assert len(heard.told(order.id)) == 1
    assert NAME in announced.key()


async def test_an_announcement_that_waits_for_long_goes_on_in_a_new_run(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T12, T54: a flood of junk neither wedges it nor makes it forget what it waits for."""
    monkeypatch.setattr(
        workflow.Info, "is_continue_as_new_suggested", lambda info: info.get_current_history_length() > 60
    )
    async with subscribed(shop) as heard:
        heard.reply = DOWN
        order = await completed(shop)
        announced = Announced(order, Stage.COMPLETED)
        before = await announced.waits()
        first = (await announced.handle.describe()).run_id

        async def renewed() -> bool:
            await announced.handle.signal("junk", "junk")
            return (await announced.handle.describe()).run_id != first

        await eventually(renewed)
        assert await announced.waits() == before
        heard.reply = TAKEN
        assert (await announced.operate(Operation.RETRY)).accepted
        await announced.ending()
        assert len(heard.told(order.id)) == 3


async def test_an_end_that_cannot_be_noted_is_announced_all_the_same(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 4 item 7: that the ledger is away for a moment is no reason to tell nobody."""
    noted = SqliteLedger.end_order

    async def fails(ledger: SqliteLedger, workflow_id: str, stage: str) -> None:
        if workflow_id.startswith("order-"):
            raise LedgerUnavailable("the disk is full")
        await noted(ledger, workflow_id, stage)

    monkeypatch.setattr(SqliteLedger, "end_order", fails)
    async with subscribed(shop) as heard:
        order = await completed(shop)
        await Announced(order, Stage.COMPLETED).ending()
        assert len(heard.told(order.id)) == 1
