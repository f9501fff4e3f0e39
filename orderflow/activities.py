"""What acts: one activity for each kind of step, one for each compensation, and four that only look.

Every activity takes one model and gives one model (T17). This is the one place where an exception becomes "retry" or
"never retry" (T19), and where what a step means becomes an act in the ledger.
"""

import functools
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from temporalio import activity
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from orderflow.acts import forward_act, undo_act
from orderflow.approval_check import check_approval
from orderflow.attempts import Attempt, heartbeats
from orderflow.catalogue import Catalogue, StepKind
from orderflow.contracts import (
    ADMIT_ORDER,
    ANNOUNCE_WORKFLOW_TYPE,
    FIND_STANDING,
    SETTLE_EFFECT,
    VERIFY_DECISION,
    WORKFLOW_TYPE,
    Admission,
    AdmissionRequest,
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
from orderflow.domain.announcements import is_announcement
from orderflow.domain.approvals import Verdict
from orderflow.domain.effects import Done, EffectState, Provider, Refused
from orderflow.domain.errors import (
    DeadlinePassed,
    Declined,
    ErrorType,
    InvalidInput,
    OrderflowError,
    UnknownActivity,
)
from orderflow.domain.events import order_problems, payload_fingerprint
from orderflow.ledger import EffectRecord
from orderflow.ledger.effects import EffectStore, not_done

Request = TypeVar("Request")
Response = TypeVar("Response")

Activity = Callable[[Any], Awaitable[Any]]

EVERYDAY: Final = frozenset(
    {ErrorType.CHARGE_WINDOW_CLOSED, ErrorType.DEADLINE_PASSED, ErrorType.DECLINED, ErrorType.EFFECT_BUSY}
)
"""What happens in any shop on any day: no warning with a traceback in the worker's log."""

LONGEST_DECISION: Final = 65
"""Characters of a check's decision that are kept: one more than a route's name has, so no rest of a word is a route."""


def boundary(act: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """Turn whatever `act` raises into an `ApplicationError` that says whether a retry can help (T19, T20).

    Messages are ours, never a provider's: they stand in event history (T46).
    """

    @functools.wraps(act)
    async def bounded(request: Request) -> Response:
        try:
            return await act(request)
        except Exception as error:  # noqa: BLE001 - a bug: seen here, logged here, and retried: a release may mend it
            if (meant := _meant(error)) is not None:
                raise as_failure(meant) from None
            activity.logger.exception("unexpected error in an activity")
            name = activity.info().activity_type
            message = f"unexpected {type(error).__name__} in {name}; the worker's log has its traceback"
            raise ApplicationError(message, type=ErrorType.UNEXPECTED) from None

    return bounded


def _meant(error: BaseException | None) -> OrderflowError | None:
    """The outermost error of ours: what others wrap around it does not change what it means (T19)."""
    while error is not None and not isinstance(error, OrderflowError):
        error = error.__cause__
    return error


def as_failure(error: OrderflowError) -> ApplicationError:
    """The failure that Temporal records for `error`: exact type, short detail, retry or not, and when."""
    delay = timedelta(seconds=error.retry_after) if error.retry_after is not None else None
    details = [error.detail] if error.detail is not None else []
    return ApplicationError(
        error.message,
        *details,
        type=error.type.value,
        non_retryable=not error.retryable,
        next_retry_delay=delay,
        category=ApplicationErrorCategory.BENIGN if error.type in EVERYDAY else ApplicationErrorCategory.UNSPECIFIED,
    )


class OrderActivities:
    """Every activity of one worker, over a ledger, providers, and a way to verify decisions.

    `verify` says who signed a decision; `published` holds the fingerprints of the definitions that orders may start
    with; `worker` names this process in the record of attempts.
    """

    def __init__(
        self,
        *,
        effects: EffectStore,
        providers: Mapping[str, Provider],
        catalogue: Catalogue,
        verify: Callable[[str], Verdict],
        published: Collection[str],
        worker: str,
    ) -> None:
        self._effects = effects
        self._providers = providers
        self._catalogue = catalogue
        self._verify = verify
        self._published = published
        self._worker = worker

    def all(self) -> list[Activity]:
        """What a worker registers: the built-in kinds of step and those of extensions alike."""
        looks: list[Activity] = [
            activity.defn(name=ADMIT_ORDER)(boundary(self.admit_order)),
            activity.defn(name=VERIFY_DECISION)(boundary(self.verify_decision)),
            activity.defn(name=SETTLE_EFFECT)(boundary(self.settle_effect)),
            activity.defn(name=FIND_STANDING)(boundary(self.find_standing)),
            unknown_activity,
        ]
        kinds = self._catalogue.kinds.values()
        return looks + [do for kind in kinds for do in (self._forward(kind), *self._backward(kind))]

    async def admit_order(self, request: AdmissionRequest) -> Admission:
        """Record what must not be computed twice: fingerprints, and the rules that the order breaks."""
        fingerprint = request.definition.fingerprint
        return Admission(
            definition_fingerprint=fingerprint,
            payload_fingerprint=payload_fingerprint(request.event),
            published=fingerprint in self._published,
            problems=tuple(str(problem) for problem in order_problems(request.event.data)),
        )

    async def verify_decision(self, request: VerifyRequest) -> Verdict:
        """Say who signed a decision, and with which roles; raises nothing for a bad one."""
        return self._verify(request.token).model_copy(update={"at": request.at})

    async def settle_effect(self, request: SettleRequest) -> SettleResult:
        """Take the last look at a step whose attempts are used up: adopt what was done, or make sure it never is."""
        step, attempt = request.step, Attempt.current(self._worker)
        require_own_order(step.workflow_id)
        kind = self._kind(step.activity)
        if not kind.effect:
            return SettleResult()
        act = forward_act(kind, step)
        async with heartbeats():
            record = await self._effects.settle(act, self._provider(kind), void=True, **attempt.terms())
        if record is not None and record.state is EffectState.DECLINED:
            raise Declined(record.decline_code or "declined")
        return SettleResult(found=_result(record, attempt.now()) if record else None)

    async def find_standing(self, request: StandingRequest) -> StandingEffects:
        """Say what the ledger knows to stand of an order, also from a run before a reset."""
        records = await self._effects.standing(request.workflow_id)
        return StandingEffects(steps=tuple(record.step for record in records))

    def _forward(self, kind: StepKind) -> Activity:
        async def do(request: StepRequest) -> StepResult:
            require_own_order(request.workflow_id)
            async with heartbeats():
                return await (self._perform(kind, request) if kind.effect else self._check(kind, request))

        return activity.defn(name=kind.activity)(boundary(do))

    def _backward(self, kind: StepKind) -> Sequence[Activity]:
        async def undo(request: UndoRequest) -> UndoResult:
            require_own_order(request.workflow_id)
            async with heartbeats():
                return await self._undo(kind, request)

        return [activity.defn(name=kind.compensation)(boundary(undo))] if kind.compensation else []

    async def _perform(self, kind: StepKind, request: StepRequest) -> StepResult:
        attempt = Attempt.current(self._worker)
        await self._effects.require_not_compensated(request.workflow_id)

        def still_wanted() -> None:
            if request.deadline_at is not None and attempt.now() > request.deadline_at:
                raise DeadlinePassed(f"the deadline of {request.step} passed at {request.deadline_at.isoformat()}")

        def admit() -> None:
            still_wanted()
            if request.approval is not None:
                check_approval(request, request.approval, self._verify, attempt.now())

        record = await self._effects.perform(
            forward_act(kind, request),
            self._provider(kind),
            claim_by=request.approval.charge_by if request.approval else None,
            admit=admit,
            still_wanted=still_wanted,
            **attempt.terms(),
        )
        return _result(record, attempt.now())

    async def _check(self, kind: StepKind, request: StepRequest) -> StepResult:
        attempt = Attempt.current(self._worker)
        act = forward_act(kind, request)
        answer = await self._provider(kind).perform(act)
        if isinstance(answer, Refused):
            raise Declined(answer.code)
        if not isinstance(answer, Done):
            raise not_done(act, answer)
        decision = answer.result.get("decision")
        return StepResult(
            reference=answer.reference,
            decision=decision[:LONGEST_DECISION] if isinstance(decision, str) else None,
            done_at=attempt.now(),
        )

    async def _undo(self, kind: StepKind, request: UndoRequest) -> UndoResult:
        attempt = Attempt.current(self._worker)
        of = forward_act(kind, request)
        record = await self._effects.undo(undo_act(kind, of), of, self._provider(kind), **attempt.terms())
        return UndoResult(
            undone=record.state is EffectState.REVERSED,
            reference=record.reference,
            amount_minor=record.refunded_minor,
        )

    def _kind(self, name: str) -> StepKind:
        try:
            return self._catalogue.kind_for(name)
        except KeyError:
            raise UnknownActivity(f"no kind of step is called {name}; install its package on this worker") from None

    def _provider(self, kind: StepKind) -> Provider:
        try:
            return self._providers[kind.provider]
        except KeyError:
            raise UnknownActivity(f"this worker has no provider {kind.provider} for {kind.activity}") from None


@activity.defn(dynamic=True)
async def unknown_activity(inputs: Sequence[RawValue]) -> None:
    """Stands for every name that this worker does not know: the workflow asks again later, no attempt is used up."""
    name = activity.info().activity_type
    raise as_failure(UnknownActivity(f"this worker knows no activity {name}; install its package or deploy it"))


def _result(record: EffectRecord, now: datetime) -> StepResult:
    return StepResult(reference=record.reference or record.key, done_at=now, amount_minor=record.captured_minor)


def require_own_order(order: str) -> None:
    """An activity acts for the order that scheduled it, whoever else can reach the task queue."""
    _require_scheduled_by(order, WORKFLOW_TYPE)


def require_own_books(workflow_id: str) -> None:
    """What is written down of an order, or of an announcement, is what it says itself."""
    _require_scheduled_by(workflow_id, ANNOUNCE_WORKFLOW_TYPE if is_announcement(workflow_id) else WORKFLOW_TYPE)


def _require_scheduled_by(workflow_id: str, workflow_type: str) -> None:
    info = activity.info()
    if info.workflow_id != workflow_id or info.workflow_type != workflow_type:
        raise InvalidInput(f"{info.activity_type} acts for the order that scheduled it, not for {workflow_id}")
