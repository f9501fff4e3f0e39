"""What Temporal itself knows of an order, without asking any worker: why it stands still, if it does (T16)."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType, PendingActivityState, WorkflowTaskFailedCause
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from orderflow.client.connection import reachable
from orderflow.client.failures import failure_message
from orderflow.client.search_attributes import REASON, STAGE
from orderflow.domain.errors import InvalidInput

_PATIENCE = timedelta(seconds=5)
_RECENT_EVENTS = 20
_LONGEST_MESSAGE = 300


class UnknownOrder(InvalidInput):
    """No order of this id is, or was within the namespace's retention."""


class OrderClosed(InvalidInput):
    """The order has ended; nothing can be decided any more."""


@contextmanager
def about(client: Client, order: str) -> Iterator[None]:
    """Turn what a call about `order` can meet into `UnknownOrder`, `OrderClosed`, and what `reachable` raises."""
    with reachable(client):
        try:
            yield
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND or "amespace" in error.message:
                raise
            if "already completed" in error.message:
                raise OrderClosed(f"{order} has ended; nothing can be decided any more") from None
            raise UnknownOrder(f"there is no order {order} in the namespace {client.namespace}") from None


@dataclass(frozen=True)
class TaskFailure:
    """Why the last workflow task failed: Temporal's cause, and the error's type and message."""

    cause: str
    type: str
    message: str

    def __str__(self) -> str:
        return f"{self.type or self.cause}: {self.message}"


@dataclass(frozen=True)
class PendingActivity:
    """One activity that has not ended: `attempt` counts from 1, `failure` is how the attempt before it ended."""

    activity: str
    attempt: int
    state: str
    failure_type: str | None
    failure: str | None


@dataclass(frozen=True)
class OrderStatus:
    """An order as Temporal sees it. `task_attempt` is that of the pending workflow task, 0 if there is none.

    `task_failure` is given while that task is being retried: then the order stands still because of an error in
    workflow code, and people have to act.
    """

    order: str
    run_id: str
    status: str
    stage: str | None
    reason: str | None
    task_queue: str
    task_attempt: int
    task_failure: TaskFailure | None
    pending: tuple[PendingActivity, ...]


async def order_status(client: Client, order: str) -> OrderStatus:
    """Describe `order`. Raises `UnknownOrder` if there is none."""
    with about(client, order):
        found = await client.get_workflow_handle(order).describe(rpc_timeout=_PATIENCE)
        described = found.raw_description
        attempt = described.pending_workflow_task.attempt
        failure = await _last_task_failure(client, found.id, found.run_id) if attempt > 1 else None
    return OrderStatus(
        order=found.id,
        run_id=found.run_id,
        status=(found.status or WorkflowExecutionStatus.RUNNING).name.lower(),
        stage=found.typed_search_attributes.get(STAGE),
        reason=found.typed_search_attributes.get(REASON),
        task_queue=found.task_queue,
        task_attempt=attempt,
        task_failure=failure,
        pending=tuple([await _pending(client, found.id, each) for each in described.pending_activities]),
    )


async def _last_task_failure(client: Client, order: str, run_id: str) -> TaskFailure | None:
    recent = await client.workflow_service.get_workflow_execution_history_reverse(
        GetWorkflowExecutionHistoryReverseRequest(
            namespace=client.namespace,
            execution=WorkflowExecution(workflow_id=order, run_id=run_id),
            maximum_page_size=_RECENT_EVENTS,
        ),
        timeout=_PATIENCE,
    )
    return await _failure_in(client, order, recent.history.events)


async def _failure_in(client: Client, order: str, newest_first: Iterable[HistoryEvent]) -> TaskFailure | None:
    for event in newest_first:
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
            attributes = event.workflow_task_failed_event_attributes
            cause = WorkflowTaskFailedCause.Name(attributes.cause).removeprefix("WORKFLOW_TASK_FAILED_CAUSE_").lower()
            message = await failure_message(client, order, attributes.failure)
            return TaskFailure(cause, _type_of(attributes.failure), message[:_LONGEST_MESSAGE])
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT:
            return TaskFailure("timed_out", "", "no worker finished the task in time")
    return None


async def _pending(client: Client, order: str, activity: PendingActivityInfo) -> PendingActivity:
    failed = activity.HasField("last_failure")
    message = await failure_message(client, order, activity.last_failure) if failed else None
    return PendingActivity(
        activity=activity.activity_type.name,
        attempt=activity.attempt,
        state=PendingActivityState.Name(activity.state).removeprefix("PENDING_ACTIVITY_STATE_").lower(),
        failure_type=_type_of(activity.last_failure) if failed else None,
        failure=message[:_LONGEST_MESSAGE] if message is not None else None,
    )


def _type_of(failure: Failure) -> str:
    """The error's own type, or which of Temporal's failures it is, such as `timeout`."""
    kind = (failure.WhichOneof("failure_info") or "").removesuffix("_failure_info")
    return failure.application_failure_info.type or kind
