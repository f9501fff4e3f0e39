"""What each transaction about events, nonces and gates does; see `orderflow.ledger.transactions`."""

from datetime import timedelta

from orderflow.domain.errors import LedgerUnavailable, UnreadableRow
from orderflow.ledger.events import Arrival, Delivery, EventRecord, IntakeRecord
from orderflow.ledger.transactions import MILLISECOND, Row, Transaction, time

_LOOKS = 3  # a delivery whose event changes between two statements is judged again, this many times in all


def receive(delivery: Delivery) -> Transaction[Arrival]:
    """Take a delivery in; see `EventLedger.receive`. Of its statements one at most writes, and it is the last one."""
    columns = vars(delivery)
    for _ in range(_LOOKS):
        if (yield "receive_event", columns):
            return Arrival.NEW
        if kept := (yield "receive_again", columns):
            return Arrival.RESUMED if kept[0]["waits"] else Arrival.DUPLICATE
        (found,) = yield "look_at_delivery", columns
        if (arrival := _judged(delivery, found)) is not None:
            return arrival
    raise LedgerUnavailable(f"the event of {delivery.workflow_id} changes too quickly to be taken in; deliver it again")


def _judged(delivery: Delivery, found: Row) -> Arrival | None:
    """Why a delivery was not written down; `None` when the reason has gone meanwhile."""
    if found["paused"]:
        return Arrival.PAUSED
    known = found["fingerprint"] is not None
    if known and found["fingerprint"] != delivery.fingerprint:
        return Arrival.CONFLICT
    if found["seen_source"] is not None:
        its_own = (found["seen_source"], found["seen_event_id"]) == (delivery.source, delivery.event_id)
        waits = known and found["started_at"] is None and not found["ended"]
        return Arrival.RESUMED if its_own and waits else Arrival.REPLAYED
    return Arrival.ELSEWHERE if found["ended"] and not known else None


def event_started(source: str, event_id: str, fingerprint: str) -> Transaction[None]:
    """Note that an event's order has been started, and with which content."""
    yield "event_started", {"source": source, "event_id": event_id, "fingerprint": fingerprint}


def event_of(workflow_id: str) -> Transaction[EventRecord | None]:
    """Read the event of an order."""
    rows = yield "event_of_workflow", {"workflow_id": workflow_id}
    return _event(rows[0]) if rows else None


def waiting_events(period: timedelta) -> Transaction[int]:
    """Count the events that have waited so long."""
    rows = yield "waiting_events", {"period_ms": period // MILLISECOND}
    waiting: int = rows[0]["waiting"]
    return waiting


def intake() -> Transaction[list[IntakeRecord]]:
    """Read how the gates stand."""
    return [_gate(row) for row in (yield "intake", {})]


def set_intake(scope: str, paused: bool, reason: str, changed_by: str) -> Transaction[IntakeRecord]:
    """Say how a gate stands."""
    said = {"scope": scope, "paused": int(paused), "reason": reason, "changed_by": changed_by}
    (row,) = yield "set_intake", said
    return _gate(row)


def _event(row: Row) -> EventRecord:
    try:
        started_at = None if row["started_at"] is None else time(row["started_at"])
        return EventRecord(**{**row, "received_at": time(row["received_at"]), "started_at": started_at})
    except (ValueError, OverflowError) as error:
        raise _unreadable(f"the event of {row['workflow_id']}", error) from error


def _gate(row: Row) -> IntakeRecord:
    try:
        times = {name: time(row[name]) for name in ("changed_at", "seen_at")}
        return IntakeRecord(**{**row, "paused": bool(row["paused"]), **times})
    except (ValueError, OverflowError) as error:
        raise _unreadable(f"the gate {row['scope']}", error) from error


def _unreadable(what: str, error: Exception) -> UnreadableRow:
    return UnreadableRow(
        f"the ledger's row of {what} cannot be read: {error}; restore it, or run the orderflow that wrote it"
    )
