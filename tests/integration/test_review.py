"""The queue for people, from the command line to the provider: what waits, trying again, resolving, who may."""

import asyncio
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orderflow.acts import recorded_act, undo_act
from orderflow.client import NoAnswer, repair
from orderflow.contracts import REPAIR_WORKFLOW_TYPE, RepairAnswer
from orderflow.domain.approvals import Refusal
from orderflow.domain.effects import Absent, EffectState
from orderflow.domain.operations import Operation, Resolution
from orderflow.domain.orders import Stage, Standing
from orderflow.ledger import Claim
from orderflow.signing import operation_on
from tests.support.command_line import in_a_shell
from tests.support.counter import Counter
from tests.support.observing import eventually
from tests.support.operations import left_standing
from tests.support.shop import Order, Shop, order_event

pytestmark = pytest.mark.timeout(90)

RESOLVED = ("--outcome", "taken_back", "--reason", "refunded by hand", "--evidence", "receipt 17")


async def test_a_refund_is_tried_again_from_the_queue(open_counter: Counter) -> None:
    """T06: listed, shown with what was tried, tried again; then nothing waits and the order has ended."""
    order = await left_standing(open_counter.shop)
    key = f"{order.id}.charge.do"
    [item] = [each for each in (await open_counter("review", "list", "--json")).json if each["key"] == key]
    assert (item["amount_minor"], item["currency"], item["error"], item["detail"]) == (
        900,
        "EUR",
        "CannotUndo",
        "declined",
    )
    shown = (await open_counter("review", "show", key, "--json")).json
    assert (shown["state"], [tried["ended"] for tried in shown["tried"]]) == (
        "reversing",
        ["done", "declined: declined"],
    )
    tried = (await open_counter("review", "retry", order.id, "--as", "carol", "--json")).json
    assert tried["settled"]
    await order.until(Stage.FAILED_COMPENSATED)
    ran = await open_counter("review", "retry", key, "--as", "carol")
    assert (ran.code, "does not wait for people any more: undone" in ran.err) == (1, True)
    assert [said["operator"] for said in (await open_counter("review", "show", key, "--json")).json["said"]] == [
        "carol"
    ]


async def test_a_retry_that_fails_says_what_still_stands(open_counter: Counter) -> None:
    """Exit code 1; the item stays, and tables are for people."""
    order = await left_standing(open_counter.shop, refusals=2)
    ran = await open_counter("review", "retry", order.id, "--as", "carol", "--reason", "the bank is back")
    assert (ran.code, ran.err) == (1, f"orderflow: still stands: {order.id}.charge.do: CannotUndo (declined)\n")
    assert "EUR 9.00" in (await open_counter("review", "list")).out
    assert "declined: declined" in (await open_counter("review", "show", order.id)).out
    assert (await open_counter("review", "retry", order.id, "--as", "carol")).code == 0


async def test_a_resolution_above_the_limit_takes_two_people(open_counter: Counter) -> None:
    """Issue 3: the first is noted, the second ends it; somebody without the role is refused with the reason."""
    shop = open_counter.shop
    shop.fault("decline", "notify")
    shop.fault("decline", "refund")
    items = [{"sku": "tea", "quantity": 2, "unit_price_minor": 600}]
    order = await shop.start(order_event(items=items, total_minor=1200))
    order.exempt |= {"I-3", "ledger"}
    await order.approve()
    await order.until(Stage.COMPENSATION_FAILED)
    await order.seen(_in_queue)
    ran = await open_counter("review", "resolve", order.id, "--as", "alice", *RESOLVED)
    assert (ran.code, "role_not_held" in ran.err) == (1, True)
    first = await open_counter("review", "resolve", order.id, "--as", "carol", *RESOLVED)
    assert (first.code, "a second operator has to say the same" in first.out) == (0, True)
    assert (await open_counter("review", "resolve", order.id, "--as", "carol", *RESOLVED)).code == 1
    second = await open_counter("review", "resolve", order.id, "--as", "oscar", *RESOLVED, "--json")
    assert second.json["settled"]
    await order.until(Stage.FAILED_COMPENSATED)


async def _in_queue(order: Order) -> bool:
    return bool(await order.shop.ledger.reviews_of(order.id))


async def test_the_printed_command_operates_as_it_stands(open_counter: Counter) -> None:
    """For those who have Temporal's own CLI and a key: update `operate` for an order that is open."""
    order = await left_standing(open_counter.shop)
    printed = await open_counter("review", "retry", order.id, "--as", "carol", "--print")
    assert "carol signs: retry" in printed.err
    await asyncio.to_thread(in_a_shell, printed.out)
    await order.until(Stage.FAILED_COMPENSATED)


