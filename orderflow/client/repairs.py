"""Operations on what an order left behind that no longer runs: one short workflow for each."""

import asyncio
from datetime import timedelta

from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy

from orderflow.client.connection import reachable
from orderflow.client.orders import NoAnswer
from orderflow.contracts import REPAIR_WORKFLOW_TYPE, TASK_QUEUE, RepairAnswer, RepairRequest

_RUNS_FOR = timedelta(minutes=20)


async def repair(
    client: Client, token: str, jti: str, *, task_queue: str = TASK_QUEUE, patience: float = 60
) -> RepairAnswer:
    """Have a worker do the signed operation `token`, whose unique id is `jti`, and give what became of it.

    Raises `NoAnswer` if that takes longer than `patience` seconds; it may still be done.
    """
    with reachable(client):
        handle = await client.start_workflow(
            REPAIR_WORKFLOW_TYPE,
            RepairRequest(operation=token),
            id=f"repair-{jti}",
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
            worker = f"is a worker running (task queue {task_queue})?"
            raise NoAnswer(f"{handle.id} has the operation and has not answered yet; {worker}") from None
    return answer
