"""Orders from outside: start one, look at one, decide on one, list them."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from pydantic import ValidationError
from temporalio.client import (
    Client,
    WorkflowExecution,
    WorkflowExecutionStatus,
    WorkflowQueryFailedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import (
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from orderflow.client.connection import reachable
from orderflow.client.search_attributes import REASON, STAGE, ensure_search_attributes, missing_attributes
from orderflow.client.status import OrderClosed, UnknownOrder, about, order_status
from orderflow.contracts import (
    DECIDE_UPDATE,
    OPERATE_UPDATE,
    TASK_QUEUE,
    VIEW_QUERY,
    WORKFLOW_TYPE,
    DoorAnswer,
    OrderInput,
    OrderView,
    WaitingView,
)
from orderflow.domain.definition import Definition
from orderflow.domain.errors import ErrorType, InvalidSettings, TransientError
from orderflow.domain.events import OrderEvent, workflow_id
from orderflow.domain.orders import FINAL, Stage

T = TypeVar("T")

_SILENT = frozenset(
    {
        RPCStatusCode.CANCELLED,
        RPCStatusCode.DEADLINE_EXCEEDED,
        RPCStatusCode.FAILED_PRECONDITION,
        RPCStatusCode.RESOURCE_EXHAUSTED,  # others wait for an answer too
    }
)  # what a query meets that no worker answers in time


_SOON = 0.05  # seconds until an update is sent again


class NoAnswer(TransientError):
    """The order exists, but no worker answered for it in time; the message says why, as far as Temporal knows."""


@dataclass(frozen=True)
class StartedOrder:
    """The order of an event; `new` is false if it had been started before, `run_id` is then that of its latest run."""

    order: str
    run_id: str
    new: bool


@dataclass(frozen=True)
class OrderSummary:
    """One line of a list of orders; times are aware UTC. `stage` may lag a moment behind the order itself."""

    order: str
    run_id: str
    status: str
    stage: str | None
    reason: str | None
    started_at: datetime
    closed_at: datetime | None


async def start_order(
    client: Client,
    event: OrderEvent,
    definition: Definition,
    *,
    task_queue: str = TASK_QUEUE,
    warn: Callable[[str], None] | None = None,
) -> StartedOrder:
    """Start the order of `event` unless it was started before: the event's identity is the order's.

    A namespace that does not know our search attributes gets them; one that refuses them gets the order without, and
    `warn` hears why (T41): an order is worth more than its place in a list.
    """
    with reachable(client):
        try:
            return await _start(client, event, definition, task_queue, with_stage=True)
        except RPCError as error:
            if error.status is not RPCStatusCode.INVALID_ARGUMENT or "search attribute" not in error.message:
                raise
        try:
            await ensure_search_attributes(client)
        except InvalidSettings as error:
            if warn is not None:
                warn(error.message)
            return await _start(client, event, definition, task_queue, with_stage=False)
        return await _start(client, event, definition, task_queue, with_stage=True)


async def _start(
    client: Client, event: OrderEvent, definition: Definition, task_queue: str, *, with_stage: bool
) -> StartedOrder:
    order = workflow_id(event.source, event.id)
    stage = [SearchAttributePair(STAGE, Stage.RUNNING.value)] if with_stage else []
    try:
        handle = await client.start_workflow(
            WORKFLOW_TYPE,
            OrderInput(event=event, definition=definition),
            id=order,
            task_queue=task_queue,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            search_attributes=TypedSearchAttributes(stage),
        )
    except WorkflowAlreadyStartedError as error:
        return StartedOrder(order, error.run_id or "", new=False)
    return StartedOrder(order, handle.result_run_id or "", new=True)


async def view(client: Client, order: str, *, patience: float = 5) -> OrderView:
    """Ask a worker what `order` knows of itself, open or closed, for at most `patience` seconds.

    Raises:
        UnknownOrder: if there is none, or what has this id is no order.
        NoAnswer: if no worker answers; says so if its workflow task is failing (T16).
    """
    return await _told(client, order, OrderView, patience)


async def what_waits(client: Client, workflow_id: str, *, patience: float = 5) -> WaitingView:
    """Ask what waits for people of an order, or of an announcement. Raises as `view` does."""
    return await _told(client, workflow_id, WaitingView, patience)


async def _told(client: Client, order: str, shape: type[T], patience: float) -> T:
    try:
        with about(client, order):
            answer = await _asked(client, order, shape, patience)
    except WorkflowQueryFailedError as error:
        raise UnknownOrder(f"{order} is no order: {error}") from None
    except ValidationError:
        raise NoAnswer(f"the worker of {order} answers with what this release cannot read; run the same one") from None
    if answer is None:
        raise await _silence(client, order)
    return answer


async def _asked(client: Client, order: str, shape: type[T], patience: float) -> T | None:
    """The answer to the query, or `None`; the SDK's own limit holds for each of its retries, ours for all of them."""
    limit = timedelta(seconds=patience)
    try:
        async with asyncio.timeout(patience):
            answer: T = await client.get_workflow_handle(order).query(VIEW_QUERY, result_type=shape, rpc_timeout=limit)
            return answer
    except TimeoutError:
        return None
    except RPCError as error:
        if error.status not in _SILENT:
            raise
        return None


