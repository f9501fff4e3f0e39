"""When a decision counts: not before its request exists, not after it expired, and only for a charge begun in time."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio.client import WorkflowHandle
from temporalio.testing import WorkflowEnvironment

from orderflow.domain.approvals import Refusal, Verdict
from orderflow.domain.errors import ProviderUnavailable
from orderflow.domain.orders import Reason, Stage
from orderflow.signing import KeyRegistry
from orderflow.workflows import OrderWorkflow
from tests.support.invariants import no_workflow_task_failed
from tests.support.shop import Order, Shop, check_orders, open_for_business, open_shop, order_event, order_of
from tests.workflow.clock import Clock
from tests.workflow.decisions import completes, fails, is_refused


async def test_nobody_in_time_means_no(clock: Clock, shop: Shop) -> None:
    """T10: after `expires_at` the order takes everything back, for that reason."""
    order = await shop.start()
    await order.until(Stage.AWAITING_APPROVAL)
    await clock.skip(timedelta(days=1, seconds=1))
    await fails(order, Reason.APPROVAL_EXPIRED)


async def test_a_decision_that_comes_before_its_request_is_not_kept(env: WorkflowEnvironment, tmp_path: Path) -> None:
    """T11: sent before any worker runs; refused, and a later valid one completes the order."""
    async with open_shop(env.client, tmp_path) as shop:
        order = await shop.start()
        await order.send("a.b.c")
        async with shop.worker() as shop.running:
            another = await shop.start()
            early = await another.token(workflow_id=order.id)
            await order.send(early)
            view = await order.when(lambda view: view.refused_total == 2)
            assert {refused.reason for refused in view.refusals} <= {Refusal.MALFORMED, Refusal.NO_SUCH_REQUEST}
            await order.approve()
            assert (await order.ending()).view.stage is Stage.COMPLETED
            await check_orders(shop)


async def test_a_decision_on_what_is_no_order_is_answered(env: WorkflowEnvironment, tmp_path: Path) -> None:
    """T14, T55: it came in before anybody had looked at the start; its sender hears that there is nothing to decide."""
    async with open_shop(env.client, tmp_path) as shop:
        event = order_event()
        handle: WorkflowHandle[Any, Any] = await env.client.start_workflow(
            OrderWorkflow.run, {"y": 1}, id=order_of(event), task_queue=shop.task_queue
        )
        order = Order(shop, handle, event, shop.definition)
        deciding = asyncio.create_task(order.decide("a.b.c"))
        await order.send("a.b.c")
        async with shop.worker():
            answer = await deciding
            assert (answer.accepted, answer.stage) == (False, Stage.FAILED)
            assert (await order.ending()).view.reason is Reason.INVALID_INPUT
            no_workflow_task_failed(await order.books())


async def test_messages_that_come_as_a_batch_completes_do_no_harm(env: WorkflowEnvironment, tmp_path: Path) -> None:
    """T34: 20 orders; junk arrives with the result of the check, the approval right after it; every history replays."""
    async with open_for_business(env.client, tmp_path, cached=100) as shop:
        await _junk_with_the_result(shop)


async def _junk_with_the_result(shop: Shop) -> None:
    events = [order_event() for _ in range(20)]
    gates = [shop.hold("check", order_of(event)) for event in events]
    orders = [await shop.start(event) for event in events]
    await asyncio.gather(*(gate.reached.wait() for gate in gates))
    for gate in gates:
        gate.open()
    await asyncio.gather(*(order.send("a.b.c") for order in orders), *(order.decide("a.b.c") for order in orders))
    await asyncio.gather(*(order.approve() for order in orders))
    await asyncio.gather(*(completes(order) for order in orders))
    assert {(await order.view()).refused_total for order in orders} == {2}


class _Hiccup(KeyRegistry):
    """A registry whose keys cannot be read when the charge asks for them the first time."""

    def __init__(self, inner: KeyRegistry) -> None:
        super().__init__(inner.members)
        self.asked = 0

    def verify(self, token: str) -> Verdict:
        self.asked += 1
        if self.asked == 2:
            raise ProviderUnavailable("the keys cannot be read now")
        return super().verify(token)


def _one_hour(value: dict[str, Any]) -> None:
    charge = value["steps"][3]
    charge["approval"] |= {"expires_in": "PT1H", "charge_within": "PT1H"}
    charge["retry"] |= {"initial_interval": "PT2H", "maximum_interval": "PT2H"}


async def test_a_charge_that_was_not_begun_in_time_is_asked_for_anew(
    env: WorkflowEnvironment, clock: Clock, tmp_path: Path
) -> None:
    """A01: past `charge_by` and never claimed: a new request, which the old approval does not answer."""
    async with open_shop(env.client, tmp_path, change=_one_hour) as shop:
        shop.registry = _Hiccup(shop.registry)
        async with shop.worker() as shop.running:
            order = await shop.start()
            before = await order.until(Stage.AWAITING_APPROVAL)
            old = await order.token()
            await order.send(old)
            await order.until(Stage.RUNNING)
            await clock.skip(timedelta(hours=2, minutes=5))
            after = await order.when(lambda view: view.stage is Stage.AWAITING_APPROVAL)
            assert before.request is not None
            assert after.request is not None
            assert after.request.bound.request_id != before.request.bound.request_id
            assert after.request.bound.charge_by > before.request.bound.charge_by
            await is_refused(order, "update", old, Refusal.EXPIRED)
            await order.approve("bob")
            assert (await order.ending()).view.stage is Stage.COMPLETED
            await check_orders(shop)
