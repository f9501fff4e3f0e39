"""Messages that come when nobody waits for them: with a result, or for what turns out to be no order."""

import asyncio
from pathlib import Path
from typing import Any

from temporalio.client import WorkflowHandle
from temporalio.testing import WorkflowEnvironment

from orderflow.domain.orders import Reason, Stage
from orderflow.workflows import OrderWorkflow
from tests.support.invariants import no_workflow_task_failed
from tests.support.shop import Order, open_for_business, open_shop, order_event, order_of
from tests.workflow.decisions import completes


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
