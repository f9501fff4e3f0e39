"""What the ledger keeps of events: each delivery's nonce, each event once, and the gate before them.

Like `orderflow.ledger` this module holds a Protocol and records, nothing else.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol


class Arrival(StrEnum):
    """What the ledger says of one delivery.

    `resumed`: the event is known and its order may not have been started: start it. `elsewhere`: nobody delivered the
    event here before, but an order of its identity has ended.
    """

    NEW = "new"
    RESUMED = "resumed"
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"
    REPLAYED = "replayed"
    ELSEWHERE = "elsewhere"
    PAUSED = "paused"


@dataclass(frozen=True)
class Delivery:
    """One delivery of an event, as it was verified: whose, its nonce, and what it carries.

    `timestamp` is `webhook-timestamp` in Unix seconds; `fingerprint` the event's `fp1:…`; `workflow_id` its order's.
    """

    caller: str
    webhook_id: str
    timestamp: int
    source: str
    event_id: str
    fingerprint: str
    workflow_id: str


@dataclass(frozen=True)
class EventRecord:
    """One event as the ledger knows it; times are aware UTC from the ledger's clock.

    `started_at` is when its order was started, as far as anybody came to note it.
    """

    source: str
    event_id: str
    fingerprint: str
    workflow_id: str
    caller: str
    received_at: datetime
    started_at: datetime | None


@dataclass(frozen=True)
class IntakeRecord:
    """One gate: that of all doors (`scope` is `all`), or what one door found out by itself (`scope` is its name).

    `seen_at` is when whoever keeps it last said so, `changed_at` since when it stands as it does; aware UTC.
    """

    scope: str
    paused: bool
    reason: str
    changed_by: str
    changed_at: datetime
    seen_at: datetime


class EventLedger(Protocol):
    """Short transactions. Every method raises `LedgerUnavailable` when the database cannot be used now."""

    async def receive(self, delivery: Delivery) -> Arrival:
        """Take a delivery in: its nonce and its event in one transaction, or neither.

        In this order: `paused` while the gate `all` is; an event that is known with another fingerprint is a
        `conflict` (whatever its nonce); a nonce that was seen is `replayed`, unless its own event still waits for its
        start; then `resumed`, `duplicate`, `elsewhere` or `new`. Only `new`, `resumed` and `duplicate` keep the nonce;
        only `new` writes an event. An event waits until `event_started`, or until an order of its has ended: that one
        was started, even if nobody came to note it. Identity is exact code points (C04, I12).
        """
        ...

    async def event_started(self, source: str, event_id: str, fingerprint: str) -> None:
        """Note that the order of this event has been started, the first time counts, and with which content.

        That may be another than was delivered: an order can be started past the door.
        """
        ...

    async def event_of(self, workflow_id: str) -> EventRecord | None:
        """The event of an order, `None` if it did not come through a door, or is forgotten."""
        ...

    async def waiting_events(self, period: timedelta) -> int:
        """How many events were received longer than `period` ago and still wait for the start of their order."""
        ...

    async def forget_nonces(self, period: timedelta) -> int:
        """Forget nonces whose `timestamp` lies longer than `period` in the past, by the ledger's clock; gives how many.

        What is forgotten can be replayed: `period` has to outlive the window in which a delivery is fresh, and whatever
        the clocks differ (W05).
        """
        ...

    async def intake(self) -> list[IntakeRecord]:
        """All gates that anybody ever said anything about, `all` first. One that is missing stands open."""
        ...

    async def set_intake(self, scope: str, *, paused: bool, reason: str, changed_by: str) -> IntakeRecord:
        """Say how a gate stands, and why; `seen_at` is now.

        What stands already, for the same reason, keeps `changed_at` and who changed it.
        """
        ...
