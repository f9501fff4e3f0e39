"""Operations on what an order left behind that no longer runs: one short workflow for each."""

import asyncio
from datetime import timedelta

from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy

from orderflow.client.connection import reachable
from orderflow.client.orders import NoAnswer
from orderflow.client.status import OrderStatus, order_status
from orderflow.client.temporal_cli import repair_id
from orderflow.contracts import REPAIR_WORKFLOW_TYPE, TASK_QUEUE, RepairAnswer, RepairRequest

_RUNS_FOR = timedelta(minutes=20)


async def repair(
    client: Client, token: str, jti: str, *, task_queue: str = TASK_QUEUE, patience: float = 60
) -> RepairAnswer:
    """Have a worker do the signed operation `token`, whose unique id is `jti`, and give what became of it.

    Raises `NoAnswer` if that takes longer than `patience` seconds; it may still be done. It says whether a worker is at
    it, or waits for one.
    """
    with reachable(client):
        handle = await client.start_workflow(
            REPAIR_WORKFLOW_TYPE,
            RepairRequest(operation=token),
            id=repair_id(jti),
            task_queue=task_queue,
            execution_timeout=_RUNS_FOR,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            result_type=RepairAnswer,
        )
        try:
            async with asyncio.timeout(patience):
                answer: RepairAnswer = await handle.result()
        except TimeoutError:
            why = _why(await order_status(client, handle.id))
            raise NoAnswer(f"{handle.id} has the operation and has not answered yet: {why}") from None
    return answer


def _why(status: OrderStatus) -> str:
    """What it waits for: the provider, another attempt, or a worker."""
    worker = f"is a worker running (task queue {status.task_queue})?"
    if status.status != "running":
        return f"it has just ended, {status.status}; the queue tells what became of it"
    if status.task_failure is not None:
        return f"its workflow task fails ({status.task_failure}); {worker}"
    if not status.pending or (status.pending[0].state != "started" and status.pending[0].failure is None):
        return f"no worker began it; {worker}"
    [activity] = status.pending
    before = f"; the attempt before failed: {activity.failure}" if activity.failure else ""
    if activity.state == "started":
        return f"a worker is at it and waits for the provider or the ledger (attempt {activity.attempt}{before})"
    if activity.failure_type == "timeout":
        return f"attempt {activity.attempt} waits for a worker{before}; {worker}"
    return f"attempt {activity.attempt} follows{before}"
