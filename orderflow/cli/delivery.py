"""What `approve` and `reject` do: sign exactly what is pending, deliver it, and learn what it came to."""

import asyncio
import time
from datetime import UTC, datetime
from typing import Final

from temporalio.client import Client

from orderflow.cli.exits import Refused
from orderflow.client import NoAnswer, OrderClosed, decide, order_status, placed_event, view
from orderflow.client.status import about
from orderflow.contracts import APPROVE_SIGNAL, DoorAnswer, OrderView
from orderflow.domain.approvals import ApprovalRequest, Claims, Decision, not_about
from orderflow.domain.audit import Told
from orderflow.domain.events import OrderEvent
from orderflow.domain.orders import FINAL
from orderflow.signing import ApproverKey, decision_for

PATIENCE: Final = 10.0
"""Seconds to wait for a worker's verdict."""

_PAUSE: Final = 0.1


async def pending_request(client: Client, order: str) -> tuple[ApprovalRequest, OrderEvent]:
    """What waits for a decision, and the order's content that it is about, from Temporal's own history (A01).

    Raises `Refused` when nothing waits (T13), and when the request is about another content: then nothing is signed.
    """
    await _require_open(client, order)
    seen = await view(client, order)
    if seen.request is None:
        raise Refused(f"no approval is pending: {order} is {seen.stage}", order=order, stage=seen.stage)
    event = await placed_event(client, order)
    if (refusal := not_about(seen.request, event)) is not None:
        raise Refused(
            f"nothing was signed: {order} asks for something else than it was placed with ({refusal})", order=order
        )
    return seen.request, event


def signed(request: ApprovalRequest, decision: Decision, key: ApproverKey) -> str:
    """A decision on exactly this request, as a compact JWS."""
    return key.sign(decision_for(request, decision, key.name, datetime.now(UTC)))


async def deliver(client: Client, order: str, token: str) -> DoorAnswer:
    """Send a decision through the update `decide`. Raises `Refused` if the order has ended (T13)."""
    try:
        return await decide(client, order, token, patience=PATIENCE)
    except OrderClosed as error:
        await _require_open(client, order)
        raise Refused(error.message, order=order) from None


async def deliver_by_signal(client: Client, order: str, token: str, claims: Claims) -> DoorAnswer:
    """Send a decision through the signal `approve`, which answers nothing, and watch the order for its verdict (T15).

    Raises:
        Refused: if the order has ended.
        NoAnswer: if the verdict does not show in time; it may still come.
    """
    await _require_open(client, order)
    before = await view(client, order)
    try:
        with about(client, order):
            await client.get_workflow_handle(order).signal(APPROVE_SIGNAL, {"approval": token})
    except OrderClosed as error:
        await _require_open(client, order)
        raise Refused(error.message, order=order) from None
    give_up_at = time.monotonic() + PATIENCE
    while time.monotonic() < give_up_at:
        if (answer := verdict(before, await view(client, order), claims)) is not None:
            return answer
        await asyncio.sleep(_PAUSE)
    raise NoAnswer(f"{order} has the signal and has not decided on it yet; `orderflow show {order}` will tell")


def verdict(before: OrderView, after: OrderView, claims: Claims) -> DoorAnswer | None:
    """What became of a decision that was sent between two views of an order; `None` if that does not show yet."""
    news = [event for event in after.trail if event not in before.trail]
    taken = (event for event in news if event.told is Told.DECISION_ACCEPTED)
    if any((event.subject, event.detail) == (claims.decision, claims.approver) for event in taken):
        return DoorAnswer(accepted=True, stage=after.stage)
    refused = after.refusals[-(after.refused_total - before.refused_total) :] if _grew(before, after) else ()
    ours = [message.reason for message in refused if (message.door, message.name) == ("signal", APPROVE_SIGNAL)]
    return DoorAnswer(accepted=False, refusal=ours[0], stage=after.stage) if ours else None


def _grew(before: OrderView, after: OrderView) -> bool:
    return after.refused_total > before.refused_total


async def _require_open(client: Client, order: str) -> None:
    """Raise `Refused` when the order has ended (T13); Temporal knows that without any worker."""
    known = await order_status(client, order)
    if known.status != "running":
        ended = known.stage if known.stage in FINAL else known.status
        raise Refused(f"already closed: {ended}", order=order, status=known.status, stage=known.stage)
