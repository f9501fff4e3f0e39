"""How long the ledger remembers, and forgetting what is older: records, the Protocol, and the policy.

A key that is forgotten can be charged again, by an event that is delivered again or a run that is reset. So an order is
forgotten only when it has ended, nothing of it is open, and nobody can bring it back any more.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from orderflow.domain.errors import InvalidInput
from orderflow.ledger.events import EventLedger

SHORTEST_PERIOD: Final = timedelta(days=30)

SHORT_LIVED: Final = timedelta(days=1)
"""How long nonces are remembered, far longer than a delivery is fresh, and the gate of a door that is gone."""

_AT_ONCE: Final = 50
"""Orders in one transaction: it must not be in a worker's way."""


@dataclass(frozen=True)
class EndedOrder:
    """An order that has ended, when (aware UTC), and how many rows hold it besides its ending.

    `still_open` of them are not settled; while there is one, the order is not forgotten.
    """

    workflow_id: str
    ended_at: datetime
    effects: int
    attempts: int
    review_items: int
    events: int
    still_open: int


class RetentionLedger(Protocol):
    """Short transactions. Every method raises `LedgerUnavailable` when the database cannot be used now."""

    async def ended(self, period: timedelta, after: EndedOrder | None, limit: int) -> list[EndedOrder]:
        """At most `limit` orders after `after`, by time of their end, that ended `period` ago."""
        ...

    async def forget(self, period: timedelta, after: EndedOrder | None, limit: int) -> list[EndedOrder]:
        """The same page, of which the ledger does not know any more what is settled. What people signed stays.

        Raises `LedgerUnavailable`, and keeps them all, when one of them came back to life at this moment.
        """
        ...

    async def unstarted(self, period: timedelta) -> int:
        """How many events were received `period` ago and never became an order that the ledger knows anything of."""
        ...

    async def forget_unstarted(self, period: timedelta) -> int:
        """Forget those events; gives how many."""
        ...

    async def forget_doors(self, period: timedelta) -> int:
        """Forget gates of single doors of which nobody said anything for `period`; gives how many."""
        ...


class EventRetention(RetentionLedger, EventLedger, Protocol):
    """What forgetting events takes."""


async def prune(ledger: RetentionLedger, period: timedelta, *, dry_run: bool) -> AsyncIterator[list[EndedOrder]]:
    """Forget every settled order that ended `period` ago, or only tell which; gives them in pages, the oldest first.

    It may be stopped at any page and run again. Raises `InvalidInput` for a period that is too short.
    """
    _require_long_enough(period)
    page_of, last = (ledger.ended if dry_run else ledger.forget), None
    while page := await page_of(period, last, _AT_ONCE):
        yield [order for order in page if not order.still_open]
        last = page[-1]


async def prune_events(ledger: EventRetention, period: timedelta, *, dry_run: bool) -> int:
    """Forget events that were received `period` ago and never became an order, or only count them; gives how many.

    Nonces and gates that are of no use any more go with them, uncounted. Raises `InvalidInput` as `prune` does: until
    it is forgotten, an event that is delivered again is started after all (W06).
    """
    _require_long_enough(period)
    if dry_run:
        return await ledger.unstarted(period)
    await ledger.forget_nonces(SHORT_LIVED)
    await ledger.forget_doors(SHORT_LIVED)
    return await ledger.forget_unstarted(period)


def _require_long_enough(period: timedelta) -> None:
    if period < SHORTEST_PERIOD:
        raise InvalidInput(
            f"an order is remembered for at least {SHORTEST_PERIOD.days} days after its end (P{SHORTEST_PERIOD.days}D):"
            " what is forgotten can be charged again when its event is delivered or its run is reset once more"
        )
