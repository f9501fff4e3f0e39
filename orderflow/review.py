"""The queue for people, on the worker's side: verifying operations, keeping the queue, acting for orders that are gone.

An order that is open does its own operations (`orderflow.reviewing`). What a terminated or vanished one left behind
has nobody to act for it: `RepairWorkflow` brings such an operation here.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from temporalio import activity

from orderflow.activities import Activity, boundary, require_own_books
from orderflow.acts import recorded_act, undo_act
from orderflow.attempts import Attempt, heartbeats
from orderflow.catalogue import Catalogue
from orderflow.client.fates import OrderFate
from orderflow.contracts import (
    BOOK_REVIEW,
    OPERATE_ON_EFFECT,
    VERIFY_OPERATION,
    RepairAnswer,
    RepairRequest,
    ReviewBooked,
    ReviewUpdate,
    VerifyRequest,
)
from orderflow.domain import operations
from orderflow.domain.announcements import is_announcement
from orderflow.domain.approvals import Refusal
from orderflow.domain.effects import EffectState, Provider
from orderflow.domain.errors import AmountMismatch, CannotUndo, UnknownActivity
from orderflow.domain.intents import Direction
from orderflow.domain.operations import Operation, OperationClaims, OperationVerdict
from orderflow.domain.orders import Said, Standing
from orderflow.domain.reconciliation import CONTRADICTS_THE_LEDGER, UNKNOWN_TO_THE_LEDGER, Fate
from orderflow.ledger.effects import EffectStore
from orderflow.ledger.review import Ledger, OpenedBy, OperationRecord, ReviewItem

GOES_ON = frozenset({Fate.OPEN, Fate.COMPLETED})
"""What became of an order whose effects are nobody's to take back but its own."""


