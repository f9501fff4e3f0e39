"""Running a reconciliation from outside: one at a time, by a worker, and waiting for what it comes to."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from temporalio.api.enums.v1 import PendingActivityState
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import Client, WorkflowExecutionDescription, WorkflowFailureError, WorkflowHandle
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.exceptions import TimeoutError as TemporalTimeout

from orderflow.client.connection import reachable
from orderflow.client.failures import failure_message
from orderflow.client.orders import NoAnswer
from orderflow.client.status import OrderStatus, order_status
from orderflow.contracts import (
    RECONCILE_WORKFLOW_TYPE,
    TASK_QUEUE,
    ReconcileReport,
    ReconcileRequest,
)
from orderflow.domain.errors import ErrorType, OrderflowError, TransientError

RECONCILE_ID: Final = "orderflow-reconcile"
"""The Workflow ID of every reconciliation that a person begins, so that no two run at once."""

STALLED_AFTER: Final = 300.0
"""Seconds without a sign of life after which one that had begun is no longer waited for."""

_PAUSE: Final = 0.5
_RPC: Final = timedelta(seconds=10)
_TOLD: Final = 5
"""How often it is told that there is no sign of life, until it is given up."""

Say = Callable[[str], None]
Handle = WorkflowHandle[Any, ReconcileReport]


class ReconcileFailed(OrderflowError):
    """The reconciliation did not come to its end; what it had done until then is done."""


class OutOfReach(TransientError):
    """It did not come to its end because its worker could not reach the ledger, or was not heard of any more."""


@dataclass(frozen=True)
class Patience:
    """Seconds: until a worker has begun, and without a sign of life from then on."""

    begin: float = 15
    stalled: float = STALLED_AFTER


async def reconcile(
    client: Client,
    request: ReconcileRequest,
    *,
    say: Say,
    task_queue: str = TASK_QUEUE,
    patience: Patience = Patience(),
) -> ReconcileReport:
    """Have a worker reconcile, and give its report; one that runs already is waited for first. `say` hears progress.

    Raises:
        NoAnswer: if no worker begins in time; then nothing was done and nothing will be. Also if one that has begun
            shows no sign of life for too long; that one may still go on.
        OutOfReach: if it failed because the ledger could not be used, or because its workers died or froze.
        ReconcileFailed: if it failed for another reason, or somebody ended it.
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
            await _begun(client, handle, patience.begin, ours=True)
            return await _report(client, handle, say, patience.stalled)


async def _start(client: Client, request: ReconcileRequest, task_queue: str) -> Handle:
    started = await client.start_workflow(
        RECONCILE_WORKFLOW_TYPE,
        request,
        id=RECONCILE_ID,
        task_queue=task_queue,
        id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
        rpc_timeout=_RPC,
    )
    return client.get_workflow_handle(RECONCILE_ID, run_id=started.result_run_id, result_type=ReconcileReport)


async def _await_other(client: Client, say: Say, patience: Patience) -> None:
    handle: Handle = client.get_workflow_handle(RECONCILE_ID, result_type=ReconcileReport)
    await _begun(client, handle, patience.begin, ours=False)
    await _ended(client, handle, say, patience.stalled)


async def _begun(client: Client, handle: Handle, patience: float, *, ours: bool) -> None:
    """Wait until a worker is at work on it; else end it if it is `ours`, as whoever asked is told that it did not run.

    That a workflow task was handed out is no sign of it: a worker that is frozen is handed one too, and that of
    another release fails at it.
    """
    deadline = asyncio.get_running_loop().time() + patience
    while True:
        described = await handle.describe(rpc_timeout=_RPC)
        if described.close_time is not None or _is_begun(described):
            return
        if asyncio.get_running_loop().time() > deadline:
            break
        await asyncio.sleep(_PAUSE)
    status = await order_status(client, RECONCILE_ID)
    if ours:
        await handle.terminate("no worker began it in time", rpc_timeout=_RPC)
    raise NoAnswer(_not_begun(status, patience))


def _is_begun(described: WorkflowExecutionDescription) -> bool:
    return any(
        pending.state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED or pending.attempt > 1
        for pending in described.raw_description.pending_activities
    )