async def test_what_a_terminated_order_left_is_taken_back_from_the_queue(open_counter: Counter) -> None:
    """T53: the operator's retry releases it, once; the order no longer runs, so a workflow of its own does it."""
    order = await _terminated(open_counter.shop)
    [tried, again] = [await open_counter("review", "retry", order.id, "--as", "carol", "--json") for _ in "ab"]
    assert (tried.json["settled"], again.code) == (True, 1)
    assert (open_counter.shop.world.reserved(order.id), await _states(order)) == ({}, ["reversed", "committed"])


async def test_what_a_terminated_order_left_can_be_resolved_and_printed(open_counter: Counter) -> None:
    """T53, T45: by hand outside, with evidence; the printed command does the same."""
    order = await _terminated(open_counter.shop)
    printed = await open_counter("review", "resolve", order.id, "--as", "carol", *RESOLVED, "--print")
    assert f"--type {REPAIR_WORKFLOW_TYPE}" in printed.out
    await asyncio.to_thread(in_a_shell, printed.out)
    assert await _states(order) == ["reversed", "voided"]
    assert (await open_counter("review", "list", "--json")).json == []


@pytest.mark.parametrize(
    ("who", "claims", "reason"),
    [
        ("alice", {}, Refusal.ROLE_NOT_HELD),
        ("eve", {}, Refusal.UNKNOWN_KEY),
        ("carol", {"workflow_id": "order-x"}, Refusal.WRONG_ORDER),
        ("carol", {"amount_minor": 7}, Refusal.WRONG_AMOUNT),
        ("carol", {"effect": "order-x.charge.do"}, Refusal.NO_SUCH_EFFECT),
        ("carol", {"iat": 0}, Refusal.EXPIRED),
    ],
)
async def test_a_repair_that_nobody_may_do_is_refused(
    open_counter: Counter, who: str, claims: dict[str, Any], reason: Refusal
) -> None:
    """A01's rules hold at this door too, whoever starts the workflow."""
    order = await _terminated(open_counter.shop)
    answer = await _repair(order, who, claims)
    assert (answer.refusal, answer.settled) == (reason, False)
    assert open_counter.shop.world.reserved(order.id) == {"tea": 2}


async def test_an_order_that_runs_again_is_repaired_by_nobody_else(open_counter: Counter) -> None:
    """A terminated order was started anew before reconciliation saw it: what it adopts is its own."""
    order = await _terminated(open_counter.shop)
    open_counter.shop.orders.append(again := await open_counter.shop.start(order.event))
    assert (await _repair(order, "carol", {})).refusal is Refusal.ORDER_IS_OPEN
    await again.approve()
    await again.until(Stage.COMPLETED)
    assert (await _repair(order, "carol", {})).refusal is Refusal.ORDER_IS_OPEN
    assert open_counter.shop.world.reserved(order.id) == {"tea": 2}


@pytest.mark.parametrize("inputs", [(), ({"token": "x"},), ("x", "y"), (7,)])
async def test_a_bad_start_of_a_repair_fails_at_once(open_counter: Counter, inputs: Sequence[Any]) -> None:
    """T55: it never hangs."""
    handle = await open_counter.shop.client.start_workflow(
        REPAIR_WORKFLOW_TYPE, args=inputs, id=f"repair-{uuid.uuid4().hex}", task_queue=open_counter.shop.task_queue
    )
    with pytest.raises(Exception, match="Workflow execution failed"):
        await handle.result()


async def test_a_repair_that_is_late_says_whether_a_worker_or_the_provider_is_waited_for(counter: Counter) -> None:
    """T16: with a healthy worker nobody is asked to look for one."""
    shop = counter.shop
    gate = shop.hold("release")
    async with shop.worker():
        order = await _terminated(shop)
        with pytest.raises(NoAnswer, match="a worker is at it and waits for the provider") as caught:
            await _repair(order, "carol", {}, patience=3)
        assert "is a worker running" not in caught.value.message
        gate.open()
        await eventually(lambda: _settled(order))
    with pytest.raises(NoAnswer, match=f"no worker began it; is a worker running .task queue {shop.task_queue}"):
        await _repair(order, "carol", {}, patience=1)


async def _settled(order: Order) -> bool:
    return all(item.closed_at for item in await order.shop.ledger.reviews_of(order.id))


async def _terminated(shop: Shop) -> Order:
    """An order that was terminated with its stock reserved, put into the queue as reconciliation does."""
    order = await shop.start()
    await order.until(Stage.AWAITING_APPROVAL)
    await order.handle.terminate()
    shop.orders.remove(order)
    [reserved] = [effect for effect in await shop.ledger.effects(order.id) if effect.state is EffectState.COMMITTED]
    left = Standing(step=reserved.step, key=reserved.key, amount_minor=None, currency=None, error="terminated")
    await shop.ledger.put_in_review(order.id, "reconcile", [left])
    return order


