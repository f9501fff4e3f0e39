"""Watching an order from outside, by what Temporal says of it: no query, so no workflow task and no event more."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowExecutionDescription, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from orderflow.client.search_attributes import STAGE
from orderflow.domain.orders import Stage

Seen = TypeVar("Seen")

Handle = WorkflowHandle[object, object]

PATIENCE = 30.0
"""Seconds that any wait of a test may take."""


async def eventually(
    look: Callable[[], Awaitable[Seen | None]], patience: float = PATIENCE, pause: float = 0.05
) -> Seen:
    """Look every `pause` seconds until there is something to see (anything true), and give it."""
    async with asyncio.timeout(patience):
        while not (seen := await look()):  # what is looked at is outside this process
            await asyncio.sleep(pause)
        return seen


async def at_stage(
    handle: Handle, stage: Stage, patience: float = PATIENCE, pause: float = 0.05
) -> WorkflowExecutionDescription:
    """Wait until an order's search attribute says `stage` and no workflow task is under way."""

    async def look() -> WorkflowExecutionDescription | None:
        described = await handle.describe()
        waits = not described.raw_description.HasField("pending_workflow_task")
        return described if waits and described.typed_search_attributes.get(STAGE) == stage else None

    return await eventually(look, patience, pause)


async def events_of(handle: Handle) -> list[HistoryEvent]:
    """The history of the order's run, oldest first."""
    async with asyncio.timeout(PATIENCE):
        return [event async for event in handle.fetch_history_events()]


def names_of(events: list[HistoryEvent]) -> list[str]:
    """The types of events, such as `WORKFLOW_TASK_STARTED`."""
    return [EventType.Name(event.event_type).removeprefix("EVENT_TYPE_") for event in events]


async def runs_of(client: Client, order: str) -> int:
    """How many runs there have been of an order: its first run is its only one, or it has been started again."""
    try:
        described = await client.get_workflow_handle(order).describe()
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return 0
        raise
    first = described.raw_description.workflow_execution_info.first_run_id
    listed = [each.run_id async for each in client.list_workflows(f"WorkflowId = '{order}'")]
    return len({described.run_id, first, *listed})
