"""What the ledger keeps for people: how orders ended, which effects wait for somebody, what operators said.

Like `orderflow.ledger` this module holds a Protocol and records, nothing else.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, Protocol

from orderflow.domain.operations import OperationClaims, Resolution
from orderflow.domain.orders import Standing
from orderflow.ledger import EffectLedger, EffectRecord
from orderflow.ledger.events import EventLedger
from orderflow.ledger.retention import RetentionLedger

OpenedBy = Literal["order", "reconcile"]
"""Who put an effect before people, and so whose door an operation on it goes to."""

UNDONE: Final = "undone"
"""What an item is closed as when the effect was taken back after all."""

SUPERSEDED: Final = "superseded"
"""What an item is closed as when its order runs, or completed: there is nothing to decide."""


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


@dataclass(frozen=True)
class UnsettledPage:
    """A part of the ledger: the order of each unsettled effect by its key, and the page's `last` key to go on after.

    `last` is `None` when there was nothing more.
    """

    orders: Mapping[str, str]
    last: str | None


class ReviewLedger(Protocol):
    """Short transactions; every method may be called again with the same arguments and then changes nothing.

    Every method raises `LedgerUnavailable` when the database cannot be used now.
    """

    async def end_order(self, workflow_id: str, stage: str) -> None:
        """Note how an order ended: its final stage, or how Temporal ended it."""
        ...

    async def ending(self, workflow_id: str) -> str | None:
        """What `end_order` noted last about an order."""
        ...

    async def unsettled(self, after: str, limit: int) -> UnsettledPage:
        """Of the `limit` effects with keys after `after`, the forward ones that may stand without a completed order."""
        ...

    async def put_in_review(
        self,
        workflow_id: str,
        opened_by: OpenedBy,
        standing: Sequence[Standing],
        closed_as: str = UNDONE,
        seen: Collection[ReviewItem] | None = None,
    ) -> list[str]:
        """Make the order's part of the queue exactly `standing`: open what is missing, close the rest as `closed_as`.

        With `seen`, what was read of the queue before, an item that has changed since is left as it is: whoever changed
        it knew more. Gives the keys of the items that were opened, closed, or changed.
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

        Taken back → REVERSED with all of it refunded; kept → what was PENDING or REVERSING is COMMITTED.
        The rest stays as it is.
        Gives its record, `None` if the ledger does not know it. Raises `EffectBusy` while somebody is at work on it.
        """
        ...


class Ledger(EffectLedger, ReviewLedger, RetentionLedger, EventLedger, Protocol):
    """All that a ledger does."""
