"""From a definition's policies to activity calls, and from Temporal's failures back to what a step came to.

Runs in workflow code. Nothing else schedules an activity, so each one has finite attempts and timeouts (T22).
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import Generic, TypeVar

from temporalio import workflow
from temporalio.common import RawValue, WorkflowIDReusePolicy
from temporalio.common import RetryPolicy as TemporalRetryPolicy
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    FailureError,
    TimeoutError,  # noqa: A004
    is_cancelled_exception,
)

with workflow.unsafe.imports_passed_through():
    from pydantic import BaseModel

    from orderflow.contracts import (
        ADMIT_ORDER,
        ANNOUNCE,
        ANNOUNCE_WORKFLOW_TYPE,
        BOOK_REVIEW,
        END_ORDER,
        FIND_STANDING,
        SETTLE_EFFECT,
        VERIFY_DECISION,
        VERIFY_OPERATION,
        Admission,
        AdmissionRequest,
        Ended,
        EndRequest,
        ReviewBooked,
        ReviewUpdate,
        SettleRequest,
        SettleResult,
        StandingEffects,
        StandingRequest,
        StepRequest,
        StepResult,
        UndoRequest,
        UndoResult,
        VerifyRequest,
    )
    from orderflow.domain.announcements import (
        AnnounceRequest,
        Heard,
        Patience,
        Telling,
        as_patiently,
        telling_step,
    )
    from orderflow.domain.approvals import Verdict
    from orderflow.domain.definition import Compensation, Duration, RetryPolicy, Step
    from orderflow.domain.errors import PERMANENT_TYPES, ErrorType
    from orderflow.domain.operations import OperationVerdict
    from orderflow.domain.orders import Reason

Result = TypeVar("Result", bound=BaseModel)
Waiting = Callable[[str], None]

FIRST_PAUSE = timedelta(seconds=10)
LONGEST_PAUSE = timedelta(minutes=5)
"""Between tries of an activity that cannot act yet for a reason of ours: that never fails an order."""

NO_WORKER_KNOWS_IT = "no_worker_knows_it"
LEDGER_UNAVAILABLE = "ledger_unavailable"
_WAITED_OUT: Mapping[str, str] = MappingProxyType(
    {ErrorType.UNKNOWN_ACTIVITY: NO_WORKER_KNOWS_IT, ErrorType.LEDGER_UNAVAILABLE: LEDGER_UNAVAILABLE}
)

OWN_TIMEOUT = timedelta(seconds=10)
OWN_ATTEMPTS = TemporalRetryPolicy(maximum_attempts=5, initial_interval=timedelta(milliseconds=100))
ONE_ATTEMPT = TemporalRetryPolicy(maximum_attempts=1)

_REASONS: Mapping[str, Reason] = MappingProxyType(
    {
        ErrorType.DECLINED: Reason.DECLINED,
        ErrorType.AMOUNT_MISMATCH: Reason.AMOUNT_MISMATCH,
        ErrorType.INTENT_CONFLICT: Reason.INTENT_CONFLICT,
        ErrorType.EFFECT_REVERSED: Reason.EFFECT_REVERSED,
        ErrorType.APPROVAL_REFUSED: Reason.APPROVAL_REFUSED,
        ErrorType.DEFINITION_MISMATCH: Reason.DEFINITION_MISMATCH,
    }
)


@dataclass(frozen=True)
class Failure:
    """Why a step, or an undo, did not come to a result.

    `error` is an `ErrorType`, `timeout`, `cancelled` or `worker`; `detail` a short code (T21).
    """

    reason: Reason
    error: str
    detail: str | None = None

    @property
    def is_final(self) -> bool:
        """Whether no attempt can have left an effect in doubt."""
        return self.error in PERMANENT_TYPES

    @property
    def is_cancellation(self) -> bool:
        """Whether the step was cancelled, in whichever way that showed (T03)."""
        return self.reason is Reason.CANCELLED

    def because(self, reason: Reason) -> "Failure":
        """The same failure under another reason."""
        return Failure(reason, self.error, self.detail)


async def admit(request: AdmissionRequest) -> Admission:
    """Have the facts recorded that must not be computed twice. Raises `FailureError` when no worker could."""
    return await _recorded(ADMIT_ORDER, request, Admission)


async def verify(request: VerifyRequest) -> Verdict | None:
    """Who signed a decision, as a recorded verdict; `None` when it could not be checked now."""
    try:
        return await _recorded(VERIFY_DECISION, request, Verdict)
    except FailureError:
        return None


async def standing(workflow_id: str) -> tuple[str, ...] | None:
    """The steps of an order whose effects may stand, as the ledger knows them; `None` when it cannot be asked now."""
    try:
        return (await _recorded(FIND_STANDING, StandingRequest(workflow_id=workflow_id), StandingEffects)).steps
    except FailureError:
        return None


async def verify_operation(request: VerifyRequest) -> OperationVerdict | None:
    """Who signed an operation, as a recorded verdict; `None` when it could not be checked now."""
    try:
        return await _asked(VERIFY_OPERATION, request, OperationVerdict)
    except FailureError:
        return None


async def book(update: ReviewUpdate) -> ReviewBooked:
    """Have the queue for people say what stands; for as long as it takes, as nothing else is to be done meanwhile."""
    pause = FIRST_PAUSE
    while True:
        try:
            return await _asked(BOOK_REVIEW, update, ReviewBooked)
        except FailureError:
            await workflow.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)


async def end(request: EndRequest) -> Ended:
    """Have the ledger remember how the order ended, and learn who wants to hear of it.

    No order waits for that: who reconciles can still ask Temporal.
    """
    try:
        return await _recorded(END_ORDER, request, Ended, ONE_ATTEMPT)
    except FailureError:
        return Ended()


async def end_announcement(request: EndRequest) -> None:
    """Have the ledger remember that an announcement is over; who reconciles finds it, if that cannot be now."""
    with suppress(FailureError):
        await _asked(END_ORDER, request, Ended)


async def begin_announcing(request: AnnounceRequest) -> None:
    """Start what tells others that the order has finished, once for each stage; nothing of the order depends on it."""
    with suppress(FailureError):
        await workflow.start_child_workflow(
            ANNOUNCE_WORKFLOW_TYPE,
            request,
            id=request.announcement.id,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            parent_close_policy=workflow.ParentClosePolicy.ABANDON,
        )


async def tell(telling: Telling, attempts: RetryPolicy) -> Heard | Failure:
    """Tell one subscriber in so many attempts; where no worker can act for a reason of ours, that is waited for."""
    step = telling_step(telling.subscription.name)
    return await _when_able(_Call(ANNOUNCE, step, as_patiently(attempts), telling, Heard), lambda _: None)


async def perform(step: Step, request: StepRequest, waiting: Waiting) -> StepResult | Failure:
    """Do a step under its policy. `waiting` is told in a word what it waits for, when no attempt of it can act."""
    return await _when_able(_Call(step.activity, step.id, step, request, StepResult), waiting)


async def settle(step: Step, request: StepRequest, waiting: Waiting) -> SettleResult | Failure:
    """Take the last look at a step whose attempts are used up: adopt, prove absence, or fail (T25)."""
    call = _Call(SETTLE_EFFECT, f"{step.id}-settle", step, SettleRequest(step=request), SettleResult)
    return await _when_able(call, waiting)


async def undo(compensation: Compensation, request: UndoRequest, waiting: Waiting) -> UndoResult | Failure:
    """Take a step back under its compensation's own policy."""
    call = _Call(compensation.activity, f"{request.step}-undo", compensation, request, UndoResult)
    return await _when_able(call, waiting)


