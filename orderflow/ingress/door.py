"""The pipeline: one delivery, from its bytes to the order that it started, or to the reason why it did not."""

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final

from temporalio.client import Client

from orderflow.callers import CallerRegistry
from orderflow.client import UnknownOrder, placed_event, start_order
from orderflow.domain.callers import permit
from orderflow.domain.definition import Definition
from orderflow.domain.deliveries import Cause, DeliveryRefused
from orderflow.domain.events import OrderEvent, payload_fingerprint, workflow_id
from orderflow.ingress.availability import available
from orderflow.ingress.gate import Gate
from orderflow.ingress.orders import OrderStanding, order_of, require_caller
from orderflow.ingress.rates import Rates
from orderflow.ingress.readiness import Readiness
from orderflow.ingress.reading import Headers, read_body, read_event, require_cloudevent
from orderflow.ingress.telling import Teller, log
from orderflow.ledger.events import Arrival, Delivery
from orderflow.ledger.review import Ledger
from orderflow.webhooks import Signed, verify

PAUSED_FOR: Final = 30.0
"""Seconds after which a sender may look again whether people have opened the gate."""


@dataclass(frozen=True)
class Taken:
    """An event that was taken: the order that it stands for, and whether this delivery started it."""

    order: str
    new: bool


class Door:
    """Takes deliveries of callers, starts their orders with one definition, and keeps each in the ledger."""

    def __init__(
        self,
        *,
        client: Client,
        ledger: Ledger,
        callers: CallerRegistry,
        gate: Gate,
        definition: Definition,
        task_queue: str,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._ledger = ledger
        self._callers = callers
        self._gate = gate
        self.teller = Teller()
        self.readiness = Readiness(client=client, ledger=ledger, callers=callers, gate=gate)
        self._rates = Rates()
        self._definition = definition
        self._task_queue = task_queue
        self._now = now

    async def take(self, headers: Headers, chunks: AsyncIterator[bytes]) -> Taken:
        """Take one delivery. Raises `DeliveryRefused` for whatever does not pass; the order of steps is part of it.

        Nothing is parsed before the signature has verified (W09), and nothing is stored before all else passed.
        """
        with self.teller.refusals() as whose:
            body = await read_body(headers, chunks)
            signed = verify(headers, body, self._callers.keys, self._now())
            whose.caller = signed.caller
            caller = self._callers.caller(signed.caller)
            self._rates.take(caller)
            require_cloudevent(headers)
            event = read_event(body)
            whose.order = workflow_id(event.source, event.id)
            permit(caller, event)
            self._require_open()
            taken = await self._place(_delivery(signed, event, whose.order), event)
        self.teller.taken(whose, new=taken.new)
        return taken

    async def look(self, headers: Headers, order: str) -> OrderStanding:
        """Say where an order stands to the caller that placed it. Raises `DeliveryRefused`."""
        with self.teller.refusals() as whose:
            caller = require_caller(headers, self._callers)
            whose.caller = caller.name
            return await order_of(caller, order, self._ledger, self._client)

    def _require_open(self) -> None:
        if (closed := self._gate.verdict()) is not None:
            raise _paused(closed.reason, closed.retry_after)

    async def _place(self, delivery: Delivery, event: OrderEvent) -> Taken:
        """Write the delivery down, then start the order: a crash in between is made good by the next delivery (W06)."""
        async with available():
            match await self._ledger.receive(delivery):
                case Arrival.NEW | Arrival.RESUMED:
                    return await self._start(delivery, event)
                case Arrival.DUPLICATE:
                    return Taken(delivery.workflow_id, new=False)
                case Arrival.ELSEWHERE:
                    return await self._find(delivery)
                case refused:
                    raise _REFUSALS[refused]()

    async def _start(self, delivery: Delivery, event: OrderEvent) -> Taken:
        started = await start_order(
            self._client, event, self._definition, task_queue=self._task_queue, warn=log.warning
        )
        if not started.new:
            return await self._find(delivery)
        await self._ledger.event_started(delivery.source, delivery.event_id, delivery.fingerprint)
        return Taken(started.order, new=True)

    async def _find(self, delivery: Delivery) -> Taken:
        """Compare with what the order was really started with, whoever did that: here, or past the door."""
        try:
            placed = payload_fingerprint(await placed_event(self._client, delivery.workflow_id))
        except UnknownOrder:
            raise DeliveryRefused(
                Cause.CONFLICT,
                "an order of this source and id was started past this door and has ended, and nobody knows any more"
                " with which content; give a new event a new id",
            ) from None
        await self._ledger.event_started(delivery.source, delivery.event_id, placed)
        if placed != delivery.fingerprint:
            raise _conflict()
        return Taken(delivery.workflow_id, new=False)


def _delivery(signed: Signed, event: OrderEvent, order: str) -> Delivery:
    return Delivery(
        caller=signed.caller,
        webhook_id=signed.webhook_id,
        timestamp=signed.timestamp,
        source=event.source,
        event_id=event.id,
        fingerprint=payload_fingerprint(event),
        workflow_id=order,
    )


def _conflict() -> DeliveryRefused:
    return DeliveryRefused(
        Cause.CONFLICT,
        "what the event of this source and id started stays as it is; if this is another order, give it a new id",
    )


def _replayed() -> DeliveryRefused:
    return DeliveryRefused(
        Cause.REPLAYED,
        "a delivery with this webhook-id and webhook-timestamp was taken before; to ask for its outcome, sign the same"
        " event again with the present time",
    )


def _paused(reason: str = "an operator has closed the gate", retry_after: float = PAUSED_FOR) -> DeliveryRefused:
    message = f"{reason}; nothing of this delivery was kept: send it again later"
    return DeliveryRefused(Cause.INTAKE_PAUSED, message, retry_after=retry_after)


_REFUSALS: Final[Mapping[Arrival, Callable[[], DeliveryRefused]]] = MappingProxyType(
    {Arrival.CONFLICT: _conflict, Arrival.REPLAYED: _replayed, Arrival.PAUSED: _paused}
)