def _not_begun(status: OrderStatus, patience: float) -> str:
    failure = status.task_failure
    if failure is not None and failure.cause != "timed_out":
        return f"no worker of this release: the workflow task of {RECONCILE_ID} fails ({failure})"
    frozen = "; one was handed it and did not answer" if failure is not None else ""
    return (
        f"no worker began the reconciliation within {patience:g} s (task queue {status.task_queue}){frozen};"
        " start one with `orderflow worker`, and try again"
    )


async def _report(client: Client, handle: Handle, say: Say, stalled: float) -> ReconcileReport:
    await _ended(client, handle, say, stalled)
    try:
        return await handle.result(rpc_timeout=_RPC)
    except WorkflowFailureError as error:
        raise _failed(error) from None


def _failed(error: WorkflowFailureError) -> OrderflowError:
    cause: BaseException | None = error.cause
    while cause is not None and cause.__cause__ is not None:
        cause = cause.__cause__
    if isinstance(cause, ApplicationError) and cause.type == ErrorType.LEDGER_UNAVAILABLE:
        return OutOfReach(f"the reconciliation could not use the ledger: {cause.message}; run it again when it is back")
    if isinstance(cause, TemporalTimeout):
        return OutOfReach(f"the workers of the reconciliation died or froze ({cause}); look after them, and try again")
    why = cause.message if isinstance(cause, ApplicationError) else str(cause or error)
    return ReconcileFailed(f"the reconciliation failed: {why}; `temporal workflow show` tells more")


async def _ended(client: Client, handle: Handle, say: Say, stalled: float) -> None:
    """Wait for the end of a run, and say how far it is whenever that changes, and now and then that it does not.

    Raises `NoAnswer` after `stalled` seconds without a sign of life.
    """
    told, watch = "", _Watch(stalled, say)
    while (described := await handle.describe(rpc_timeout=_RPC)).close_time is None:
        if (now := await _progress(client, described)) and now != told:
            say(now)
            told = now
        watch.look(described)
        await asyncio.sleep(_PAUSE)


class _Watch:
    """How long there was no sign of life: no event, no attempt that began, no heartbeat."""

    def __init__(self, stalled: float, say: Say) -> None:
        self._stalled = stalled
        self._say = say
        self._seen: object = None
        self._since = 0.0
        self._told = 0

    def look(self, described: WorkflowExecutionDescription) -> None:
        """Tell of a silence every fifth of the time after which it raises `NoAnswer`."""
        now, seen = asyncio.get_running_loop().time(), _signs(described)
        if seen != self._seen:
            self._seen, self._since, self._told = seen, now, 0
        silent = now - self._since
        queue = f"task queue {described.task_queue}"
        if silent > self._stalled:
            raise NoAnswer(
                f"no sign of life from a worker for {silent:.0f} s ({queue}); the reconciliation goes on when one is"
                f" back, unless `temporal workflow terminate --workflow-id {RECONCILE_ID}` ends it"
            )
        if silent > self._stalled / _TOLD * (self._told + 1):
            self._told += 1
            self._say(f"no sign of life from its worker for {silent:.0f} s: is it dead or frozen ({queue})?")


def _signs(described: WorkflowExecutionDescription) -> object:
    pending = described.raw_description.pending_activities
    times = [(each.last_started_time.ToNanoseconds(), each.last_heartbeat_time.ToNanoseconds()) for each in pending]
    return described.run_id, described.history_length, times


async def _progress(client: Client, described: WorkflowExecutionDescription) -> str:
    for pending in described.raw_description.pending_activities:
        again = f"attempt {pending.attempt}: " if pending.attempt > 1 else ""
        if again and pending.state != PendingActivityState.PENDING_ACTIVITY_STATE_STARTED:
            return f"attempt {pending.attempt} waits: the one before failed: {(await _why(client, pending))[:200]}"
        details = await described.data_converter.decode(pending.heartbeat_details.payloads)
        if details and isinstance(details[0], dict):
            return again + ", ".join(f"{number} {what}" for what, number in details[0].items())
        if again:
            return f"{again}{(await _why(client, pending))[:200]}"
    return ""


async def _why(client: Client, pending: PendingActivityInfo) -> str:
    return await failure_message(client, RECONCILE_ID, pending.last_failure)
