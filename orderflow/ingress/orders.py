"""What a caller may know of its own order: where it stands, why, and nothing personal."""

from dataclasses import dataclass
from typing import Final

from temporalio.client import Client

from orderflow.callers import CallerRegistry
from orderflow.client import NoAnswer, OrderStatus, UnknownOrder, order_status, view
from orderflow.domain.callers import Caller
from orderflow.domain.deliveries import Cause, DeliveryRefused
from orderflow.domain.events import is_order_id
from orderflow.domain.orders import FINAL, Stage
from orderflow.ingress.availability import available
from orderflow.ingress.reading import Headers, values
from orderflow.ledger.events import EventRecord
from orderflow.ledger.review import Ledger

RECEIVED: Final = "received"
"""Where an order stands whose event was taken and which has not been started yet."""

GONE: Final = "unknown"
"""Where an order stands of which neither Temporal nor the ledger knows the end any more."""

_BEARER: Final = b"bearer "
_VIEW_WITHIN: Final = 2.0


def require_caller(headers: Headers, callers: CallerRegistry) -> Caller:
    """Give the caller whose bearer token this is. Raises `DeliveryRefused` for none, several, or an unknown one."""
    given = list(values(headers, b"authorization"))
    if len(given) == 1 and given[0][: len(_BEARER)].lower() == _BEARER:
        token = given[0][len(_BEARER) :].strip(b" ").decode("latin-1")
        if (caller := callers.by_token(token)) is not None:
            return caller
    raise DeliveryRefused(Cause.TOKEN_INVALID, "send your token as `Authorization: Bearer …`")


@dataclass(frozen=True)
class OrderStanding:
    """Where an order stands: a `Stage`, or `received`, or how Temporal ended it; `final` when it stays so."""

    order: str
    stage: str
    reason: str | None = None
    final: bool = False


async def order_of(caller: Caller, order: str, ledger: Ledger, client: Client) -> OrderStanding:
    """Say where an order of this caller stands. Raises `DeliveryRefused`: another's is as unknown as none."""
    async with available():
        event = await ledger.event_of(order) if is_order_id(order) else None
        if event is None or event.caller != caller.name:
            raise DeliveryRefused(Cause.NOT_FOUND, "you have placed no order of this id")
        try:
            status = await order_status(client, order)
        except UnknownOrder:
            return await _forgotten(event, ledger)
        return await _running(status, client) if status.status == "running" else await _closed(status, ledger)


async def _forgotten(event: EventRecord, ledger: Ledger) -> OrderStanding:
    """Not started yet, or ended so long ago that only the ledger knows."""
    order = event.workflow_id
    if (stage := await ledger.ending(order)) is not None:
        return OrderStanding(order, stage, final=True)
    return OrderStanding(order, RECEIVED if event.started_at is None else GONE, final=event.started_at is not None)


async def _running(status: OrderStatus, client: Client) -> OrderStanding:
    """Without search attributes (T41) the order itself is asked, if a worker answers soon."""
    if status.stage is not None:
        return OrderStanding(status.order, status.stage, status.reason)
    try:
        told = await view(client, status.order, patience=_VIEW_WITHIN)
    except NoAnswer:
        return OrderStanding(status.order, Stage.RUNNING)
    return OrderStanding(status.order, told.stage, told.reason)


async def _closed(status: OrderStatus, ledger: Ledger) -> OrderStanding:
    """What Temporal ended from outside is in no stage of its own, whatever stage it was in."""
    ended = status.stage if status.stage in FINAL else None
    if status.status in {"failed", "canceled", "completed"}:
        ended = ended or await ledger.ending(status.order)
    return OrderStanding(status.order, ended or status.status, status.reason, final=True)