@dataclass(frozen=True)
class _Call(Generic[Result]):
    activity: str
    activity_id: str
    policy: Step | Compensation | Patience
    request: BaseModel
    result_type: type[Result]


async def _recorded(
    name: str, request: BaseModel, result_type: type[Result], attempts: TemporalRetryPolicy = OWN_ATTEMPTS
) -> Result:
    """Run a local activity: one marker in history, no round trip.

    Raises `FailureError`: unlike others, a local activity that raises is not wrapped in an `ActivityError`.
    """
    result: Result = await workflow.execute_local_activity(
        name,
        request,
        result_type=result_type,
        start_to_close_timeout=OWN_TIMEOUT,
        retry_policy=attempts,
    )
    return result


async def _asked(name: str, request: BaseModel, result_type: type[Result]) -> Result:
    """Run an activity of our own while other work of the order may go on.

    No local one: what comes in together with its result is not always replayed in that order.
    """
    result: Result = await workflow.execute_activity(
        name,
        request,
        result_type=result_type,
        start_to_close_timeout=OWN_TIMEOUT,
        schedule_to_close_timeout=OWN_TIMEOUT * 6,
        heartbeat_timeout=OWN_TIMEOUT,
        retry_policy=OWN_ATTEMPTS,
    )
    return result


async def _when_able(call: _Call[Result], waiting: Waiting) -> Result | Failure:
    pause = FIRST_PAUSE
    while True:
        came_to = await _call(call)
        if not isinstance(came_to, Failure) or came_to.error not in _WAITED_OUT:
            return came_to
        waiting(_WAITED_OUT[came_to.error])
        try:
            await workflow.sleep(pause)
        except asyncio.CancelledError:
            return CANCELLED
        pause = min(pause * 2, LONGEST_PAUSE)


