"""What is done about one order: its fate, what stands of it, and what of that is put before people."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from orderflow.catalogue import Catalogue
from orderflow.client.fates import OrderFate
from orderflow.contracts import Finding, OrderInput
from orderflow.domain.announcements import is_announcement
from orderflow.domain.effects import STANDING, EffectState
from orderflow.domain.errors import (
    AmountMismatch,
    CannotUndo,
    EffectReversed,
    ErrorType,
    IntentConflict,
    InvalidInput,
    OutcomeUnknown,
)
from orderflow.domain.events import workflow_id
from orderflow.domain.intents import Direction, idempotency_key
from orderflow.domain.operations import Resolution
from orderflow.domain.orders import FINAL, Stage, Standing
from orderflow.domain.reconciliation import CHANGES, RESOLVED_BEFORE, Due, Fate, What, due, due_for_announcement
from orderflow.ledger import EffectRecord
from orderflow.ledger.review import SUPERSEDED, UNDONE, Ledger, OpenedBy
from orderflow.reconcile import Orders
from orderflow.reconcile.acting import Hand
from orderflow.reconcile.dossier import Dossier
from orderflow.reconcile.listing import Row
from orderflow.reconcile.strays import Strays

PATIENCE: Final = timedelta(days=1)
"""For so long an effect may be unknown or pending at a provider that answers; then a person has to ask there."""

_UNSETTLED: Final = frozenset({"unknown", "pending"})
"""What a provider that answers says of an effect which a person has to ask about there."""

_FOR_GOOD: Final = frozenset({ErrorType.CANNOT_UNDO, ErrorType.INTENT_CONFLICT})
"""Why an undo is not tried again before a person says so."""


class Cases:
    """Reconciles orders, one at a time, by the hand that it is given. `now` is aware."""

    def __init__(self, ledger: Ledger, catalogue: Catalogue, orders: Orders, hand: Hand, now: datetime) -> None:
        self._ledger = ledger
        self._catalogue = catalogue
        self._orders = orders
        self._hand = hand
        self._now = now
        self._strays = Strays(ledger, catalogue, orders, hand)

    async def reconcile(self, order: str, rows: Sequence[Row]) -> list[Finding]:
        """Bring one order's books in order, as far as can be known now; `rows` are what the ledger did not know of it.

        Raises `LedgerUnavailable` and `ServerUnreachable`; what else is wrong with one order is among the findings.
        """
        fate = await self._orders.fate(order)
        is_known = fate.fate is not Fate.VANISHED
        if not is_known:
            fate = await self._remembered(order)
        dossier = Dossier(order, fate.fate, is_known, await self._ledger.reviews_of(order))
        await self._strays.look_at(dossier, rows)
        if fate.fate is Fate.OPEN:
            await self._open(dossier, fate.stage)
        else:
            await self._closed(dossier, fate)
        return dossier.findings

    async def _remembered(self, order: str) -> OrderFate:
        """What the ledger noted of an order that Temporal does not know: its retention may simply be over."""
        stage = await self._ledger.ending(order)
        if stage in (Fate.TERMINATED, Fate.TIMED_OUT):
            return OrderFate(Fate(stage))
        if stage not in {*FINAL}:
            return OrderFate(Fate.VANISHED)
        return OrderFate(Fate.COMPLETED if stage == Stage.COMPLETED else Fate.FAILED, stage)

    async def _open(self, dossier: Dossier, stage: str | None) -> None:
        """Its workflow is responsible; but the queue has to show what it waits for, and nothing else."""
        for key in sorted(dossier.standing):
            dossier.tell(What.POSTPONED, key, "the order is open: looked at again when it has ended")
        if stage == Stage.COMPENSATION_FAILED:
            with dossier.guarding(None):
                view = await self._orders.view(dossier.order)
                if view.stage is Stage.COMPENSATION_FAILED:
                    await self._put(dossier, view.standing, by_order=True)
        elif {item.opened_by for item in dossier.open_items()} == {"reconcile"}:
            await self._put(dossier, ())

    async def _closed(self, dossier: Dossier, fate: OrderFate) -> None:
        if (stage := _stage(fate, dossier.order)) is not None and await self._hand.end(dossier.order, stage):
            dossier.tell(What.ENDED, detail=stage)
        left = await self._left(dossier)
        if is_announcement(dossier.order):
            await self._announcement(dossier, left)
            return
        asks = bool(left) and dossier.fate is Fate.FAILED and dossier.is_known
        placed = await self._orders.placed(dossier.order) if asks else None
        for record in left:
            with dossier.guarding(record.key):
                await self._reconcile_effect(dossier, record, can_undo=self._can_undo(dossier, placed, record))
        for item in dossier.open_items():
            if item.error == ErrorType.AMOUNT_MISMATCH:  # it is over, and not as it should be
                dossier.keep(item.key)
        if dossier.open_items() or dossier.standing:
            await self._put(dossier, list(dossier.standing.values()))

    async def _announcement(self, dossier: Dossier, left: Sequence[EffectRecord]) -> None:
        """Nothing of it is taken back, and nothing is sent: whom it did not reach is put before people."""
        for record in left:
            if due_for_announcement(dossier.fate, record.state) is Due.REVIEW:
                with dossier.guarding(record.key):
                    await self._hand.require_free(record)
                    dossier.leave(_standing(record, dossier.fate, record.state))
        for item in dossier.open_items():
            if await self._ledger.get(item.key) is None:  # it was never begun, and still is to be told
                dossier.keep(item.key)
        if dossier.open_items() or dossier.standing:
            await self._put(dossier, list(dossier.standing.values()))

    async def _left(self, dossier: Dossier) -> list[EffectRecord]:
        """What may stand of an order, the latest first: in that order it has to be taken back."""
        records = {record.key: record for record in await self._ledger.effects(dossier.order)} | dossier.learned
        left = [
            record
            for record in (_as_begun(record, records) for record in records.values())
            if record.state in STANDING
            and record.key == idempotency_key(record.workflow_id, record.step, Direction.DO)
            and not _is_kept(dossier, record)
        ]
        return sorted(left, key=lambda record: record.created_at, reverse=True)

    async def _reconcile_effect(self, dossier: Dossier, record: EffectRecord, *, can_undo: bool) -> None:
        shown = dossier.open_item(record.key)
        wanted = due(dossier.fate, record.state, can_undo=can_undo)
        if wanted is Due.UNDO and shown is not None and shown.error in _FOR_GOOD:
            dossier.keep(record.key)
            return
        if wanted is Due.UNDO and await self._was_resolved(dossier, record):
            dossier.leave(_standing(record, RESOLVED_BEFORE, record.state))
            return
        try:
            if wanted is Due.LOOK:
                record = await self._settled(dossier, record)
                wanted = due(dossier.fate, record.state, can_undo=can_undo)
            if wanted is Due.UNDO:
                dossier.tell_of(await self._hand.undo(record))
            elif wanted is Due.REVIEW:
                dossier.leave(_standing(record, dossier.fate, record.state))
        except (AmountMismatch, CannotUndo, IntentConflict) as error:
            dossier.leave(_standing(record, error.type, error.detail))
        except OutcomeUnknown as error:
            since = record.updated_at if record.state is EffectState.REVERSING else record.created_at
            if error.answer not in _UNSETTLED or self._now - since < PATIENCE:
                raise
            dossier.leave(_standing(record, error.type, record.state))

    async def _was_resolved(self, dossier: Dossier, record: EffectRecord) -> bool:
        """Whether people said how it was settled, though the ledger does not show it (any more): it may be a copy."""
        if any(said.outcome is not None for said in await self._ledger.operations(record.key)):
            return True
        return record.key in await self._orders.resolved(dossier.order)

    async def _settled(self, dossier: Dossier, record: EffectRecord) -> EffectRecord:
        """The record after the last look; what its provider has taken back already is taken back in the books too.

        A vanished order may come again and go on, so what it never did is left to it: a tombstone would make it fail.
        """
        if dossier.fate is Fate.VANISHED and await self._hand.is_absent(record):
            return record
        try:
            settled = await self._hand.settle(record)
        except EffectReversed:
            settled = await self._hand.undo(record)
        dossier.tell_of(settled)
        return settled

    def _can_undo(self, dossier: Dossier, placed: OrderInput | None, record: EffectRecord) -> bool:
        """Whether its order could have taken it back.

        An order that came to its own end did what its definition says. Where that is forgotten with the order, what
        it left committed is what it meant to leave; only what it began to take back is taken back to the end.
        """
        kinds = self._catalogue.kinds_at(record.provider, record.operation)
        can = not kinds or any(kind.undo_operation is not None for kind in kinds)
        if dossier.fate is not Fate.FAILED or not can:
            return can
        if not dossier.is_known:
            return record.state is not EffectState.COMMITTED
        if placed is None or workflow_id(placed.event.source, placed.event.id) != dossier.order:
            raise InvalidInput(f"what {dossier.order} was started with cannot be read, so nothing of it is taken back")
        return any(step.id == record.step and step.compensation is not None for step in placed.definition.steps)

    async def _put(self, dossier: Dossier, standing: Sequence[Standing], *, by_order: bool = False) -> None:
        """Make the queue show `standing`, and tell what that changes and what stays."""
        goes_on = dossier.fate in (Fate.OPEN, Fate.COMPLETED)
        opened_by: OpenedBy = "order" if by_order else "reconcile"
        closed_as = SUPERSEDED if goes_on else UNDONE
        changed = await self._hand.review(dossier.order, opened_by, standing, closed_as, [*dossier.items.values()])
        for left in standing:
            what = What.OPENED if left.key in changed else What.IN_REVIEW
            dossier.findings.append(_finding(dossier.order, what, left))
        for item in dossier.open_items():
            if item.key in changed and item.key not in {left.key for left in standing}:
                dossier.tell(What.CLOSED, item.key, closed_as)


def _stage(fate: OrderFate, order: str) -> str | None:
    """What to note as an order's ending. An announcement is over however it ended, as it takes nothing back."""
    if is_announcement(order):
        return None if fate.fate is Fate.VANISHED else Stage.COMPLETED
    match fate.fate:
        case Fate.VANISHED:
            return None
        case Fate.FAILED:
            return fate.stage if fate.stage in {*FINAL} - {Stage.COMPLETED} else Stage.FAILED
        case ended:
            return ended


