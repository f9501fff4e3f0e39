"""Twenty thousand junk signals neither end an order nor fill its history (T54)."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

import pytest
from temporalio.api.common.v1 import Payload, Payloads, WorkflowExecution
from temporalio.api.enums.v1 import WorkflowTaskFailedCause
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import SignalWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from orderflow.contracts import APPROVE_SIGNAL
from orderflow.domain.orders import Stage
from orderflow.progress import KEPT_REFUSALS
from tests.support.invariants import check_books
from tests.support.observing import at_stage, events_of
from tests.support.processes import worker_of
from tests.support.shop import Order, Shop, open_shop

FLOOD: Final = 20_000
WAVE: Final = 2_000
"""Signals that come in one rush; a much higher one can exceed the 2 seconds that the SDK gives an activation."""

AT_ONCE: Final = 100
"""Signals that are on their way at the same time."""

LARGEST_HISTORY: Final = 11_000
"""Events of one run. The server takes at most 10,000 signals in a run, and then none until it has continued as new."""

PATIENCE: Final = 200.0

UNTIL_IT_CONTINUES: Final = frozenset({RPCStatusCode.INVALID_ARGUMENT, RPCStatusCode.RESOURCE_EXHAUSTED})
"""How the server refuses more signals for a run, or for a moment."""

OF_THE_SERVER: Final = frozenset(
    {
        WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND,
        WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_FORCE_CLOSE_COMMAND,
    }
)
"""How it ends a task for reasons of its own, to begin another: a signal came in while the run was about to continue as
new, or more than a hundred while one task was under way. Neither is an error of the workflow."""


@pytest.fixture
async def shop(client: Client, tmp_path: Path) -> AsyncIterator[Shop]:
    """A shop with a real worker process: the sender of the flood must not take the worker's own time."""
    async with open_shop(client, tmp_path) as shop, worker_of(shop):
        yield shop


def junk(client: Client, order: str) -> Sequence[SignalWorkflowExecutionRequest]:
    """A few kinds of it: no input, no JSON, no decision, no door."""
    contents = ((), (b"{",), (b'{"approval": "a.b.c"}',))
    messages = [(APPROVE_SIGNAL, content) for content in contents] + [("no_door", (b"null",))]
    return [
        SignalWorkflowExecutionRequest(
            namespace=client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=order),
            signal_name=name,
            input=Payloads(payloads=[Payload(metadata={"encoding": b"json/plain"}, data=data) for data in content]),
        )
        for name, content in messages
    ]


async def wave(client: Client, order: str) -> None:
    """Send junk, each message again until the server has taken it."""
    left = itertools.islice(itertools.cycle(junk(client, order)), WAVE)

    async def send() -> None:
        for message in left:
            while not await _is_taken(client, message):  # the server decides when it takes more
                await asyncio.sleep(0.05)

    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as senders:
        for _ in range(AT_ONCE):
            senders.create_task(send())


async def _is_taken(client: Client, message: SignalWorkflowExecutionRequest) -> bool:
    try:
        await client.workflow_service.signal_workflow_execution(message)
    except RPCError as error:
        if error.status not in UNTIL_IT_CONTINUES:
            raise
        return False
    return True


async def runs_of(client: Client, order: Order) -> list[list[HistoryEvent]]:
    """The histories of all runs of an order, from the first one on."""
    run_id = order.handle.first_execution_run_id
    runs = []
    while run_id:
        runs.append(await events_of(client.get_workflow_handle(order.id, run_id=run_id)))
        run_id = runs[-1][-1].workflow_execution_continued_as_new_event_attributes.new_execution_run_id
    return runs


@pytest.mark.timeout(300)
async def test_a_flood_of_junk_leaves_the_order_open_and_its_history_short(shop: Shop) -> None:
    """T54: several runs, one request, and an approval that was signed before the flood completes it: one charge."""
    order = await shop.start()
    await at_stage(order.handle, Stage.AWAITING_APPROVAL)
    before, token = await order.view(), await order.token()
    for _ in range(FLOOD // WAVE):
        await wave(shop.client, order.id)
        await at_stage(order.handle, Stage.AWAITING_APPROVAL, PATIENCE)
    view = await order.view()
    assert (view.stage, view.request) == (Stage.AWAITING_APPROVAL, before.request)
    assert [record.step for record in view.steps] == [step.id for step in shop.definition.steps]
    assert (view.refused_total, len(view.refusals)) == (FLOOD, KEPT_REFUSALS)
    await order.send(token)
    assert (await order.result()).stage is Stage.COMPLETED
    assert shop.world.net_charged(order.id) == order.event.data.total_minor
    assert len(shop.world.messages(order.id)) == 1
    # I-2 wants to see all activities in one history, and I-5 is looked at below, in every run
    await check_books(await order.books(), exempt={"I-2", "I-5"})
    runs = await runs_of(shop.client, order)
    assert len(runs) > 1
    for run in runs:
        assert len(run) < LARGEST_HISTORY
        assert _causes(run) <= OF_THE_SERVER


def _causes(run: list[HistoryEvent]) -> set[int]:
    """Why workflow tasks of a run failed."""
    failures = (event.workflow_task_failed_event_attributes for event in run)
    return {failure.cause for failure in failures if failure.cause}
