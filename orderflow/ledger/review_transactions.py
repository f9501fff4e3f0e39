"""What each transaction about endings, review items and operations does; see `orderflow.ledger.transactions`."""

from collections.abc import Collection, Sequence

from orderflow.domain.errors import EffectBusy
from orderflow.domain.operations import OperationClaims, Resolution
from orderflow.domain.orders import Standing
from orderflow.ledger import EffectRecord
from orderflow.ledger.review import OpenedBy, OperationRecord, ReviewItem, UnsettledPage
from orderflow.ledger.transactions import Row, Transaction, get, time


def end_order(workflow_id: str, stage: str) -> Transaction[None]:
    """Note how an order ended."""
    yield "end_order", {"workflow_id": workflow_id, "stage": stage}


def ending(workflow_id: str) -> Transaction[str | None]:
    """Read how an order ended."""
    rows = yield "get_ending", {"workflow_id": workflow_id}
    return rows[0]["stage"] if rows else None


def unsettled(after: str, limit: int) -> Transaction[UnsettledPage]:
    """Read in a page of the ledger what may stand without a completed order."""
    page = yield "page_of_effects", {"after": after, "limit": limit}
    if (last := page[0]["last"]) is None:
        return UnsettledPage({}, None)
    rows = yield "unsettled_effects", {"after": after, "last": last}
    return UnsettledPage({row["key"]: row["workflow_id"] for row in rows}, last)


def put_in_review(
    workflow_id: str,
    opened_by: OpenedBy,
    standing: Sequence[Standing],
    closed_as: str,
    seen: Collection[ReviewItem] | None,
) -> Transaction[list[str]]:
    """Make the order's part of the queue exactly `standing`; gives the keys that changed."""
    items = {item.key: item for item in (yield from reviews_of(workflow_id))}
    before = items if seen is None else {item.key: item for item in seen}
    changed = []
    for left in standing:
        if items.get(left.key) == before.get(left.key):
            columns = left.model_dump(exclude={"said"}) | {"workflow_id": workflow_id, "opened_by": opened_by}
            changed += [row["key"] for row in (yield "open_review_item", columns)]
    wanted = {left.key for left in standing}
    gone = [key for key, item in items.items() if item.closed_at is None and item == before.get(key)]
    for key in sorted(gone):
        if key not in wanted:
            changed += [row["key"] for row in (yield "close_review_item", {"key": key, "closed_as": closed_as})]
    return changed


def review_items(closed: bool, limit: int) -> Transaction[list[ReviewItem]]:
    """Read the queue."""
    rows = yield ("recent_review_items" if closed else "open_review_items"), {"limit": limit}
    return [_item(row) for row in rows]


def review_item(key: str) -> Transaction[ReviewItem | None]:
    """Read one item."""
    rows = yield "get_review_item", {"key": key}
    return _item(rows[0]) if rows else None


def reviews_of(workflow_id: str) -> Transaction[list[ReviewItem]]:
    """Read one order's items."""
    rows = yield "review_items_of_workflow", {"workflow_id": workflow_id}
    return [_item(row) for row in rows]


def book_operation(claims: OperationClaims, token: str) -> Transaction[None]:
    """Keep what was signed."""
    kept = claims.model_dump(mode="json", include={"jti", "workflow_id", "operation", "outcome", "operator"})
    yield "book_operation", {**kept, "key": claims.effect, "token": token}


def operations(key: str) -> Transaction[list[OperationRecord]]:
    """Read what was said about one effect."""
    rows = yield "operations_of_effect", {"key": key}
    return [OperationRecord(**{**row, "accepted_at": time(row["accepted_at"])}) for row in rows]


def resolve(key: str, undo_key: str, outcome: Resolution) -> Transaction[EffectRecord | None]:
    """End an effect by a person's word; see `ReviewLedger.resolve`."""
    yield ("resolve_taken_back" if outcome is Resolution.TAKEN_BACK else "resolve_kept"), {"key": key}
    yield "void_undo", {"key": undo_key}
    yield "forbid_undo", {"key": key, "undo_key": undo_key}
    for settled in (key, undo_key):  # looked at last: what is claimed meanwhile is not settled by the statements above
        rows = yield "get_effect", {"key": settled}
        if rows and rows[0]["state"] == "pending":
            raise EffectBusy(f"{settled} is in flight", retry_after=max(0, rows[0]["lease_left_ms"]) / 1000)
    yield "close_review_item", {"key": key, "closed_as": outcome.value}
    return (yield from get(key))


def _item(row: Row) -> ReviewItem:
    closed_at = None if row["closed_at"] is None else time(row["closed_at"])
    return ReviewItem(**{**row, "opened_at": time(row["opened_at"]), "closed_at": closed_at})
