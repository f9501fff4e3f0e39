"""What the ledger keeps for people: how orders ended, which effects wait for somebody, what operators said.

Like `orderflow.ledger` this module holds a Protocol and records, nothing else.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from orderflow.domain.operations import OperationClaims, Resolution
from orderflow.domain.orders import Standing
from orderflow.ledger import EffectLedger, EffectRecord
from orderflow.ledger.retention import RetentionLedger

OpenedBy = Literal["order", "reconcile"]
"""Who put an effect before people, and so whose door an operation on it goes to."""


@dataclass(frozen=True)
class ReviewItem:
    """One effect in the queue for people. Times are aware UTC from the ledger's clock; amounts are minor units.

    `closed_as` is `undone`, or the `Resolution` that people gave, or `superseded` when there is nothing to decide.
    """

    key: str
    workflow_id: str
    step: str
    opened_by: OpenedBy
    amount_minor: int | None
    currency: str | None
    error: str
    detail: str | None
    opened_at: datetime
    closed_at: datetime | None
    closed_as: str | None

    @property
    def standing(self) -> Standing:
        """The effect as what stands of its order."""
        return Standing(
            step=self.step,
            key=self.key,
            amount_minor=self.amount_minor,
            currency=self.currency,
            error=self.error,
            detail=self.detail,
        )


@dataclass(frozen=True)
class OperationRecord:
    """One operation that was accepted; `token` is the compact JWS, so that anyone can verify it again."""

    jti: str
    key: str
    workflow_id: str
    operation: str
    outcome: str | None
    operator: str
    token: str
    accepted_at: datetime


class ReviewLedger(Protocol):
    """Short transactions; every method may be called again with the same arguments and then changes nothing.

    Every method raises `LedgerUnavailable` when the database cannot be used now.
    """

    async def end_order(self, workflow_id: str, stage: str) -> None:
        """Note how an order ended: its final stage, or how Temporal ended it."""
        ...

    async def unsettled(self, after: str, limit: int) -> list[EffectRecord]:
        """At most `limit` forward effects with keys after `after`, by key, that may stand without a completed order."""
        ...

    async def put_in_review(self, workflow_id: str, opened_by: OpenedBy, standing: Sequence[Standing]) -> list[str]:
        """Make the order's part of the queue exactly `standing`: open what is missing, close the rest as `undone`.

        Gives the keys of the items that were opened, closed, or changed.
        """
        ...

    async def review_items(self, *, closed: bool, limit: int) -> list[ReviewItem]:
        """The open items, oldest first; with `closed` all items, the latest first."""
        ...

    async def review_item(self, key: str) -> ReviewItem | None:
        """The item of one effect, open or closed."""
        ...

    async def reviews_of(self, workflow_id: str) -> list[ReviewItem]:
        """The items of one order, open and closed."""
        ...

    async def book_operation(self, claims: OperationClaims, token: str) -> None:
        """Keep an accepted operation; the same `jti` is kept once."""
        ...

    async def operations(self, key: str) -> list[OperationRecord]:
        """What was accepted about one effect, oldest first."""
        ...

    async def resolve(self, key: str, undo_key: str, outcome: Resolution) -> EffectRecord | None:
        """End an effect by a person's word and close its item; no undo under `undo_key` can act from then on.

        Taken back → REVERSED with all of it refunded; kept → what was PENDING is COMMITTED, the rest stays as it is.
        Gives its record, `None` if the ledger does not know it. Raises `EffectBusy` while somebody is at work on it.
        """
        ...


class Ledger(EffectLedger, ReviewLedger, RetentionLedger, Protocol):
    """All that a ledger does."""
