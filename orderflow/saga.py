"""Compensations: registered before the step, run in reverse, one at a time, whatever cancels meanwhile.

Runs in workflow code, in a task of its own that no cancellation of the workflow reaches (T01).
"""

from functools import partial

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from orderflow import dispatch
    from orderflow.contracts import UndoRequest
    from orderflow.dispatch import Failure
    from orderflow.domain.definition import Compensation, Step
    from orderflow.domain.intents import Direction, idempotency_key
    from orderflow.domain.orders import Reason, Standing, StepState
    from orderflow.progress import Progress


NOT_IN_THIS_LEDGER = "not_in_this_ledger"
"""A step was done, and the ledger that the worker has knows nothing of it: another ledger, or another order."""


class Saga:
    """The undo stack of one order. What it knows stands in the order's state, so it survives continue-as-new."""

    def __init__(self, progress: Progress) -> None:
        self._state = progress.state
        self._mark = progress.mark
        self._look = progress.look

    def register(self, step: Step) -> None:
        """Put the step's compensation on the stack, before the step is scheduled (T05)."""
        if step.compensation is not None and step.id not in self._state.registered:
            self._state.registered.append(step.id)

    @property
    def is_empty(self) -> bool:
        """Whether no step was started that has a compensation: nothing to undo is a normal end (T08)."""
        return not self._state.registered

    async def find_standing(self) -> None:
        """Put on the stack what another run of this order left standing: before a reset, or under the same id.

        The ledger knows it; when that cannot be asked now, every step is put there, and its undo will find out.
        """
        found = await self._look(dispatch.standing(workflow.info().workflow_id))
        known = {step.id: step for step in self._state.definition.steps}
        for step_id in known if found is None else found:
            if step_id in known:
                self.register(known[step_id])
            else:
                self._leave_standing(step_id, Failure(Reason.OUTCOME_UNKNOWN, "step_of_another_definition"))

    async def compensate(self) -> None:
        """Undo in reverse order of registration. One that fails stays standing and does not stop the others (T06)."""
        for step_id in reversed(list(self._state.registered)):
            await self.undo(step_id)

    async def undo(self, step_id: str) -> None:
        """Take one step back, also when that failed before; what this definition cannot undo stays as it is."""
        known = {step.id: step for step in self._state.definition.steps}
        step = known.get(step_id)
        if step is not None and step.compensation is not None:
            await self._undo(step, step.compensation)

    async def _undo(self, step: Step, compensation: Compensation) -> None:
        order = workflow.info().workflow_id
        request = UndoRequest(workflow_id=order, step=step.id, activity=step.activity, event=self._state.event)
        came_to = await dispatch.undo(compensation, request, partial(self._wait_for, step))
        if isinstance(came_to, Failure):
            self._leave_standing(step.id, came_to)
        elif self._was_done(step.id) and not came_to.undone:
            self._leave_standing(step.id, Failure(Reason.OUTCOME_UNKNOWN, NOT_IN_THIS_LEDGER))
        else:
            self.take_off(step.id, undone=came_to.undone)

    def _was_done(self, step_id: str) -> bool:
        if self._state.steps[step_id].state is StepState.DONE:
            return True
        return any(left.step == step_id and left.error == NOT_IN_THIS_LEDGER for left in self._state.standing)

    def _wait_for(self, step: Step, what: str) -> None:
        self._mark(step.id, detail=what)

    def take_off(self, step_id: str, *, undone: bool) -> None:
        """Nothing of the step is left to take back; `undone` is whether something was."""
        if step_id in self._state.registered:
            self._state.registered.remove(step_id)
        self._state.standing = [left for left in self._state.standing if left.step != step_id]
        if undone and step_id in self._state.steps:
            self._mark(step_id, state=StepState.UNDONE)

    def _leave_standing(self, step_id: str, failure: Failure) -> None:
        record = self._state.steps.get(step_id)
        amount = record.amount_minor if record else None
        before = next((left for left in self._state.standing if left.step == step_id), None)
        amount = before.amount_minor if before and amount is None else amount
        left = Standing(
            step=step_id,
            key=idempotency_key(workflow.info().workflow_id, step_id, Direction.DO),
            amount_minor=amount,
            currency=self._state.event.data.currency if amount is not None else None,
            error=failure.error,
            detail=failure.detail,
            said=before.said if before else (),
        )
        self._state.standing = [*(other for other in self._state.standing if other.step != step_id), left]
        if record:
            self._mark(step_id, state=StepState.STANDING)
