"""Deliveries of events, as the door hands them to a ledger."""

from typing import Any

from orderflow.domain.events import workflow_id
from orderflow.ledger.events import Arrival, Delivery
from orderflow.ledger.review import Ledger

NOW = 1_800_000_000
"""A `webhook-timestamp`."""


def delivery(event_id: str = "1", source: str = "/shop", **changes: Any) -> Delivery:
    """One delivery of an event, by the caller `shop` with the nonce `msg_1`, unless told otherwise."""
    given = {"caller": "shop", "webhook_id": "msg_1", "timestamp": NOW, "fingerprint": "fp1:a", **changes}
    return Delivery(source=source, event_id=event_id, workflow_id=workflow_id(source, event_id), **given)


async def arrivals(ledger: Ledger, *deliveries: Delivery) -> list[Arrival]:
    """Receive them one after another."""
    return [await ledger.receive(one) for one in deliveries]


async def pause(ledger: Ledger, paused: bool = True, scope: str = "all") -> None:
    """Close a gate, or open it."""
    await ledger.set_intake(scope, paused=paused, reason="maintenance", changed_by="carol")
