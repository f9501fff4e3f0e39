"""Running a reconciliation from outside: one at a time, by a worker, and waiting for what it comes to."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from temporalio.client import Client, WorkflowExecutionDescription, WorkflowFailureError, WorkflowHandle
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError

from orderflow.client.connection import reachable
from orderflow.client.orders import NoAnswer
from orderflow.client.status import order_status
from orderflow.contracts import (
    RECONCILE_WORKFLOW_TYPE,
    TASK_QUEUE,
    ReconcileReport,
    ReconcileRequest,
)
from orderflow.domain.errors import OrderflowError

RECONCILE_ID: Final = "orderflow-reconcile"
"""The Workflow ID of every reconciliation that a person begins, so that no two run at once."""

_PAUSE: Final = 0.5
_RPC: Final = timedelta(seconds=10)
_BEGUN: Final = 3
"""Events in the history of a run whose first workflow task a worker has taken."""

Say = Callable[[str], None]
Handle = WorkflowHandle[Any, ReconcileReport]


class ReconcileFailed(OrderflowError):
    """The reconciliation did not come to its end; what it had done until then is done."""


async def reconcile(
    client: Client, request: ReconcileRequest, *, say: Say, task_queue: str = TASK_QUEUE, patience: float = 15
) -> ReconcileReport:
    """Have a worker reconcile, and give its report; one that runs already is waited for first. `say` hears progress.

    Raises:
        NoAnswer: if no worker begins within `patience` seconds; then nothing was done and nothing will be.
        ReconcileFailed: if it failed, or somebody ended it.
        ServerUnreachable: if Temporal cannot be used.
    """
    with reachable(client):
        while True:
            try:
                handle = await _start(client, request, task_queue)
            except WorkflowAlreadyStartedError:
                say("another reconciliation runs; waiting for its end")
                await _await_other(client, say, patience)
                continue
            await _begun(client, handle, patience, ours=True)
            return await _report(handle, say)


async def _start(client: Client, request: ReconcileRequest, task_queue: str) -> Handle:
    return await client.start_workflow(
        RECONCILE_WORKFLOW_TYPE,
        request,
        id=RECONCILE_ID,
        task_queue=task_queue,
        result_type=ReconcileReport,
        id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
        rpc_timeout=_RPC,
    )


async def _await_other(client: Client, say: Say, patience: float) -> None:
    handle: Handle = client.get_workflow_handle(RECONCILE_ID, result_type=ReconcileReport)
    await _begun(client, handle, patience, ours=False)
    await _ended(handle, say)


async def _begun(client: Client, handle: Handle, patience: float, *, ours: bool) -> None:
    """Wait until a worker has taken the run; else end it if it is `ours`, as whoever asked is told that it did not run.

    One whose workflow task keeps failing counts as not begun: its worker is of another release.
    """
    deadline = asyncio.get_running_loop().time() + patience
    while True:
        described = await handle.describe(rpc_timeout=_RPC)
        if described.close_time is not None or _runs(described):
            return
        if asyncio.get_running_loop().time() > deadline:
            break
        await asyncio.sleep(_PAUSE)
    status = await order_status(client, RECONCILE_ID)
    if ours:
        await handle.terminate("no worker took it in time", rpc_timeout=_RPC)
    if status.task_failure is not None:
        raise NoAnswer(f"no worker of this release: the workflow task of {RECONCILE_ID} fails ({status.task_failure})")
    raise NoAnswer(
        f"no worker took the reconciliation within {patience:g} s (task queue {status.task_queue});"
        " start one with `orderflow worker`, and try again"
    )


def _runs(described: WorkflowExecutionDescription) -> bool:
    raw = described.raw_description
    return described.history_length >= _BEGUN and raw.pending_workflow_task.attempt <= 1


async def _report(handle: Handle, say: Say) -> ReconcileReport:
    await _ended(handle, say)
    try:
        return await handle.result(rpc_timeout=_RPC)
    except WorkflowFailureError as error:
        cause: BaseException | None = error.cause
        while cause is not None and cause.__cause__ is not None:
            cause = cause.__cause__
        why = cause.message if isinstance(cause, ApplicationError) else str(cause or error)
        raise ReconcileFailed(f"the reconciliation failed: {why}; `temporal workflow show` tells more") from None


async def _ended(handle: Handle, say: Say) -> None:
    """Wait for the end of a run, and say how far it is whenever that changes."""
    told = ""
    while (described := await handle.describe(rpc_timeout=_RPC)).close_time is None:
        if (now := await _progress(handle, described)) and now != told:
            say(now)
            told = now
        await asyncio.sleep(_PAUSE)


async def _progress(handle: Handle, described: WorkflowExecutionDescription) -> str:
    for pending in described.raw_description.pending_activities:
        again = f"attempt {pending.attempt}: " if pending.attempt > 1 else ""
        details = await described.data_converter.decode(pending.heartbeat_details.payloads)
        if details and isinstance(details[0], dict):
            return again + ", ".join(f"{number} {what}" for what, number in details[0].items())
        if again:
            return f"{again}{pending.last_failure.message[:200]}"
    return ""
