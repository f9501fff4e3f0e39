"""One step of an order: ask for it to be done, take the last look when its attempts are used up, record the result.

Runs in workflow code.
"""

from datetime import datetime
from functools import partial

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from orderflow import dispatch
    from orderflow.contracts import StepRequest, StepResult
    from orderflow.dispatch import Failure
    from orderflow.domain.definition import DEFAULT_ROUTE, INLINE_ACTIVITIES, OnFailure, Route, Step
    from orderflow.domain.errors import ErrorType
    from orderflow.domain.orders import Reason, StepState
    from orderflow.progress import Progress
    from orderflow.saga import Saga


class Stepping:
    """Carries out single steps; what becomes of the order is decided by the workflow."""

    def __init__(self, progress: Progress, saga: Saga) -> None:
        self._progress = progress
        self._saga = saga

    async def carry_out(self, step: Step) -> Failure | None:
        """Do one step to its end. Returns the failure that stops the order, or `None` when it may go on."""
        self._saga.register(step)
        self._progress.mark(step.id, state=StepState.RUNNING, error=None, detail=None)
        came_to = self._inline(step) if step.activity in INLINE_ACTIVITIES else await self._perform(step)
        return self._fail(step, came_to) if isinstance(came_to, Failure) else self._succeed(step, came_to)

    def _inline(self, step: Step) -> StepResult:
        """`validate_order`: the rules were checked at admission, where the answer was recorded."""
        return StepResult(reference=step.id, done_at=workflow.info().workflow_start_time)

    async def _perform(self, step: Step) -> StepResult | Failure:
        request = self._request(step)
        came_to = await dispatch.perform(step, request, partial(self._wait_for, step))
        if isinstance(came_to, StepResult):
            return came_to
        if came_to.is_final and came_to.error != ErrorType.DEADLINE_PASSED:
            return came_to  # a stale step is looked at once more, so that it is never done later
        if came_to.is_cancellation and step.compensation is not None:
            return came_to  # its undo finds out what stands
        return await self._look_once_more(step, request, came_to)

    async def _look_once_more(self, step: Step, request: StepRequest, failure: Failure) -> StepResult | Failure:
        """Never "failed" with an effect standing: adopt what was done, or have its absence proven (T25, I06)."""
        settled = await dispatch.settle(step, request, partial(self._wait_for, step))
        if isinstance(settled, Failure):
            unknown = failure if failure.is_cancellation else failure.because(Reason.OUTCOME_UNKNOWN)
            return settled if settled.is_cancellation or settled.is_final else unknown
        if settled.found is not None:
            return settled.found
        if request.deadline_at is not None and workflow.now() > request.deadline_at:
            return Failure(Reason.STEP_FAILED, ErrorType.DEADLINE_PASSED)
        return failure

    def _wait_for(self, step: Step, what: str) -> None:
        self._progress.mark(step.id, detail=what)

    def _request(self, step: Step) -> StepRequest:
        state = self._progress.state
        return StepRequest(
            workflow_id=workflow.info().workflow_id,
            step=step.id,
            activity=step.activity,
            event=state.event,
            approval=state.approvals.get(step.id),
            deadline_at=self.ready_at(step) + step.deadline.timedelta if step.deadline else None,
        )

    def ready_at(self, step: Step) -> datetime:
        """When the last step that this one waited for was done, as it was recorded: not when we got to it (aware).

        For a step that was tried before and has to be approved anew, when that was found out.
        """
        steps = [*step.depends_on, step.id]
        done = [self._progress.record(step_id).done_at for step_id in steps]
        return max((at for at in done if at is not None), default=workflow.info().workflow_start_time)

    def _succeed(self, step: Step, result: StepResult) -> Failure | None:
        done = {
            "reference": result.reference,
            "decision": result.decision,
            "amount_minor": result.amount_minor,
            "done_at": result.done_at,
            "detail": None,
        }
        route = _route(step, result.decision)
        if route is Route.PROCEED:
            self._progress.mark(step.id, state=StepState.DONE, **done)
            return None
        if route is Route.MANUAL_REVIEW:
            self._progress.mark(step.id, state=StepState.IN_REVIEW, **done)
            return None
        self._progress.mark(step.id, state=StepState.FAILED, **done)
        return Failure(Reason.RISK_DECLINED, "routed", result.decision)

    def _fail(self, step: Step, failure: Failure) -> Failure | None:
        if failure.error == ErrorType.CHARGE_WINDOW_CLOSED and step.approval is not None:
            self._progress.state.approvals.pop(step.id, None)
            found_at = datetime.fromisoformat(failure.detail) if failure.detail else workflow.now()
            self._progress.mark(step.id, state=StepState.WAITING, error=failure.error, done_at=found_at)
            return None
        if failure.error == ErrorType.DEADLINE_PASSED and step.deadline is not None:
            self._skip(step, failure, "was not done: its deadline had passed, so it would have been stale")
            return None
        unknown = failure.reason is Reason.OUTCOME_UNKNOWN
        if step.on_failure is OnFailure.CONTINUE and not failure.is_cancellation:
            what = "may or may not have been done" if unknown else "was not done"
            self._skip(step, failure, f"{what}: it failed, and its definition lets the order go on")
            return None
        if unknown and step.compensation is None:
            self._progress.note(f"{step.id} may or may not have been done, and nothing takes it back")
        self._progress.mark(step.id, state=StepState.FAILED, error=failure.error, detail=failure.detail)
        return failure

    def _skip(self, step: Step, failure: Failure, why: str) -> None:
        self._progress.mark(
            step.id, state=StepState.SKIPPED, error=failure.error, detail=failure.detail, done_at=workflow.now()
        )
        self._progress.note(f"{step.id} {why}")


def _route(step: Step, decision: str | None) -> Route:
    """Where a decision leads; one that the definition does not name takes the default (L01)."""
    if not step.routes:
        return Route.PROCEED
    return step.routes.get(decision or DEFAULT_ROUTE, step.routes[DEFAULT_ROUTE])
