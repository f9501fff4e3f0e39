"""What the door does with a delivery, step by step, each alone: run on demand in the process of the door."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Self, TypeVar

from temporalio.client import Client
from temporalio.common import (
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)

from bench.deliveries import bodies, delivery_headers
from orderflow.backends import open_ledger
from orderflow.callers import CallerRegistry, caller_registry, sender_secret
from orderflow.catalogue import load_catalogue
from orderflow.client import address_of, connect
from orderflow.client.search_attributes import STAGE
from orderflow.contracts import WORKFLOW_TYPE, OrderInput
from orderflow.definitions import load_packaged
from orderflow.domain.callers import permit
from orderflow.domain.definition import Definition
from orderflow.domain.events import OrderEvent, payload_fingerprint, workflow_id
from orderflow.domain.orders import Stage
from orderflow.ingress.reading import Headers, read_body, read_event, require_cloudevent
from orderflow.ingress.telling import Teller, Whose
from orderflow.ledger.events import Delivery
from orderflow.ledger.review import Ledger
from orderflow.settings import Settings
from orderflow.webhooks import verify

T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Post:
    """One delivery: what came, and what it becomes."""

    headers: Headers
    body: bytes
    event: OrderEvent
    order: str
    fingerprint: str

    def entry(self) -> Delivery:
        """What the ledger is told."""
        given = dict(self.headers)
        return Delivery(
            caller="shop",
            webhook_id=given[b"webhook-id"].decode(),
            timestamp=int(given[b"webhook-timestamp"]),
            source=self.event.source,
            event_id=self.event.id,
            fingerprint=self.fingerprint,
            workflow_id=self.order,
        )


class Parts:
    """The steps, over what they need, which is of the same kinds as the door's own."""

    def __init__(self, settings: Settings, client: Client, ledger: Ledger) -> None:
        self._settings = settings
        self._client = client
        self._ledger = ledger
        self._callers: CallerRegistry = caller_registry(settings, address_of(client), log.debug)
        self._definition: Definition = load_packaged(load_catalogue())
        self._teller = Teller()

    @classmethod
    @asynccontextmanager
    async def of(cls, settings: Settings) -> AsyncIterator[Self]:
        """Open what they need."""
        async with AsyncExitStack() as stack:
            ledger = await open_ledger(settings)
            stack.push_async_callback(ledger.aclose)
            yield cls(settings, await connect(settings), ledger)

    async def bare(self, series: str, count: int, at_once: int) -> dict[str, float]:
        """Start so many new orders by Temporal's client alone; gives the seconds, and this process's CPU in them."""
        events = [read_event(body) for body in islice(bodies(series), count)]
        before, used = time.perf_counter(), time.process_time()
        await _all_at(at_once, events, self._start)
        return {"seconds": time.perf_counter() - before, "cpu": time.process_time() - used}

    async def alone(self, series: str, count: int) -> dict[str, float]:
        """Do each step for so many new deliveries, one after another; gives milliseconds of CPU for one, by step."""
        posts = [self._post(body) for body in islice(bodies(series), count)]
        steps: dict[str, Callable[[_Post], Awaitable[object]]] = {
            "read the body": lambda post: read_body(post.headers, _chunks(post.body)),
            "verify the signature": self._verify,
            "strict JSON, profile, rules, permission": self._read,
            "identity and fingerprint": _identify,
            "ledger: received, started": self._keep,
            "start the order": lambda post: self._start(post.event),
            "tell": self._tell,
        }
        return {name: await _cpu(posts, step) for name, step in steps.items()}

    def _post(self, body: bytes) -> _Post:
        headers = delivery_headers(body, sender_secret(self._settings))
        event = read_event(body)
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        return _Post(raw, body, event, workflow_id(event.source, event.id), payload_fingerprint(event))

    async def _verify(self, post: _Post) -> None:
        verify(post.headers, post.body, self._callers.keys, datetime.now(UTC))

    async def _read(self, post: _Post) -> None:
        require_cloudevent(post.headers)
        permit(self._callers.caller("shop"), read_event(post.body))

    async def _keep(self, post: _Post) -> None:
        await self._ledger.receive(post.entry())
        await self._ledger.event_started(post.event.source, post.event.id, post.fingerprint)

    async def _start(self, event: OrderEvent) -> None:
        await self._client.start_workflow(
            WORKFLOW_TYPE,
            OrderInput(event=event, definition=self._definition),
            id=workflow_id(event.source, event.id),
            task_queue=self._settings.task_queue,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            search_attributes=TypedSearchAttributes([SearchAttributePair(STAGE, Stage.RUNNING.value)]),
        )

    async def _tell(self, post: _Post) -> None:
        self._teller.taken(Whose("shop", post.order), new=True)


async def _identify(post: _Post) -> None:
    workflow_id(post.event.source, post.event.id)
    payload_fingerprint(post.event)


async def _chunks(body: bytes) -> AsyncIterator[bytes]:
    yield body
    yield b""


async def _all_at(at_once: int, items: Iterable[T], do: Callable[[T], Awaitable[object]]) -> None:
    left = iter(items)

    async def some() -> None:
        for item in left:
            await do(item)

    await asyncio.gather(*(some() for _ in range(at_once)))


async def _cpu(items: Sequence[T], do: Callable[[T], Awaitable[object]]) -> float:
    before = time.process_time()
    await _all_at(1, items, do)
    return 1000 * (time.process_time() - before) / len(items)
