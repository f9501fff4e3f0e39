"""What stands of one workflow and waits for people: the queue is told, and operators' operations are taken up.

Runs in workflow code, of orders and of announcements alike. Which operation may be done is decided here; what a retry
is, each knows itself.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from orderflow import dispatch
    from orderflow.contracts import ReviewUpdate, VerifyRequest
    from orderflow.domain import operations
    from orderflow.domain.approvals import Refusal
    from orderflow.domain.operations import AcceptedOperation, OperationClaims, Resolution, is_resolved, same_effect
    from orderflow.domain.orders import Said, Standing

Accepted = Callable[[OperationClaims], None]


class Attended(Protocol):
    """The part of a workflow's state that people act on; `operated` holds the `jti` of each accepted operation."""

    standing: list[Standing]
    operations: list[AcceptedOperation]
    operated: list[str]


class Operators:
    """The queue's part of one workflow, and the operations on it. `accepted` hears of each that is taken up."""

    def __init__(self, state: Attended, accepted: Accepted) -> None:
        self._state = state
        self._accepted = accepted

    def left(self, key: str) -> Standing | None:
        """What stands under that key, if anything does."""
        return next((left for left in self._state.standing if left.key == key), None)

    async def take_up(self, token: str | Refusal, at: datetime) -> Refusal | None:
        """Accept an operation that came in `at` that time, or say why not."""
        claims = token if isinstance(token, Refusal) else operations.read_operation(token)
        if isinstance(claims, Refusal):
            return claims
        if (refusal := self._not_about(claims)) is not None:
            return refusal
        verdict = await dispatch.verify_operation(VerifyRequest(token=str(token), at=at))
        if verdict is None:
            return Refusal.CANNOT_VERIFY
        refusal = operations.ineligible(claims, verdict) or self._not_about(claims)
        if refusal is not None or claims.jti in self._state.operated:
            return refusal  # the same operation once more is accepted and changes nothing
        if (refusal := operations.untimely(claims, verdict.at or at)) is None:
            accepted = AcceptedOperation(token=str(token), claims=claims, alone_up_to=verdict.alone_up_to)
            self._state.operations.append(accepted)
            self._state.operated.append(claims.jti)
            self._accepted(claims)
        return refusal

    def next_operation(self) -> AcceptedOperation | None:
        """The oldest operation that still fits what stands; those that do not are dropped."""
        while self._state.operations:
            operation = self._state.operations.pop(0)
            if same_effect(self.left(operation.claims.effect), operation.claims):
                return operation
        return None

    async def resolve(self, operation: AcceptedOperation) -> Standing | None:
        """Note one more person's word; gives the effect, with all that was said, once enough people say the same."""
        claims, left = operation.claims, self.left(operation.claims.effect)
        if left is None or claims.outcome is None:
            return None
        said = left.with_said(Said(operator=claims.operator, outcome=claims.outcome, jti=claims.jti))
        others = [other for other in self._state.standing if other.key != said.key]
        if not is_resolved(said, claims.outcome, operation.alone_up_to):
            await self.book([*others, said], operation)
            return None
        await self.book(others, operation, resolves=True)
        return said

    async def book(
        self,
        standing: list[Standing],
        operation: AcceptedOperation | None = None,
        *,
        resolves: bool = False,
        leaves: bool = False,
    ) -> None:
        """Make `standing` what stands, here and in the queue; the ledger adds the amounts that only it knows."""
        update = ReviewUpdate(
            workflow_id=workflow.info().workflow_id,
            standing=tuple(standing),
            operation=operation,
            resolves=resolves,
            leaves=leaves,
        )
        self._state.standing = list((await dispatch.book(update)).standing)

    def _not_about(self, claims: OperationClaims) -> Refusal | None:
        if claims.jti in self._state.operated:
            return None
        return operations.not_about(self.left(claims.effect), claims, workflow.info().workflow_id)


def told(said: Standing, outcome: Resolution) -> str:
    """Who said how it was settled, as a sentence."""
    people = " and ".join(each.operator for each in said.said if each.outcome == outcome)
    return f"{'taken back by hand' if outcome is Resolution.TAKEN_BACK else 'stands, and is kept'}, says {people}"