async def _repair(
    order: Order,
    who: str,
    changes: dict[str, Any],
    operation: Operation = Operation.RETRY,
    *,
    patience: float = 60,
) -> RepairAnswer:
    """Have an operation done that `who` signed on the oldest item, with some of its claims changed."""
    item, *_ = await order.shop.ledger.reviews_of(order.id)
    grounds = {"outcome": Resolution.TAKEN_BACK, "evidence": "receipt 17"} if operation is Operation.RESOLVE else {}
    signed = operation_on(item.standing, order.id, operation, who, datetime.now(UTC), reason="try again", **grounds)  # type: ignore[arg-type]  # by operation
    token = order.shop.keys[who].sign(signed.model_copy(update=changes))
    shop = order.shop
    return await repair(shop.client, token, signed.jti, task_queue=shop.task_queue, patience=patience)


async def _states(order: Order) -> list[str]:
    return [effect.state.value for effect in await order.shop.ledger.effects(order.id)]


async def test_an_order_that_was_terminated_with_something_standing_is_sent_to_reconciliation(
    open_counter: Counter,
) -> None:
    """T53: its own door is closed; the line names the way, and after that the retry goes through."""
    order = await left_standing(open_counter.shop)
    await order.handle.terminate()
    open_counter.shop.orders.remove(order)
    ran = await open_counter("review", "retry", order.id, "--as", "carol")
    assert (ran.code, "run `orderflow reconcile`" in ran.err) == (1, True)
    assert (await open_counter("reconcile")).code == 0
    assert (await open_counter("review", "retry", order.id, "--as", "carol", "--json")).json["settled"]
    assert open_counter.shop.world.net_charged(order.id) == 0


async def test_whoever_looks_sees_on_what_grounds_people_decided(open_counter: Counter) -> None:
    """Issue 3: the second person has to know what the first one saw."""
    order = await left_standing(open_counter.shop)
    order.exempt |= {"I-3", "ledger"}
    await open_counter("review", "resolve", order.id, "--as", "carol", *RESOLVED)
    key = f"{order.id}.charge.do"
    [said] = (await open_counter("review", "show", key, "--json")).json["said"]
    assert (said["reason"], said["evidence"]) == ("refunded by hand", "receipt 17")
    assert "receipt 17" in (await open_counter("review", "show", key)).out
    await order.until(Stage.FAILED_COMPENSATED)


async def test_a_word_that_could_not_be_carried_out_can_be_said_again(open_counter: Counter) -> None:
    """Issue 3: a retry is at the provider meanwhile; nobody is told that it was decided when it was not."""
    shop = open_counter.shop
    order = await _terminated(shop)
    [item] = await shop.ledger.reviews_of(order.id)
    record = await shop.ledger.get(item.key)
    assert record is not None
    of = recorded_act(record)
    held = await shop.ledger.claim_undo(
        undo_act(shop.catalogue.kind_for("reserve_inventory"), of), of, holder="x", lease=timedelta(hours=1)
    )
    assert isinstance(held, Claim)
    for _ in "ab":
        answer = await _repair(order, "carol", {}, Operation.RESOLVE)
        assert (answer.refusal, answer.settled, answer.error) == (None, False, "EffectBusy")
    await shop.ledger.settle_undo(held, of, Absent())
    assert (await _repair(order, "carol", {}, Operation.RESOLVE)).settled
    assert await _states(order) == ["reversed", "voided"]


async def test_what_others_decided_meanwhile_is_not_undone_by_a_retry(open_counter: Counter) -> None:
    """Issue 3: the queue is not put back to what somebody read before a long call."""
    shop = open_counter.shop
    order = await left_standing(shop, refusals=2)
    await order.handle.terminate()
    shop.orders.remove(order)
    assert (await open_counter("reconcile")).code == 0
    [item] = await shop.ledger.reviews_of(order.id)
    other = item.standing.model_copy(update={"step": "notify", "key": f"{order.id}.notify.do", "error": "unknown"})
    await shop.ledger.put_in_review(order.id, "reconcile", [item.standing, other])
    gate = shop.hold("refund", order.id)
    retrying = asyncio.create_task(_repair(order, "carol", {}))
    await order.when(lambda _: gate.reached.is_set())
    await shop.ledger.put_in_review(order.id, "reconcile", [item.standing], "kept")
    gate.open()
    await retrying
    assert {each.key: each.closed_as for each in await shop.ledger.reviews_of(order.id)}[other.key] == "kept"
