"""Subscribers of a test: a receiver that takes nothing that the libraries of its side do not verify and parse."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

from cloudevents.core.bindings.http import HTTPMessage, from_structured_event
from cloudevents.core.formats.json import JSONFormat
from standardwebhooks.webhooks import Webhook
from temporalio.service import RPCError, RPCStatusCode

from orderflow.contracts import OPERATE_UPDATE, VIEW_QUERY, DoorAnswer, WaitingView
from orderflow.domain.announcements import announcement_id, telling_key
from orderflow.domain.operations import Operation, Resolution
from orderflow.domain.orders import Stage
from orderflow.domain.subscribers import read_subscribers
from orderflow.signing import operation_on
from orderflow.subscribers import Endpoint, Subscribers
from orderflow.webhooks import read_secret
from tests.support.observing import Handle, eventually
from tests.support.scripted_door import Received, Reply, ScriptedDoor, scripted_door
from tests.support.shop import Order, Shop

SECRET: Final = "whsec_" + base64.b64encode(bytes(range(32))).decode()
NAME: Final = "warehouse"
TRIED_TWICE: Final = {"attempts": 2, "initial_interval": "PT1S", "backoff": 1, "maximum_interval": "PT1S"}

TAKEN: Final = Reply(204)
DOWN: Final = Reply(500)


class Receiver:
    """Somebody who is told: answers `reply`, and keeps what came, verified and parsed by the libraries of that side."""

    def __init__(self) -> None:
        self.reply = TAKEN
        self.faults: list[str] = []
        self.door: ScriptedDoor

    def answer(self, received: Received) -> Reply:
        """Verify and parse, then answer; what cannot be verified or parsed is a fault of ours."""
        try:
            event_of(received)
        except Exception as error:  # noqa: BLE001 - whatever their library raises is a fault of ours
            self.faults.append(repr(error))
        return self.reply

    def told(self, order: str) -> list[Received]:
        """The requests about one order, the oldest first."""
        return [each for each in self.door.received if event_of(each).get_subject() == order]


def event_of(received: Received) -> Any:
    """The CloudEvent of a request that Standard Webhooks verify. Raises what those libraries raise."""
    Webhook(SECRET).verify(received.body, dict(received.headers), json_parse=False)
    event = from_structured_event(HTTPMessage(dict(received.headers), received.body), JSONFormat())
    if event.get_id() != received.headers["webhook-id"]:
        raise ValueError("webhook-id and the event's id differ")
    return event


@contextmanager
def receiver(port: int = 0) -> Iterator[Receiver]:
    """Open a receiver; at its end everything it was ever sent must have been right."""
    opened = Receiver()
    with scripted_door(opened.answer, port) as opened.door:
        yield opened
    if opened.faults:
        raise AssertionError(opened.faults)


def subscribers(*entries: Mapping[str, Any]) -> Subscribers:
    """Subscribers by the members of their entries; each signs with `SECRET`."""
    full = [{"name": NAME, "secret": {"env": "A_SECRET"}, "retry": TRIED_TWICE, **entry} for entry in entries]
    read = read_subscribers(json.dumps({"subscribers": full}).encode(), "subscribers.json")
    endpoints = {each.name: Endpoint(each.url, read_secret(SECRET)) for each in read.subscribers}
    return Subscribers(read.subscribers, endpoints, read.source)


@asynccontextmanager
async def subscribed(shop: Shop, **changes: Any) -> AsyncIterator[Receiver]:
    """A receiver that hears of every order of this shop; `changes` are members of its entry."""
    with receiver() as opened:
        shop.subscribers = subscribers({"url": opened.door.url + "/hooks", **changes})
        try:
            yield opened
        finally:
            shop.subscribers = Subscribers()


class Announced:
    """The announcement of one order's end in a stage, as people and tests look at it."""

    def __init__(self, order: Order, stage: Stage) -> None:
        self.order = order
        self.id = announcement_id(order.id, stage)
        self.handle: Handle = order.shop.client.get_workflow_handle(self.id)

    def key(self, name: str = NAME) -> str:
        """The key of the effect that tells one subscriber."""
        return telling_key(self.id, name)

    async def waits(self, look: Callable[[WaitingView], bool] = lambda view: bool(view.standing)) -> WaitingView:
        """Wait until it waits for people, and the queue says so."""

        async def seen() -> WaitingView | None:
            try:
                view: WaitingView = await self.handle.query(VIEW_QUERY, result_type=WaitingView)
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:
                    raise
                return None
            items = [each for each in await self.order.shop.ledger.reviews_of(self.id) if each.closed_at is None]
            return view if look(view) and len(items) == len(view.standing) else None

        return await eventually(seen)

    async def view(self) -> WaitingView:
        """What it says of itself."""
        return await self.waits(lambda _: True)

    async def ending(self) -> None:
        """Wait for its own end."""
        async with asyncio.timeout(self.order.shop.patience):
            await self.handle.result()

    async def operate(self, operation: Operation, outcome: Resolution | None = None, who: str = "carol") -> DoorAnswer:
        """Hand over what `who` signs about what stands."""
        view = await self.waits()
        evidence = None if outcome is None else "a call"
        now = (await self.order.view()).trail[-1].at
        [left, *_] = view.standing
        claims = operation_on(
            left, self.id, operation, who, now, reason="they are back", outcome=outcome, evidence=evidence
        )
        token = self.order.shop.keys[who].sign(claims)
        answer: DoorAnswer = await self.handle.execute_update(
            OPERATE_UPDATE, {"operation": token}, result_type=DoorAnswer
        )
        return answer
