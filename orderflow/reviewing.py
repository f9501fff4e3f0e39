"""What waits for people: the queue is told what stands, and what an operator signed is carried out.

Runs in workflow code. Which operation may be done is decided at the door; here it is done, one at a time.
"""

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from orderflow import dispatch
    from orderflow.contracts import ReviewUpdate
    from orderflow.domain.operations import AcceptedOperation, Operation, Resolution, is_resolved, same_effect
    from orderflow.domain.orders import Said, Standing
    from orderflow.progress import Progress
    from orderflow.saga import Saga


class Reviewing:
    """The queue's part of one order, and the operations on it."""

    def __init__(self, progress: Progress, saga: Saga) -> None:
        self._progress = progress
        self._state = progress.state
        self._saga = saga

    async def put_in_queue(self) -> None:
        """Tell the queue what stands; the ledger adds the amounts of what never came to a result."""
        await self._book(self._state.standing)

    def next_operation(self) -> AcceptedOperation | None:
        """The oldest operation that still fits what stands; those that do not are dropped."""
        while self._state.operations:
            operation = self._state.operations.pop(0)
            if same_effect(self._progress.left(operation.claims.effect), operation.claims):
                return operation
        return None

    async def carry_out(self, operation: AcceptedOperation) -> None:
        """Do what was signed, and tell the queue what stands then."""
        if operation.claims.operation is Operation.RETRY:
            await self._book(self._state.standing, operation)
            await self._retry(operation.claims.effect)
            await self.put_in_queue()
        else:
            await self._resolve(operation)

    async def _retry(self, key: str) -> None:
        if (left := self._progress.left(key)) is not None:
            await self._saga.undo(left.step)

    async def _resolve(self, operation: AcceptedOperation) -> None:
        """Note one more person's word; what enough people say is the end of it."""
        claims, left = operation.claims, self._progress.left(operation.claims.effect)
        if left is None or claims.outcome is None:
            return
        said = left.with_said(Said(operator=claims.operator, outcome=claims.outcome, jti=claims.jti))
        others = [other for other in self._state.standing if other.key != said.key]
        if not is_resolved(said, claims.outcome, operation.alone_up_to):
            await self._book([*others, said], operation)
            return
        await self._book(others, operation, resolves=True)
        self._saga.take_off(left.step, undone=claims.outcome is Resolution.TAKEN_BACK)
        self._progress.note(f"{left.step}: {_resolved(said, claims.outcome)}")

    async def _book(
        self, standing: list[Standing], operation: AcceptedOperation | None = None, *, resolves: bool = False
    ) -> None:
        order = workflow.info().workflow_id
        update = ReviewUpdate(workflow_id=order, standing=tuple(standing), operation=operation, resolves=resolves)
        self._state.standing = list((await dispatch.book(update)).standing)


def _resolved(left: Standing, outcome: Resolution) -> str:
    people = " and ".join(said.operator for said in left.said if said.outcome == outcome)
    return f"{'taken back by hand' if outcome is Resolution.TAKEN_BACK else 'stands, and is kept'}, says {people}"
