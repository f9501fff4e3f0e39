"""What a reconciliation writes, and what it would write: the same calls to a hand that acts and to one that is idle."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from orderflow.acts import recorded_act, undo_act
from orderflow.attempts import Terms
from orderflow.catalogue import Catalogue
from orderflow.domain.effects import Absent, Act, Done, EffectState, Found, Provider, Refused, Undone
from orderflow.domain.errors import AmountMismatch, EffectBusy, EffectReversed, OutcomeUnknown, UnknownActivity
from orderflow.domain.orders import Standing
from orderflow.ledger import EffectRecord
from orderflow.ledger.effects import EffectStore
from orderflow.ledger.recall import NO_PROOF, Recall
from orderflow.ledger.review import Ledger, OpenedBy, ReviewItem

_NOW: Final = timedelta(0)


class Hand(ABC):
    """The changes that a reconciliation may make, over a ledger and providers.

    Raises:
        UnknownActivity: this worker has no provider or no kind of step for an effect.
        OutcomeUnknown, EffectBusy, ProviderUnavailable, ClaimLost: later.
        LedgerUnavailable: the ledger cannot be used now.
    """

    def __init__(self, ledger: Ledger, providers: Mapping[str, Provider], catalogue: Catalogue) -> None:
        self._ledger = ledger
        self._providers = providers
        self._catalogue = catalogue

    def provider(self, name: str) -> Provider:
        """The provider of that name. Raises `UnknownActivity` when this worker has none."""
        try:
            return self._providers[name]
        except KeyError:
            raise UnknownActivity(f"this worker has no provider {name}; install its package") from None

    async def is_absent(self, record: EffectRecord) -> bool:
        """Whether its provider proves that it never did it."""
        return isinstance(await self.found(recorded_act(record), record.age), Absent)

    async def found(self, act: Act, age: timedelta = _NOW) -> Found:
        """What its provider knows of an act that was first tried `age` ago; `Unknown` where it cannot say."""
        return await Recall(act, self.provider(act.provider), age).look() or NO_PROOF

    async def require_free(self, record: EffectRecord) -> None:
        """Let pass what nobody is at work on. Raises `EffectBusy`."""
        if await self._ledger.is_held(record.key):
            raise EffectBusy(f"{record.key} is in flight elsewhere")

    def _undo_of(self, record: EffectRecord) -> tuple[Act, Act]:
        of = recorded_act(record)
        return undo_act(self._catalogue.undoing(record.provider, record.operation), of), of

    @abstractmethod
    async def settle(self, record: EffectRecord) -> EffectRecord:
        """Take the last look at a PENDING effect: done, declined, or proven absent and then VOIDED.

        Raises `EffectReversed` when its provider has taken it back.
        """

    @abstractmethod
    async def undo(self, record: EffectRecord) -> EffectRecord:
        """Take an effect back under its own undo's key. Raises `CannotUndo` for a definitive no."""

    @abstractmethod
    async def adopt(self, act: Act, done: Done) -> EffectRecord:
        """Write down what a provider has done and the ledger does not know."""

    @abstractmethod
    async def void(self, act: Act) -> None:
        """Write a tombstone for what the ledger does not know and its provider has taken back."""

    @abstractmethod
    async def end(self, order: str, stage: str) -> bool:
        """Note how an order ended; whether that is news."""

    @abstractmethod
    async def review(
        self,
        order: str,
        opened_by: OpenedBy,
        standing: Sequence[Standing],
        closed_as: str,
        seen: Collection[ReviewItem],
    ) -> Collection[str]:
        """Make the order's part of the queue, as it was `seen`, exactly `standing`; the keys that this changes."""