def _as_begun(record: EffectRecord, records: Mapping[str, EffectRecord]) -> EffectRecord:
    """A tombstone whose undo is on its way, as its provider did not say yet if a sleeper acted, is being taken back."""
    undo = records.get(idempotency_key(record.workflow_id, record.step, Direction.UNDO))
    begun = record.state is EffectState.VOIDED and undo is not None and undo.state is EffectState.PENDING
    return replace(record, state=EffectState.REVERSING) if begun else record


def _is_kept(dossier: Dossier, record: EffectRecord) -> bool:
    item = dossier.items.get(record.key)
    return item is not None and item.closed_as == Resolution.KEPT


def _standing(record: EffectRecord, error: str, detail: str | None) -> Standing:
    return Standing(
        step=record.step,
        key=record.key,
        amount_minor=record.amount_minor,
        currency=record.currency,
        error=error,
        detail=detail,
    )


def _finding(order: str, what: What, left: Standing) -> Finding:
    return Finding(
        what=what,
        order=order,
        key=left.key,
        amount_minor=left.amount_minor,
        currency=left.currency,
        detail=": ".join(part for part in (left.error, left.detail) if part),
    )


def would_be(finding: Finding) -> Finding:
    """The same as a dry run tells it."""
    return finding.model_copy(update={"what": f"would_be_{finding.what}"}) if finding.what in CHANGES else finding