async def _call(call: _Call[Result]) -> Result | Failure:
    policy = call.policy
    try:
        raw: RawValue = await workflow.execute_activity(
            call.activity,
            call.request,
            result_type=RawValue,
            activity_id=call.activity_id,
            start_to_close_timeout=_span(policy.start_to_close),
            schedule_to_close_timeout=_span(policy.schedule_to_close),
            heartbeat_timeout=_span(policy.heartbeat),
            retry_policy=_retry_policy(policy.retry),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )
    except (ActivityError, asyncio.CancelledError) as error:
        return read_failure(error)
    return _read_result(raw, call.result_type)


def _read_result(raw: RawValue, result_type: type[Result]) -> Result | Failure:
    """Decode what an activity came to. Who reaches the namespace can complete it with anything: that is no answer."""
    with suppress(KeyError, RuntimeError, ValueError):
        result = workflow.payload_converter().from_payload(raw.payload, result_type)
        if isinstance(result, result_type):  # `null` decodes to None, whatever is declared
            return result
    return Failure(Reason.OUTCOME_UNKNOWN, ErrorType.OUTCOME_UNKNOWN, "unreadable_result")


def _span(duration: Duration | None) -> timedelta | None:
    return duration.timedelta if duration else None


def _retry_policy(retry: RetryPolicy | None) -> TemporalRetryPolicy:
    if retry is None:
        raise ApplicationError("an activity without a retry policy is never scheduled", type=ErrorType.INVALID_INPUT)
    return TemporalRetryPolicy(
        maximum_attempts=retry.attempts,
        initial_interval=retry.initial_interval.timedelta,
        backoff_coefficient=float(retry.backoff),
        maximum_interval=retry.maximum_interval.timedelta,
        non_retryable_error_types=sorted({*retry.non_retryable, *PERMANENT_TYPES}),
    )


CANCELLED = Failure(Reason.CANCELLED, "cancelled")


def read_failure(error: BaseException) -> Failure:
    """The one place that unwraps what Temporal makes of an activity's failure (T03, T21)."""
    if is_cancelled_exception(error):
        return CANCELLED
    cause = error.cause if isinstance(error, ActivityError) else error
    if isinstance(cause, TimeoutError):
        return Failure(Reason.RETRIES_EXHAUSTED, "timeout", cause.type.name.lower() if cause.type else None)
    if isinstance(cause, ApplicationError):
        detail = str(cause.details[0]) if cause.details else None
        reason = _REASONS.get(cause.type or "") or (
            Reason.STEP_FAILED if cause.non_retryable else Reason.RETRIES_EXHAUSTED
        )
        return Failure(reason, cause.type or ErrorType.UNEXPECTED, detail)
    return Failure(Reason.RETRIES_EXHAUSTED, "worker", type(cause).__name__ if cause else None)
