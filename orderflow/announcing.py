"""AnnounceWorkflow: tells every subscriber that an order has finished, for as long as it takes.

Each subscriber is told apart from the others. Whom all attempts did not reach is put before people; what operators sign
is then carried out, one operation at a time, until nothing is left. Nothing of the order depends on it.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

# By full module names only: `from orderflow import x` would import x anew in the sandbox, for every run.
with workflow.unsafe.imports_passed_through():
    from orderflow.contracts import (
        ANNOUNCE_WORKFLOW_TYPE,
        OPERATE_UPDATE,
        VIEW_QUERY,
        DoorAnswer,
        EndRequest,
        WaitingView,
    )
    from orderflow.dispatch import CANCELLED, Failure, end_announcement, tell
    from orderflow.domain.announcements import (
        AnnounceRequest,
        AnnouncingState,
        Heard,
        Telling,
        telling_key,
        telling_step,
        told_by,
    )
    from orderflow.domain.approvals import Refusal
    from orderflow.domain.definition import RetryPolicy
    from orderflow.domain.durations import Duration
    from orderflow.domain.errors import ErrorType, InvalidJson
    from orderflow.domain.intents import canonical_json
    from orderflow.domain.operations import AcceptedOperation, Operation, OperationClaims
    from orderflow.domain.orders import Stage, Standing
    from orderflow.doors import Inbox, Message
    from orderflow.operating import Operators

_ONCE = RetryPolicy(attempts=1, initial_interval=Duration("PT1S"), backoff=1, maximum_interval=Duration("PT1S"))
"""What a person asks for is tried at once, so that they see what comes of it."""


@workflow.defn(name=ANNOUNCE_WORKFLOW_TYPE)
class AnnounceWorkflow:
    """One announcement, until every subscriber has it or a person says that it need not."""

    @workflow.init
    def __init__(self, *inputs: Any) -> None:
        self._inbox = Inbox()
        self._request = _read(inputs)
        self._state = _state_of(self._request)
        self._operators = Operators(self._state, _log)
        self._booking = asyncio.Lock()
        self._telling: list[asyncio.Task[Heard | Failure]] = []
        self._cancelled = False

    @workflow.run
    async def run(self, *inputs: Any) -> None:
        """Tell them. Takes one `AnnounceRequest`; fails for anything else, or when it was not started under its id."""
        request = self._request
        if request is None:
            message = "an announcement is started by its order, under its own id"
            raise ApplicationError(message, type=ErrorType.INVALID_INPUT, non_retryable=True)
        keeper = asyncio.create_task(self._inbox.serve(self._look_at, lambda: request.announcement.stage))
        work = asyncio.create_task(self._tell_all(request))
        await self._until(lambda: work.done() or keeper.done())
        if keeper.done():
            keeper.result()  # it only ever ends by a bug: that fails the workflow task (T16)
        work.result()
        await self._until(self._inbox.is_quiet)
        keeper.cancel()
        if self._cancelled:
            raise asyncio.CancelledError

    @workflow.query(name=VIEW_QUERY)
    def view(self) -> WaitingView:
        """What waits for people."""
        stage = self._request.announcement.stage if self._request else Stage.FAILED
        signed = tuple(operation.claims.jti for operation in self._state.operations)
        return WaitingView(stage=stage, standing=tuple(self._state.standing), operations=signed)

    @workflow.signal(dynamic=True)
    def on_signal(self, name: str, inputs: Sequence[RawValue]) -> None:
        """Every signal: dynamic, so that no message can wedge it (T54)."""
        self._inbox.receive("signal", name, inputs)

    @workflow.update(dynamic=True)
    async def on_update(self, name: str, inputs: Sequence[RawValue]) -> DoorAnswer:
        """The door `operate`, and every other name; answers what the message came to."""
        if self._request is None:
            return DoorAnswer(accepted=False, refusal=Refusal.NO_SUCH_EFFECT, stage=Stage.FAILED)
        message = self._inbox.receive("update", name, inputs)
        await message.answered.wait()
        return message.answer

    async def _look_at(self, message: Message) -> Refusal | None:
        if isinstance(message.token, Refusal):
            return message.token
        if message.name != OPERATE_UPDATE:
            return Refusal.NO_SUCH_REQUEST
        return await self._operators.take_up(message.token, message.at)

    async def _tell_all(self, request: AnnounceRequest) -> None:
        sending = [asyncio.create_task(self._send(request, name)) for name in self._state.to_tell]
        while not self._is_over():
            await workflow.wait_condition(
                lambda: self._is_over() or bool(self._state.operations) or self._may_continue()
            )
            if not self._is_over() and (operation := self._operators.next_operation()) is not None:
                await self._carry_out(request, operation)
            elif not self._is_over() and self._may_continue():
                workflow.continue_as_new(request.model_copy(update={"carried": self._state}))
        await workflow.wait_condition(lambda: all(task.done() for task in sending))
        for task in sending:
            task.result()
        await self._end(request)

    def _is_over(self) -> bool:
        return self._cancelled or not (self._state.to_tell or self._state.standing)

    def _may_continue(self) -> bool:
        """Whether the history has grown long, and a new one may begin: nothing is on its way, nobody waits."""
        busy = self._state.to_tell or self._state.operations or not self._inbox.is_quiet()
        return not busy and workflow.info().is_continue_as_new_suggested()

    async def _send(self, request: AnnounceRequest, name: str, attempts: RetryPolicy | None = None) -> None:
        """Tell one subscriber; what comes to nothing is left to people."""
        came_to = await self._told(request, name, attempts)
        async with self._booking:
            key = telling_key(request.announcement.id, name)
            before = self._operators.left(key)
            others = [left for left in self._state.standing if left.key != key]
            if isinstance(came_to, Failure):
                await self._operators.book([*others, _left(key, name, came_to, before)])
            elif before is not None:
                await self._operators.book(others)
            if name in self._state.to_tell:
                self._state.to_tell.remove(name)

    async def _told(self, request: AnnounceRequest, name: str, attempts: RetryPolicy | None) -> Heard | Failure:
        """Tell one subscriber, in a task that a cancellation may stop; nothing else of this workflow may be stopped."""
        [subscription] = [each for each in request.subscriptions if each.name == name]
        telling = Telling(announcement=request.announcement, subscription=subscription)
        task = asyncio.create_task(tell(telling, attempts or subscription.retry))
        self._telling.append(task)
        if self._cancelled:
            task.cancel()
        await workflow.wait_condition(task.done)
        self._telling.remove(task)
        return CANCELLED if task.cancelled() else task.result()

    async def _carry_out(self, request: AnnounceRequest, operation: AcceptedOperation) -> None:
        """Do what was signed. It counts as not begun until it is done, so that whoever sent it sees the end of it."""
        self._state.operations.insert(0, operation)
        if operation.claims.operation is Operation.RETRY:
            async with self._booking:
                await self._operators.book(self._state.standing, operation)
            if (left := self._operators.left(operation.claims.effect)) is not None:
                await self._send(request, told_by(left.step), _ONCE)
        else:
            async with self._booking:
                await self._operators.resolve(operation)
        self._state.operations.remove(operation)

    async def _end(self, request: AnnounceRequest) -> None:
        """Leave the books as they are then: nothing left, or all that is left in the queue, for a repair to act on."""
        if self._state.standing:
            async with self._booking:
                await self._operators.book(self._state.standing, leaves=True)
        else:
            await end_announcement(EndRequest(workflow_id=request.announcement.id, stage=Stage.COMPLETED))

    async def _until(self, condition: Callable[[], bool]) -> None:
        """Wait; a cancellation stops what is on its way, and the rest of the work sees it."""
        while not condition():
            try:
                await workflow.wait_condition(condition)
            except asyncio.CancelledError:
                self._cancelled = True
                for task in self._telling:
                    task.cancel()


def _read(inputs: tuple[Any, ...]) -> AnnounceRequest | None:
    """What this run was started with; `None` unless the order itself started it: it is told to others, signed."""
    try:
        [only] = inputs
        request = AnnounceRequest.model_validate_json(canonical_json(only))
    except (ValueError, InvalidJson):
        return None
    info = workflow.info()
    own = request.announcement.id == info.workflow_id
    if info.continued_run_id is not None:
        return request if own else None
    by_order = info.parent is not None and info.parent.workflow_id == request.announcement.order
    return request if own and by_order and request.carried is None else None


def _state_of(request: AnnounceRequest | None) -> AnnouncingState:
    if request is None:
        return AnnouncingState(to_tell=[])
    names = [subscription.name for subscription in request.subscriptions]
    return request.carried or AnnouncingState(to_tell=names)


def _left(key: str, name: str, failure: Failure, before: Standing | None) -> Standing:
    """What waits for people: nothing was moved, so there is no amount; what they said so far stays."""
    return Standing(
        step=telling_step(name),
        key=key,
        amount_minor=None,
        currency=None,
        error=failure.error,
        detail=failure.detail,
        said=before.said if before else (),
    )


def _log(claims: OperationClaims) -> None:
    workflow.logger.info("operation accepted: %s %s by %s", claims.operation, claims.effect, claims.operator)
