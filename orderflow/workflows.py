"""OrderWorkflow: what happens next to an order.

Read `run` first; it is the story. All that an order knows stands in one `OrderState`, changed through `progress`.
Messages from people come in through `doors`, steps are done by `stepping`, and `saga` takes back what was done.
A cancellation never interrupts: it is noted, and the next decision sees it.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NoReturn

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, FailureError

# By full module names only: `from orderflow import x` would import x anew in the sandbox, for every run.
with workflow.unsafe.imports_passed_through():
    from orderflow.admission import Rejected, read_start
    from orderflow.asking import open_request
    from orderflow.contracts import (
        VIEW_QUERY,
        WORKFLOW_TYPE,
        AdmissionRequest,
        DoorAnswer,
        EndRequest,
        OrderInput,
        OrderView,
    )
    from orderflow.dispatch import Failure, admit, begin_announcing, end, read_failure
    from orderflow.domain.approvals import ApprovalRequest, Refusal
    from orderflow.domain.audit import Told
    from orderflow.domain.definition import INLINE_ACTIVITIES, ApprovalPolicy, Step
    from orderflow.domain.errors import ErrorType
    from orderflow.domain.orders import SETTLED, Outcome, Reason, Stage, StepState
    from orderflow.doors import Doorkeeper, Inbox
    from orderflow.progress import Progress, upsert_stage
    from orderflow.reviewing import Reviewing
    from orderflow.saga import Saga
    from orderflow.stepping import Stepping

_CANCELLED = Failure(Reason.CANCELLED, "cancelled")
_REJECTED = Failure(Reason.APPROVAL_REJECTED, "rejected")
_EXPIRED = Failure(Reason.APPROVAL_EXPIRED, "expired")


@workflow.defn(name=WORKFLOW_TYPE)
class OrderWorkflow:
    """One order, from a trusted event to an end at which the books are right."""

    @workflow.init
    def __init__(self, *inputs: Any) -> None:
        info = workflow.info()
        self._inbox = Inbox()
        self._start = read_start(inputs, info.workflow_id, continued=info.continued_run_id is not None)
        if not isinstance(self._start, Rejected):
            self._progress = Progress(self._start)
            self._saga = Saga(self._progress)
            self._stepping = Stepping(self._progress, self._saga)
            self._reviewing = Reviewing(self._progress, self._saga)

    @workflow.run
    async def run(self, *inputs: Any) -> Outcome:
        """Bring the order to its end. Takes one `OrderInput`; returns the outcome of a completed order.

        Raises `ApplicationError` with the reason as its type and the outcome as its details when the order failed, and
        `CancelledError` when it was cancelled: by then everything is taken back.
        """
        if isinstance(self._start, Rejected):
            self._refuse_to_start(self._start)
        self._doorkeeper = asyncio.create_task(Doorkeeper(self._progress, self._inbox).serve())
        if self._progress.state.stage is not Stage.COMPENSATION_FAILED:
            failure = await self._go_forward()
            if failure is not None:
                await self._take_back(failure)
        else:
            await self._take_back_what_stands()
        await self._close()
        self._doorkeeper.cancel()
        return self._end()

    @workflow.query(name=VIEW_QUERY)
    def view(self) -> OrderView:
        """Everything that may be told about this order."""
        if isinstance(self._start, Rejected):
            info = workflow.info()
            return OrderView(
                order=info.workflow_id,
                run_id=info.run_id,
                stage=Stage.FAILED,
                reason=self._start.reason,
                detail="; ".join(self._start.problems),
            )
        return self._progress.view()

    @workflow.signal(dynamic=True)
    def on_signal(self, name: str, inputs: Sequence[RawValue]) -> None:
        """The door `approve`, and every other name: dynamic, so that no message can wedge the order (T54)."""
        self._inbox.receive("signal", name, inputs)

    @workflow.update(dynamic=True)
    async def on_update(self, name: str, inputs: Sequence[RawValue]) -> DoorAnswer:
        """The door `decide`, and every other name; answers what the message came to."""
        if isinstance(self._start, Rejected):
            return DoorAnswer(accepted=False, refusal=Refusal.NO_SUCH_REQUEST, stage=Stage.FAILED)
        message = self._inbox.receive("update", name, inputs)
        await message.answered.wait()
        return message.answer

    @on_update.validator
    def require_no_look(self, name: str, inputs: Sequence[RawValue]) -> None:
        """Turn an update away, without a trace, while a local activity is under way: it has to come again.

        A query can make two workflow tasks of one in that moment, and then the SDK (1.35) writes the acceptance of an
        update into a history that it cannot replay (ADR 0014).
        """
        if not isinstance(self._start, Rejected) and self._progress.is_looking:
            raise ApplicationError("the order is looking something up: send it again", type=ErrorType.EFFECT_BUSY)

    async def _go_forward(self) -> Failure | None:
        failure = await self._admit()
        while failure is None:
            failure = await self._run_until_blocked()
            blocked = self._blocked()
            if failure is not None or blocked is None:
                break
            failure = await self._await_approval(*blocked)
        return failure

    async def _admit(self) -> Failure | None:
        state = self._progress.state
        if state.admitted:
            return None
        try:
            request = AdmissionRequest(event=state.event, definition=state.definition)
            admission = await self._finish(self._progress.look(admit(request)))
        except FailureError as error:
            return read_failure(error)
        state.admitted = True
        state.definition_fingerprint = admission.definition_fingerprint
        state.payload_fingerprint = admission.payload_fingerprint
        state.problems = admission.problems
        if not admission.published:
            return Failure(Reason.DEFINITION_MISMATCH, ErrorType.DEFINITION_MISMATCH, admission.definition_fingerprint)
        return self._refuse_invalid_order() if admission.problems else None

    def _refuse_invalid_order(self) -> Failure:
        """The rules of an order hold whatever its definition says; the step that stands for them shows it."""
        failure = Failure(Reason.INVALID_ORDER, ErrorType.INVALID_INPUT, "; ".join(self._progress.state.problems))
        for step in self._progress.state.definition.steps:
            if step.activity in INLINE_ACTIVITIES:
                self._progress.mark(step.id, state=StepState.FAILED, error=failure.error, detail=failure.detail)
        return failure

    async def _run_until_blocked(self) -> Failure | None:
        """Do ready batches until nothing is ready that does not wait for people."""
        failure = None
        while failure is None and (batch := [step for step in self._ready() if self._may_start(step)]):
            self._progress.change_stage(Stage.RUNNING)
            failure = await self._settle(batch)
        return failure

    async def _settle(self, batch: Sequence[Step]) -> Failure | None:
        """Do a batch, and let all of it settle before anything is decided (T04); the first failure in order counts."""
        tasks = await self._begin(*(self._stepping.carry_out(step) for step in batch))
        if self._cancel_requested():
            for task in tasks:
                task.cancel()
        await self._until(lambda: all(task.done() for task in tasks), cancelling=tasks)
        failures: list[Failure | None] = [task.result() for task in tasks]
        if self._cancel_requested() and any(step.activity not in INLINE_ACTIVITIES for step in batch):
            return _CANCELLED
        for step, failure in zip(batch, failures, strict=True):
            if failure is not None:
                self._progress.stop(failure, step.id)
                return failure
        return None

    def _ready(self) -> tuple[Step, ...]:
        started = self._progress.in_state(StepState.RUNNING, StepState.IN_REVIEW, StepState.FAILED)
        return self._progress.state.definition.ready(self._progress.in_state(*SETTLED), started)

    def _may_start(self, step: Step) -> bool:
        return step.approval is None or step.id in self._progress.state.approvals

    def _blocked(self) -> tuple[Step, ApprovalPolicy, Stage] | None:
        """The next step that waits for people, with the policy and the stage for it."""
        state = self._progress.state
        for step_id in self._progress.in_state(StepState.IN_REVIEW):
            step = state.definition.step(step_id)
            if step.review is not None:
                return step, step.review, Stage.MANUAL_REVIEW
        for step in self._ready():
            if step.approval is not None:
                return step, step.approval, Stage.AWAITING_APPROVAL
        return None

    async def _await_approval(self, step: Step, policy: ApprovalPolicy, stage: Stage) -> Failure | None:
        state = self._progress.state
        request = state.request or self._open_request(step, policy)
        self._progress.change_stage(stage)
        [expiry] = await self._begin(workflow.sleep(max(0.0, (request.expires_at - workflow.now()).total_seconds())))
        await self._wait_or_continue_as_new(lambda: self._is_answered() or expiry.done())
        await self._until(self._inbox.all_answered())
        answered, state.request = state.request, None
        if state.rejected:
            return _REJECTED
        if answered is not None and answered.is_approved:
            self._take_approval(step, answered, stage)
            return None
        return _CANCELLED if self._cancel_requested() else _EXPIRED

    def _take_approval(self, step: Step, answered: ApprovalRequest, stage: Stage) -> None:
        if stage is Stage.MANUAL_REVIEW:
            self._progress.mark(step.id, state=StepState.DONE, done_at=answered.decided_at)
        else:
            self._progress.state.approvals[step.id] = answered
        self._progress.change_stage(Stage.RUNNING)

    def _is_answered(self) -> bool:
        state = self._progress.state
        return state.rejected or self._cancel_requested() or (state.request is not None and state.request.is_approved)

    def _cancel_requested(self) -> bool:
        return self._progress.state.cancel_requested

    def _open_request(self, step: Step, policy: ApprovalPolicy) -> ApprovalRequest:
        state = self._progress.state
        state.request = open_request(state, step, policy, self._stepping.ready_at(step), workflow.now())
        self._progress.tell(Told.REQUEST_OPENED, step.id, state.request.bound.request_id)
        return state.request

    async def _take_back(self, failure: Failure) -> None:
        self._progress.stop(failure)
        await self._finish(self._saga.find_standing())
        if not self._saga.is_empty or self._progress.state.standing:
            self._progress.change_stage(Stage.COMPENSATING)
            await self._finish(self._saga.compensate())
        await self._take_back_what_stands()

    async def _take_back_what_stands(self) -> None:
        """While something stands that no machine could take back, do what operators sign; then the order ends (T06)."""
        if self._progress.state.standing and self._progress.state.stage is not Stage.COMPENSATION_FAILED:
            self._progress.change_stage(Stage.COMPENSATION_FAILED)
            await self._finish(self._reviewing.put_in_queue())
        while self._progress.state.standing:
            await self._wait_or_continue_as_new(lambda: bool(self._progress.state.operations))
            if (operation := self._reviewing.next_operation()) is not None:
                self._progress.change_stage(Stage.COMPENSATING)
                await self._finish(self._reviewing.carry_out(operation))
                if self._progress.state.standing:
                    self._progress.change_stage(Stage.COMPENSATION_FAILED)

    async def _close(self) -> None:
        """Enter the final stage, which the ledger then knows already; leave nobody without an answer."""
        stage = Stage.FAILED_COMPENSATED if self._progress.in_state(StepState.UNDONE) else Stage.FAILED
        if self._progress.state.reason is None:
            stage = Stage.COMPLETED
        source = self._progress.state.event.source
        ending = EndRequest(workflow_id=workflow.info().workflow_id, stage=stage, source=source)
        ended = await self._finish(self._progress.look(end(ending)))
        self._progress.change_stage(stage)
        if (announcement := self._progress.announcement(ended)) is not None:
            await self._finish(begin_announcing(announcement))
        await self._until(self._inbox.is_quiet)

    async def _wait_or_continue_as_new(self, condition: Callable[[], bool]) -> None:
        """Wait for people, for as long as it takes, in a history that stays bounded."""
        suggested = workflow.info().is_continue_as_new_suggested
        await self._until(lambda: condition() or suggested())
        await self._until(lambda: condition() or self._inbox.is_quiet())
        if not condition():
            state = self._progress.state
            carried = OrderInput(event=state.event, definition=state.definition, carried=state)
            workflow.continue_as_new(carried)

    async def _until(self, condition: Callable[[], bool], cancelling: Sequence["asyncio.Task[Any]"] = ()) -> None:
        """Wait, whatever cancels meanwhile: a cancellation is noted, and passed on to `cancelling` (T01, T09)."""
        while not condition():
            try:
                await workflow.wait_condition(lambda: condition() or self._doorkeeper.done())
                if self._doorkeeper.done():
                    self._doorkeeper.result()  # it only ever ends by a bug: that fails the workflow task (T16)
            except asyncio.CancelledError:
                self._progress.note_cancellation()
                for task in cancelling:
                    task.cancel()

    async def _begin(self, *works: Coroutine[Any, Any, Any]) -> list["asyncio.Task[Any]"]:
        """Start `works`, and have each issue its first commands before anything else is looked at.

        What comes in together with the result of a local activity must count as having come after it, because that is
        the order in which the history is replayed: a query in between makes two workflow tasks of one. Hence what the
        result allows is begun first, a decision goes before the cancellation or expiry that overtook it, and a timer
        is not cancelled, as it may have fired.
        """
        tasks = [asyncio.create_task(work) for work in works]
        begun = asyncio.create_task(asyncio.sleep(0))
        await self._until(begun.done)
        return tasks

    async def _finish(self, work: Any) -> Any:
        """Run `work` to its end in a task that no cancellation of the workflow reaches."""
        task = asyncio.create_task(work)
        await self._until(task.done)
        return task.result()

    def _refuse_to_start(self, rejected: Rejected) -> NoReturn:
        upsert_stage(Stage.FAILED, rejected.reason)
        outcome = Outcome(
            order=workflow.info().workflow_id,
            stage=Stage.FAILED,
            reason=rejected.reason,
            detail="; ".join(rejected.problems),
        )
        raise _failed(outcome)

    def _end(self) -> Outcome:
        outcome = self._progress.outcome()
        if outcome.stage is Stage.COMPLETED:
            return outcome
        if outcome.reason is Reason.CANCELLED and workflow.cancellation_reason() is not None:
            raise asyncio.CancelledError
        raise _failed(outcome)


def _failed(outcome: Outcome) -> ApplicationError:
    sentence = f"{outcome.stage}: {outcome.reason}" + (f" ({outcome.detail})" if outcome.detail else "")
    return ApplicationError(sentence, outcome.as_json(), type=outcome.reason, non_retryable=True)