class ReviewActivities:
    """The activities around the queue, over a ledger, providers, and a way to verify operations.

    `fate_of` tells what became of an order, as far as Temporal knows; `tell_again` has an announcement sent again whose
    workflow is gone, and gives why that cannot be.
    """

    def __init__(
        self,
        *,
        ledger: Ledger,
        effects: EffectStore,
        providers: Mapping[str, Provider],
        catalogue: Catalogue,
        verify: Callable[[str], OperationVerdict],
        fate_of: Callable[[str], Awaitable[OrderFate]],
        tell_again: Callable[[str, str, Attempt], Awaitable[str | None]],
        worker: str,
    ) -> None:
        self._ledger = ledger
        self._effects = effects
        self._providers = providers
        self._catalogue = catalogue
        self._verify = verify
        self._fate_of = fate_of
        self._tell_again = tell_again
        self._worker = worker

    def all(self) -> list[Activity]:
        """What a worker registers."""
        return [
            activity.defn(name=VERIFY_OPERATION)(boundary(self.verify_operation)),
            activity.defn(name=BOOK_REVIEW)(boundary(self.book_review)),
            activity.defn(name=OPERATE_ON_EFFECT)(boundary(self.operate_on_effect)),
        ]

    async def verify_operation(self, request: VerifyRequest) -> OperationVerdict:
        """Say who signed an operation, and up to which amount one person may resolve; raises nothing for a bad one."""
        return self._verify(request.token).model_copy(update={"at": request.at})

    async def book_review(self, request: ReviewUpdate) -> ReviewBooked:
        """Keep an accepted operation and its outcome, and make the order's part of the queue what stands now."""
        require_own_books(request.workflow_id)
        if request.operation is not None:
            await self._ledger.book_operation(request.operation.claims, request.operation.token)
            if request.resolves:
                await self._resolve(request.operation.claims)
        standing = [await self._with_amount(left) for left in request.standing]
        opened_by: OpenedBy = "reconcile" if request.leaves else "order"
        await self._ledger.put_in_review(request.workflow_id, opened_by, standing)
        return ReviewBooked(standing=tuple(standing))

    async def operate_on_effect(self, request: RepairRequest) -> RepairAnswer:
        """Do an operation on what an order left that is gone. Doing it again with the same token changes nothing."""
        claims = operations.read_operation(request.operation)
        if isinstance(claims, Refusal):
            return RepairAnswer(refusal=claims)
        attempt = Attempt.current(self._worker)
        item, said = await self._ledger.review_item(claims.effect), await self._ledger.operations(claims.effect)
        verdict = self._verify(request.operation).model_copy(update={"at": attempt.now()})
        refusal = _refusal(item, said, claims, verdict)
        if refusal is Refusal.ALREADY_DECIDED and item is not None and _is_due(item, said, claims, verdict):
            refusal = None  # enough people said so before, and it could not be carried out
        refusal = refusal or await self._others_business(claims)
        if refusal is not None or item is None:
            return RepairAnswer(refusal=refusal)
        await self._ledger.book_operation(claims, request.operation)
        if item.closed_at is not None:
            return RepairAnswer(settled=True)
        if claims.operation is Operation.RETRY:
            async with heartbeats():
                return await self._retry(item, attempt)
        left = _standing(item, await self._ledger.operations(claims.effect))
        if claims.outcome is None or not operations.is_resolved(left, claims.outcome, verdict.alone_up_to):
            return RepairAnswer()
        await self._resolve(claims)
        return RepairAnswer(settled=True)

    async def _others_business(self, claims: OperationClaims) -> Refusal | None:
        """What an order that is open holds is its own; of one that completed, only what is in doubt can be resolved."""
        fate = (await self._fate_of(claims.workflow_id)).fate
        if fate is Fate.COMPLETED and claims.operation is Operation.RESOLVE:
            record = await self._ledger.get(claims.effect)
            if record is None or record.state is EffectState.PENDING:
                return None
        return Refusal.ORDER_IS_OPEN if fate in GOES_ON else None

    async def _retry(self, item: ReviewItem, attempt: Attempt) -> RepairAnswer:
        if is_announcement(item.workflow_id):
            error = await self._tell_again(item.workflow_id, item.step, attempt)
            if error is None:
                await self._put_again(item)
            return RepairAnswer(settled=error is None, error=error)
        record = await self._ledger.get(item.key)
        if record is None:
            return RepairAnswer(error=UNKNOWN_TO_THE_LEDGER)
        of, provider = recorded_act(record), self._providers.get(record.provider)
        if provider is None:
            raise UnknownActivity(f"this worker has no provider {record.provider}; install its package")
        undo = undo_act(self._catalogue.undoing(record.provider, record.operation), of)
        try:
            record = await self._effects.undo(undo, of, provider, **attempt.terms())
        except (AmountMismatch, CannotUndo) as error:
            await self._put_again(item, item.standing.model_copy(update={"error": error.type, "detail": error.detail}))
            return RepairAnswer(error=error.type, detail=error.detail)
        if item.error == CONTRADICTS_THE_LEDGER and record.state is not EffectState.REVERSED:
            return RepairAnswer(error=item.error, detail=record.state)  # nothing was asked of the provider
        await self._put_again(item)
        return RepairAnswer(settled=True)

    async def _put_again(self, item: ReviewItem, *left: Standing) -> None:
        """Take the item off the queue, or leave it there as `left`; what became of others meanwhile stays."""
        items = await self._ledger.reviews_of(item.workflow_id)
        others = [each.standing for each in items if each.closed_at is None and each.key != item.key]
        await self._ledger.put_in_review(item.workflow_id, item.opened_by, [*others, *left], seen=items)

    async def _resolve(self, claims: OperationClaims) -> None:
        if claims.outcome is not None:
            undo_key = f"{claims.effect.rpartition('.')[0]}.{Direction.UNDO}"
            await self._ledger.resolve(claims.effect, undo_key, claims.outcome)

    async def _with_amount(self, left: Standing) -> Standing:
        """What the ledger knows was asked for, where the order never learned what came of it."""
        if left.amount_minor is not None or (record := await self._ledger.get(left.key)) is None:
            return left
        return left.model_copy(update={"amount_minor": record.amount_minor, "currency": record.currency})


def _refusal(
    item: ReviewItem | None, said: Sequence[OperationRecord], claims: OperationClaims, verdict: OperationVerdict
) -> Refusal | None:
    if (refusal := operations.ineligible(claims, verdict)) is not None:
        return refusal
    if item is None or item.opened_by != "reconcile":
        return Refusal.NO_SUCH_EFFECT
    if any(each.jti == claims.jti and each.accepted_at >= item.opened_at for each in said):
        return None  # its answer may not have arrived
    if item.closed_at is not None:
        return Refusal.NO_SUCH_EFFECT
    refusal = operations.not_about(_standing(item, said), claims, item.workflow_id)
    return refusal or (operations.untimely(claims, verdict.at) if verdict.at else None)


def _is_due(
    item: ReviewItem, said: Sequence[OperationRecord], claims: OperationClaims, verdict: OperationVerdict
) -> bool:
    """Whether enough people have said what `claims` says, of an item that is still open."""
    if item.closed_at is not None or claims.outcome is None:
        return False
    return operations.is_resolved(_standing(item, said), claims.outcome, verdict.alone_up_to)


def _standing(item: ReviewItem, said: Sequence[OperationRecord]) -> Standing:
    """The item as what stands, with what people said about it since it was opened."""
    left = item.standing
    for each in said:
        if each.outcome is not None and each.accepted_at >= item.opened_at:
            left = left.with_said(Said(operator=each.operator, outcome=each.outcome, jti=each.jti))
    return left
