"""The ledger over SQL: `Ledger` in terms of transactions, which a backend only has to run."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final, TypeVar

from orderflow.domain.effects import Act, Found
from orderflow.domain.errors import ClaimLost
from orderflow.domain.operations import OperationClaims, Resolution
from orderflow.domain.orders import Standing
from orderflow.ledger import (
    WORKER,
    AttemptRecord,
    Claim,
    EffectRecord,
    Role,
    event_transactions,
    retention_transactions,
    review_transactions,
    transactions,
)
from orderflow.ledger.events import Arrival, Delivery, EventRecord, IntakeRecord
from orderflow.ledger.retention import EndedOrder
from orderflow.ledger.review import UNDONE, OpenedBy, OperationRecord, ReviewItem, UnsettledPage
from orderflow.ledger.transactions import Transaction

T = TypeVar("T")

_FORGOTTEN_AT_ONCE: Final = 1000


class SqlLedger(ABC):
    """Every method does what the Protocols say. A backend gives `_read`, `_write`, `check` and `aclose`."""

    @abstractmethod
    async def _read(self, transaction: Callable[[], Transaction[T]]) -> T:
        """Run a transaction of one reading statement. Raises `LedgerUnavailable`."""

    @abstractmethod
    async def _write(self, transaction: Callable[[], Transaction[T]]) -> T:
        """Run a writing transaction, again from its start when the database asks. Raises `LedgerUnavailable`."""

    async def _write_once(self, transaction: Callable[[], Transaction[T]]) -> T:
        """Run a transaction of which one statement at most writes, and no later one reads: a backend may commit each
        statement by itself. When the connection breaks it may have been written and is run again all the same.
        """
        return await self._write(transaction)

    async def get(self, key: str) -> EffectRecord | None:
        """See `EffectLedger.get`."""
        return await self._read(partial(transactions.get, key))

    async def is_held(self, key: str) -> bool:
        """See `EffectLedger.is_held`."""
        return await self._read(partial(transactions.is_held, key))

    async def claim(
        self, act: Act, *, holder: str, lease: timedelta, claim_by: datetime | None = None
    ) -> Claim | EffectRecord:
        """See `EffectLedger.claim`."""
        return await self._write_once(partial(transactions.claim, act, holder=holder, lease=lease, claim_by=claim_by))

    async def renew(self, claim: Claim, lease: timedelta) -> None:
        """See `EffectLedger.renew`."""
        if not await self._write_once(partial(transactions.renew, claim, lease)):
            raise _lost(claim)

    async def settle(self, claim: Claim, answer: Found) -> EffectRecord:
        """See `EffectLedger.settle`."""
        return _held(claim, await self._write_once(partial(transactions.settle, claim, answer)))

    async def void(self, act: Act, claim: Claim | None = None) -> EffectRecord:
        """See `EffectLedger.void`."""
        written = await self._write_once(partial(transactions.void, act, claim))
        if written is None:
            raise _lost(claim) if claim else ClaimLost(f"{act.key} vanished from the ledger")
        return written

    async def claim_undo(self, undo: Act, of: Act, *, holder: str, lease: timedelta) -> Claim | EffectRecord:
        """See `EffectLedger.claim_undo`."""
        return await self._write(partial(transactions.claim_undo, undo, of, holder=holder, lease=lease))

    async def settle_undo(self, claim: Claim, of: Act, answer: Found) -> EffectRecord:
        """See `EffectLedger.settle_undo`."""
        return _held(claim, await self._write(partial(transactions.settle_undo, claim, of, answer)))

    async def effects(self, workflow_id: str) -> list[EffectRecord]:
        """See `EffectLedger.effects`."""
        return await self._read(partial(transactions.effects, workflow_id))

    async def attempts(self, workflow_id: str) -> list[AttemptRecord]:
        """See `EffectLedger.attempts`."""
        return await self._read(partial(transactions.attempts, workflow_id))

    async def end_order(self, workflow_id: str, stage: str) -> None:
        """See `ReviewLedger.end_order`."""
        await self._write(partial(review_transactions.end_order, workflow_id, stage))

    async def ending(self, workflow_id: str) -> str | None:
        """See `ReviewLedger.ending`."""
        return await self._read(partial(review_transactions.ending, workflow_id))

    async def unsettled(self, after: str, limit: int) -> UnsettledPage:
        """See `ReviewLedger.unsettled`."""
        return await self._read(partial(review_transactions.unsettled, after, limit))

    async def put_in_review(
        self,
        workflow_id: str,
        opened_by: OpenedBy,
        standing: Sequence[Standing],
        closed_as: str = UNDONE,
        seen: Collection[ReviewItem] | None = None,
    ) -> list[str]:
        """See `ReviewLedger.put_in_review`."""
        return await self._write(
            partial(review_transactions.put_in_review, workflow_id, opened_by, standing, closed_as, seen)
        )

    async def review_items(self, *, closed: bool, limit: int) -> list[ReviewItem]:
        """See `ReviewLedger.review_items`."""
        return await self._read(partial(review_transactions.review_items, closed, limit))

    async def review_item(self, key: str) -> ReviewItem | None:
        """See `ReviewLedger.review_item`."""
        return await self._read(partial(review_transactions.review_item, key))

    async def reviews_of(self, workflow_id: str) -> list[ReviewItem]:
        """See `ReviewLedger.reviews_of`."""
        return await self._read(partial(review_transactions.reviews_of, workflow_id))

    async def book_operation(self, claims: OperationClaims, token: str) -> None:
        """See `ReviewLedger.book_operation`."""
        await self._write(partial(review_transactions.book_operation, claims, token))

    async def operations(self, key: str) -> list[OperationRecord]:
        """See `ReviewLedger.operations`."""
        return await self._read(partial(review_transactions.operations, key))

    async def resolve(self, key: str, undo_key: str, outcome: Resolution) -> EffectRecord | None:
        """See `ReviewLedger.resolve`."""
        return await self._write(partial(review_transactions.resolve, key, undo_key, outcome))

    async def ended(self, period: timedelta, after: EndedOrder | None, limit: int) -> list[EndedOrder]:
        """See `RetentionLedger.ended`."""
        return await self._read(partial(retention_transactions.ended, period, after, limit))

    async def forget(self, period: timedelta, after: EndedOrder | None, limit: int) -> list[EndedOrder]:
        """See `RetentionLedger.forget`."""
        return await self._write(partial(retention_transactions.forget, period, after, limit))

    async def unstarted(self, period: timedelta) -> int:
        """See `RetentionLedger.unstarted`."""
        return await self._read(partial(retention_transactions.unstarted, period))

    async def forget_unstarted(self, period: timedelta) -> int:
        """See `RetentionLedger.forget_unstarted`."""
        return await self._by_parts(partial(retention_transactions.forget_unstarted, period, _FORGOTTEN_AT_ONCE))

    async def forget_doors(self, period: timedelta) -> int:
        """See `RetentionLedger.forget_doors`."""
        return await self._write_once(partial(retention_transactions.forget_doors, period))

    async def _by_parts(self, transaction: Callable[[], Transaction[int]]) -> int:
        """Run what forgets a part again and again, until nothing is left of it: no transaction of it is long."""
        forgotten = 0
        while part := await self._write_once(transaction):
            forgotten += part
        return forgotten

    async def receive(self, delivery: Delivery) -> Arrival:
        """See `EventLedger.receive`."""
        return await self._write_once(partial(event_transactions.receive, delivery))

    async def event_started(self, source: str, event_id: str, fingerprint: str) -> None:
        """See `EventLedger.event_started`."""
        await self._write_once(partial(event_transactions.event_started, source, event_id, fingerprint))

    async def event_of(self, workflow_id: str) -> EventRecord | None:
        """See `EventLedger.event_of`."""
        return await self._read(partial(event_transactions.event_of, workflow_id))

    async def waiting_events(self, period: timedelta) -> int:
        """See `EventLedger.waiting_events`."""
        return await self._read(partial(event_transactions.waiting_events, period))

    async def forget_nonces(self, period: timedelta) -> int:
        """See `EventLedger.forget_nonces`."""
        return await self._by_parts(partial(retention_transactions.forget_nonces, period, _FORGOTTEN_AT_ONCE))

    async def intake(self) -> list[IntakeRecord]:
        """See `EventLedger.intake`."""
        return await self._read(event_transactions.intake)

    async def set_intake(self, scope: str, *, paused: bool, reason: str, changed_by: str) -> IntakeRecord:
        """See `EventLedger.set_intake`."""
        return await self._write_once(partial(event_transactions.set_intake, scope, paused, reason, changed_by))

    @abstractmethod
    async def check(self, role: Role = WORKER) -> str:
        """See `EffectLedger.check`."""

    @abstractmethod
    async def aclose(self) -> None:
        """See `EffectLedger.aclose`."""


def _held(claim: Claim, written: EffectRecord | None) -> EffectRecord:
    if written is None:
        raise _lost(claim)
    return written


def _lost(claim: Claim) -> ClaimLost:
    return ClaimLost(f"{claim.record.key} was claimed by another after {claim.holder} (token {claim.record.token})")
