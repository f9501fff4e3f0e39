"""What each transaction about forgetting does; see `orderflow.ledger.transactions`."""

from datetime import timedelta

from orderflow.domain.errors import LedgerUnavailable
from orderflow.ledger.retention import EndedOrder
from orderflow.ledger.transactions import MILLISECOND, Row, Transaction, milliseconds, time

_FORGETS = ("forget_attempts", "forget_effects", "forget_review_items", "forget_event", "forget_ending")


def ended(period: timedelta, after: EndedOrder | None, limit: int) -> Transaction[list[EndedOrder]]:
    """Read a page of orders that ended so long ago."""
    return [_ended(row) for row in (yield "ended_orders", _page(period, after, limit))]


def forget(period: timedelta, after: EndedOrder | None, limit: int) -> Transaction[list[EndedOrder]]:
    """Forget what is settled of a page of them; see `RetentionLedger.forget`."""
    page = yield from ended(period, after, limit)
    for order in page:
        if order.still_open:
            continue
        for statement in _FORGETS:
            yield statement, {"workflow_id": order.workflow_id, "ended_at": milliseconds(order.ended_at)}
        if (yield "left_of_order", {"workflow_id": order.workflow_id}):
            raise LedgerUnavailable(f"{order.workflow_id} came back to life just now; run it again")
    return page


def unstarted(period: timedelta) -> Transaction[int]:
    """Count events that never became an order."""
    rows = yield "unstarted_events", _long_ago(period)
    count: int = rows[0]["events"]
    return count


def forget_unstarted(period: timedelta, limit: int) -> Transaction[int]:
    """Forget so many of the oldest of them."""
    return len((yield "forget_unstarted", {**_long_ago(period), "limit": limit}))


def forget_nonces(period: timedelta, limit: int) -> Transaction[int]:
    """Forget so many of the oldest nonces."""
    return len((yield "forget_nonces", {**_long_ago(period), "limit": limit}))


def forget_doors(period: timedelta) -> Transaction[int]:
    """Forget gates that nobody keeps any more."""
    return len((yield "forget_doors", _long_ago(period)))


def _long_ago(period: timedelta) -> dict[str, object]:
    return {"period_ms": period // MILLISECOND}


def _page(period: timedelta, after: EndedOrder | None, limit: int) -> dict[str, object]:
    return {
        **_long_ago(period),
        "after_ms": milliseconds(after.ended_at) if after else -1,
        "after": after.workflow_id if after else "",
        "limit": limit,
    }


def _ended(row: Row) -> EndedOrder:
    return EndedOrder(**{**row, "ended_at": time(row["ended_at"])})
