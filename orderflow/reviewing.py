"""What an order waits for people with: the queue is told what stands, and what an operator signed is carried out.

Runs in workflow code. Which operation may be done is decided at the door; here it is done, one at a time.
"""

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from orderflow.domain.operations import AcceptedOperation, Operation, Resolution
    from orderflow.operating import Operators, told
    from orderflow.progress import Progress
    from orderflow.saga import Saga


class Reviewing:
    """The queue's part of one order, and the operations on it."""

    def __init__(self, progress: Progress, saga: Saga) -> None:
        self._progress = progress
        self._state = progress.state
        self._saga = saga
        self._operators: Operators = progress.operators

    async def put_in_queue(self) -> None:
        """Tell the queue what stands; the ledger adds the amounts of what never came to a result."""
        await self._operators.book(self._state.standing)

    def next_operation(self) -> AcceptedOperation | None:
        """The oldest operation that still fits what stands; those that do not are dropped."""
        return self._operators.next_operation()

    async def carry_out(self, operation: AcceptedOperation) -> None:
        """Do what was signed, and tell the queue what stands then."""
        if operation.claims.operation is Operation.RETRY:
            await self._operators.book(self._state.standing, operation)
            await self._retry(operation.claims.effect)
            await self.put_in_queue()
        else:
            await self._resolve(operation)

    async def _retry(self, key: str) -> None:
        if (left := self._operators.left(key)) is not None:
            await self._saga.undo(left.step)

    async def _resolve(self, operation: AcceptedOperation) -> None:
        said, outcome = await self._operators.resolve(operation), operation.claims.outcome
        if said is not None and outcome is not None:
            self._saga.take_off(said.step, undone=outcome is Resolution.TAKEN_BACK)
            self._progress.note(f"{said.step}: {told(said, outcome)}")