class ActingHand(Hand):
    """Makes the changes, each effect under a claim of its own."""

    def __init__(
        self,
        ledger: Ledger,
        providers: Mapping[str, Provider],
        catalogue: Catalogue,
        *,
        holder: str,
        lease: timedelta,
    ) -> None:
        super().__init__(ledger, providers, catalogue)
        self._store = EffectStore(ledger)
        self._terms: Terms = {"holder": holder, "lease": lease, "patience": _NOW}

    async def settle(self, record: EffectRecord) -> EffectRecord:
        """See `Hand`."""
        act = recorded_act(record)
        with suppress(AmountMismatch):  # it stands, and the record says with how much
            await self._store.settle(act, self.provider(record.provider), void=True, **self._terms)
        return await self._ledger.get(record.key) or record

    async def undo(self, record: EffectRecord) -> EffectRecord:
        """See `Hand`."""
        undo, of = self._undo_of(record)
        return await self._store.undo(undo, of, self.provider(record.provider), **self._terms)

    async def adopt(self, act: Act, done: Done) -> EffectRecord:
        """See `Hand`."""
        return await self._store.adopt(act, done, **self._terms)

    async def void(self, act: Act) -> None:
        """See `Hand`."""
        await self._ledger.void(act)

    async def end(self, order: str, stage: str) -> bool:
        """See `Hand`."""
        if await self._ledger.ending(order) == stage:
            return False
        await self._ledger.end_order(order, stage)
        return True

    async def review(
        self,
        order: str,
        opened_by: OpenedBy,
        standing: Sequence[Standing],
        closed_as: str,
        seen: Collection[ReviewItem],
    ) -> Collection[str]:
        """See `Hand`."""
        return await self._ledger.put_in_review(order, opened_by, standing, closed_as, seen)


class IdleHand(Hand):
    """Says what the other would do, and only looks."""

    async def settle(self, record: EffectRecord) -> EffectRecord:
        """See `Hand`."""
        await self.require_free(record)
        found = await self.found(recorded_act(record), record.age)
        if found is NO_PROOF and not await self._may_have_acted(record):
            found = Absent()
        match found:
            case Done(amount_minor=amount):
                return replace(record, state=EffectState.COMMITTED, captured_minor=amount)
            case Refused(code=code):
                return replace(record, state=EffectState.DECLINED, decline_code=code)
            case Absent():
                return replace(record, state=EffectState.VOIDED)
            case Undone():
                raise EffectReversed(f"{record.provider} says that {record.key} was taken back")
        raise OutcomeUnknown(f"what became of {record.key} is not known: {found.answer}", answer=found.answer)

    async def undo(self, record: EffectRecord) -> EffectRecord:
        """See `Hand`; what the provider would answer nobody can know."""
        undo, _ = self._undo_of(record)
        self.provider(record.provider)
        await self.require_free(record)
        if await self._ledger.is_held(undo.key):
            raise EffectBusy(f"{undo.key} is in flight elsewhere")
        return replace(record, state=EffectState.REVERSED)

    async def adopt(self, act: Act, done: Done) -> EffectRecord:
        """See `Hand`: the record as it would be."""
        now = datetime.now(UTC)
        return EffectRecord(
            **act.model_dump(exclude={"intent"}),
            state=EffectState.COMMITTED,
            token=0,
            reference=done.reference,
            captured_minor=done.amount_minor,
            refunded_minor=None,
            decline_code=None,
            result_json=None,
            created_at=now,
            updated_at=now,
            settled_at=now,
        )

    async def void(self, act: Act) -> None:
        """See `Hand`."""

    async def end(self, order: str, stage: str) -> bool:
        """See `Hand`."""
        return await self._ledger.ending(order) != stage

    async def review(
        self,
        order: str,
        opened_by: OpenedBy,
        standing: Sequence[Standing],
        closed_as: str,
        seen: Collection[ReviewItem],
    ) -> Collection[str]:
        """See `Hand`."""
        shown = {item.key: item for item in seen if item.closed_at is None}
        news = [left.key for left in standing if not _is_shown(shown.get(left.key), opened_by, left)]
        return {*news, *(shown.keys() - {left.key for left in standing})}

    async def _may_have_acted(self, record: EffectRecord) -> bool:
        attempts = await self._ledger.attempts(record.workflow_id)
        return any(each.may_have_acted for each in attempts if each.key == record.key)


def _is_shown(item: ReviewItem | None, opened_by: OpenedBy, left: Standing) -> bool:
    shown = left.model_copy(update={"said": ()})
    return item is not None and (item.opened_by, item.standing) == (opened_by, shown)
