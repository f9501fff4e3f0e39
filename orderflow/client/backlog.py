"""What waits for workers in a task queue, as Temporal tells it: how old the oldest task is, and how many there are.

A task counts that no worker has taken yet: the first of an order, and every later one whose worker is gone. Temporal
keeps those for a worker that has the order in its memory in a queue of that worker's own ("sticky"); when it does not
fetch them within 10 s they come here. Temporal repeats one answer for about 5 s.
"""

from datetime import timedelta
from typing import Final

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue, TaskQueueStats
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from orderflow.client.connection import ServerUnreachable, reachable
from orderflow.domain.errors import InvalidSettings
from orderflow.domain.intake import Look

_PATIENCE: Final = timedelta(seconds=2)
"""How long Temporal may take to answer one call: it takes milliseconds, and whoever asks asks again soon."""

_KINDS: Final = (TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW, TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY)
_TELLS_NOTHING: Final = frozenset({RPCStatusCode.UNIMPLEMENTED, RPCStatusCode.RESOURCE_EXHAUSTED})
"""Temporal is there: the server for tests that knows no such call, or one that has more important calls to answer."""


async def look(client: Client, task_queue: str) -> Look:
    """Look once. Never raises for what Temporal answers, or that it does not: the look's `fault` says it."""
    try:
        with reachable(client):
            stats = [await _stats(client, task_queue, kind) for kind in _KINDS]
    except (ServerUnreachable, InvalidSettings) as error:
        return Look(fault=error.message)
    except RPCError as error:
        return Look() if error.status in _TELLS_NOTHING else Look(fault=f"{error.status.name}: {error.message}")
    told = [each for each in stats if each is not None]
    if len(told) < len(_KINDS):
        return Look()
    oldest = max(each.approximate_backlog_age.ToTimedelta() for each in told)
    return Look(oldest=oldest, waiting=sum(each.approximate_backlog_count for each in told))


async def _stats(client: Client, task_queue: str, kind: TaskQueueType.ValueType) -> TaskQueueStats | None:
    request = DescribeTaskQueueRequest(
        namespace=client.namespace, task_queue=TaskQueue(name=task_queue), task_queue_type=kind, report_stats=True
    )
    answer = await client.workflow_service.describe_task_queue(request, timeout=_PATIENCE)
    return answer.stats if answer.HasField("stats") else None