async def decide(client: Client, order: str, token: str, *, patience: float = 10) -> DoorAnswer:
    """Deliver a signed decision through the update `decide` and give its verdict.

    Raises:
        UnknownOrder, OrderClosed: as they say.
        NoAnswer: if no worker answers in `patience` seconds; the decision may still be taken up afterwards.
    """
    return await _knock(client, order, DECIDE_UPDATE, {"approval": token}, patience)


async def operate(client: Client, order: str, token: str, *, patience: float = 10) -> DoorAnswer:
    """Deliver a signed operation through the update `operate` and give the door's answer. Raises as `decide` does."""
    return await _knock(client, order, OPERATE_UPDATE, {"operation": token}, patience)


def turned_away(error: WorkflowUpdateFailedError) -> bool:
    """Whether the order only was in the middle of a look, so that the same update may come again."""
    return isinstance(error.cause, ApplicationError) and error.cause.type == ErrorType.EFFECT_BUSY


async def _knock(client: Client, order: str, door: str, message: dict[str, str], patience: float) -> DoorAnswer:
    """Send an update, again for as long as the order turns it away because it is looking something up."""
    give_up_at = time.monotonic() + patience
    while True:
        try:
            return await _knock_once(client, order, door, message, patience)
        except WorkflowUpdateRPCTimeoutOrCancelledError as error:
            if isinstance(error.__cause__, asyncio.CancelledError):  # whoever waited was cancelled, nobody was silent
                raise error.__cause__ from None
            raise await _silence(client, order) from None
        except WorkflowUpdateFailedError as error:
            if not turned_away(error):
                raise OrderClosed(f"{order} did not listen at {door}: {error.cause}") from None
            if time.monotonic() > give_up_at:
                raise NoAnswer(f"{order} did not come to it: {error.cause}") from None
        await asyncio.sleep(_SOON)


async def _knock_once(client: Client, order: str, door: str, message: dict[str, str], patience: float) -> DoorAnswer:
    with about(client, order):
        answer: DoorAnswer = await client.get_workflow_handle(order).execute_update(
            door, message, result_type=DoorAnswer, rpc_timeout=timedelta(seconds=patience)
        )
        return answer


async def list_orders(client: Client, *, stage: Stage | None = None, limit: int = 100) -> AsyncIterator[OrderSummary]:
    """Give the orders that Temporal lists, at most `limit`, of one `stage` or of all.

    In Temporal's own order: open ones first, the newest on top, then those that closed last. An order that Temporal
    terminated keeps the stage that it was in; it is not in a stage that others leave, and not listed there.
    """
    query = f'WorkflowType = "{WORKFLOW_TYPE}"'
    if stage is not None:
        query += f' AND {STAGE.name} = "{stage}"' + ("" if stage in FINAL else ' AND ExecutionStatus = "Running"')
    with reachable(client):
        try:
            async for found in client.list_workflows(query, limit=limit):
                yield _summary(found)
        except RPCError as error:
            if error.status is RPCStatusCode.INVALID_ARGUMENT:
                raise missing_attributes(client, f"so there is no stage to ask for ({error.message})") from None
            raise


def _summary(found: WorkflowExecution) -> OrderSummary:
    return OrderSummary(
        order=found.id,
        run_id=found.run_id,
        status=(found.status or WorkflowExecutionStatus.RUNNING).name.lower(),
        stage=found.typed_search_attributes.get(STAGE),
        reason=found.typed_search_attributes.get(REASON),
        started_at=found.start_time,
        closed_at=found.close_time,
    )


async def _silence(client: Client, order: str) -> NoAnswer:
    status = await order_status(client, order)
    if status.task_failure is not None:
        return NoAnswer(f"the workflow task of {order} is failing: {status.task_failure}")
    worker = f"start one with `orderflow worker` (task queue {status.task_queue})"
    return NoAnswer(f"no worker answered for {order}, which is {status.status}; {worker}")
