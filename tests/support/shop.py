"""One shop: a Temporal client, a worker, the simulated providers and approvers' keys, for tests that run orders."""

import asyncio
import json
import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import httpx2
from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowUpdateFailedError,
)
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker

from orderflow.activities import OrderActivities
from orderflow.announcements import AnnouncementActivities
from orderflow.backends import open_ledger
from orderflow.catalogue import Catalogue, StepKind, load_catalogue
from orderflow.client.fates import TemporalOrders
from orderflow.client.orders import turned_away
from orderflow.contracts import APPROVE_SIGNAL, DECIDE_UPDATE, STAGE_ATTRIBUTE, DoorAnswer, OrderInput, OrderView
from orderflow.definitions import packaged_definitions
from orderflow.domain.approvals import ApprovalRequest, Claims, Decision
from orderflow.domain.definition import Definition, load_definition
from orderflow.domain.effects import Provider
from orderflow.domain.events import OrderEvent, workflow_id
from orderflow.domain.orders import FINAL, Stage
from orderflow.ledger.effects import EffectStore
from orderflow.ledger.review import Ledger
from orderflow.providers.http import open_client
from orderflow.providers.simulated import Fault, SimulatedWorld
from orderflow.providers.simulation.journal import Line
from orderflow.reconcile.run import ReconcileActivities
from orderflow.review import ReviewActivities
from orderflow.settings import Settings
from orderflow.signing import ApproverKey, KeyRegistry, decision_for
from orderflow.subscribers import Subscribers
from orderflow.worker import make_worker
from orderflow.workflows import OrderWorkflow
from tests.support.gates import Gate, GatedProvider, Gates
from tests.support.invariants import Books, check_books

Change = Callable[[dict[str, Any]], None]

PATIENCE = 20.0
"""Seconds that any wait of a test may take, unless its shop is opened with more patience."""

ROLES = {
    "alice": ("finance",),
    "bob": ("finance",),
    "carol": ("operator",),
    "oscar": ("operator",),
    "dana": ("finance",),
    "rita": ("finance",),
    "eve": ("finance",),
}
REVOKED = "rita"
UNREGISTERED = "eve"
ALONE_UP_TO = 1000
"""Everybody has a key; the set of approvers holds that of `REVOKED` as such, and nothing of `UNREGISTERED`."""


def cached_workflows() -> int:
    """How many workflows a test's worker keeps; the suite also runs with none, so that each task replays."""
    return int(os.environ.get("ORDERFLOW_TEST_MAX_CACHED_WORKFLOWS", "1000"))


_PAUSE = 0.01 if cached_workflows() else 0.3
"""Seconds between looks. Without a cache each look replays the order, and the SDK drops a workflow task that comes in
during the eviction after it ("leftover buffered tasks"): then looking too often keeps an order from going on.
"""

_UNANSWERED = timedelta(seconds=4)
"""How long a question may wait: the SDK drops one that comes just as the order ends ("leftover buffered tasks")."""

_ASK_AGAIN = {RPCStatusCode.FAILED_PRECONDITION, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED}
"""What a question meets whose order's workflow task is failing, that waits with another, or that was dropped."""


def order_event(*, event_id: str | None = None, **changes: Any) -> OrderEvent:
    """A valid event with an id of its own; `changes` are members of `data`."""
    data = {
        "order_id": "A-1",
        "requested_by": "dana",
        "customer": {"id": "c-1", "email": "someone@example.com"},
        "currency": "EUR",
        "items": [{"sku": "tea", "quantity": 2, "unit_price_minor": 450}],
        "total_minor": 900,
        **changes,
    }
    event = {
        "specversion": "1.0",
        "id": event_id or uuid.uuid4().hex,
        "source": "/shop",
        "type": "dev.orderflow.order.placed.v1",
        "data": data,
    }
    return OrderEvent.model_validate_json(json.dumps(event))


def order_of(event: OrderEvent) -> str:
    """The Workflow ID of the order of `event`."""
    return workflow_id(event.source, event.id)


def packaged(catalogue: Catalogue, change: Change | None = None) -> Definition:
    """The packaged definition; `change` may alter its JSON first."""
    value = json.loads(packaged_definitions()[0])
    if change is not None:
        change(value)
    return load_definition(json.dumps(value).encode(), catalogue)


def quick(value: dict[str, Any]) -> None:
    """Shorten the pauses and timeouts of a definition: three attempts of 3 seconds, 1 second apart."""
    for step in value["steps"]:
        for policy in (step, step.get("compensation") or {}):
            if "retry" in policy:
                policy["retry"] |= {"initial_interval": "PT1S", "maximum_interval": "PT1S", "attempts": 3}
                policy["start_to_close"], policy["schedule_to_close"], policy["heartbeat"] = "PT3S", "PT2M", "PT1S"


@dataclass
class Shop:
    """What a test of orders works with."""

    client: Client
    world: SimulatedWorld
    ledger: Ledger
    catalogue: Catalogue
    definition: Definition
    keys: dict[str, ApproverKey]
    registry: KeyRegistry
    published: set[str]
    special: Mapping[str, Provider]
    task_queue: str
    patience: float = PATIENCE
    subscribers: Subscribers = field(default_factory=Subscribers)
    sending: httpx2.AsyncClient = field(default_factory=open_client)
    gates: Gates = field(default_factory=Gates)
    orders: list["Order"] = field(default_factory=list)
    running: Worker | None = None

    @cached_property
    def activities(self) -> OrderActivities:
        """The activities of this shop's workers."""
        return self.activities_with()

    def worker(self, activities: OrderActivities | None = None, **options: Any) -> Worker:
        """A worker of this shop that is not running yet."""
        options.setdefault("graceful_shutdown", timedelta(seconds=5))
        options.setdefault("max_cached_workflows", cached_workflows())
        own = (self.review, self.announcements, self.reconciliation)
        every = [*(activities or self.activities).all(), *(each for some in own for each in some.all())]
        return make_worker(self.client, every, task_queue=self.task_queue, **options)

    @cached_property
    def reconciliation(self) -> ReconcileActivities:
        """The activity that reconciles; providers have to answer within a second."""
        return ReconcileActivities(
            ledger=self.ledger,
            providers=self.providers(self.catalogue),
            catalogue=self.catalogue,
            orders=TemporalOrders(self.client),
            worker="test",
            within=timedelta(seconds=1),
        )

    @cached_property
    def review(self) -> ReviewActivities:
        """The activities around the queue for people; one person may resolve up to `ALONE_UP_TO`."""
        return ReviewActivities(
            ledger=self.ledger,
            effects=EffectStore(self.ledger, poll_interval=0.05),
            providers=self.providers(self.catalogue),
            catalogue=self.catalogue,
            verify=partial(self.registry.verify_operation, alone_up_to=ALONE_UP_TO),
            fate_of=TemporalOrders(self.client).fate,
            tell_again=self.announcements.tell_again,
            worker="test",
        )

    @cached_property
    def announcements(self) -> AnnouncementActivities:
        """The activities at the end of an order; they tell this shop's subscribers."""
        return AnnouncementActivities(
            ledger=self.ledger,
            effects=EffectStore(self.ledger, poll_interval=0.05),
            subscribers=lambda: self.subscribers,
            client=self.sending,
            announced=TemporalOrders(self.client).announced,
            worker="test",
        )

    def activities_with(
        self,
        *,
        catalogue: Catalogue | None = None,
        providers: Mapping[str, Provider] | None = None,
        without: Collection[str] = (),
    ) -> OrderActivities:
        """The activities of a worker that knows other kinds of step, or has other providers, or not all of them."""
        known = catalogue or self.catalogue
        chosen = self.providers(known) if providers is None else providers
        return OrderActivities(
            effects=EffectStore(self.ledger, poll_interval=0.05),
            providers={name: provider for name, provider in chosen.items() if name not in without},
            catalogue=known,
            verify=self.registry.verify,
            published=self.published,
            worker="test",
        )

    def providers(self, catalogue: Catalogue) -> dict[str, Provider]:
        """A provider behind this shop's gates for each name in `catalogue`: of its world, or a special one."""
        names = {kind.provider for kind in catalogue.kinds.values()}
        return {name: GatedProvider(self.special.get(name) or self.world.provider(name), self.gates) for name in names}

    def define(self, value: dict[str, Any]) -> Definition:
        """Load a definition from its JSON value and publish it at this shop's workers."""
        definition = load_definition(json.dumps(value).encode(), self.catalogue)
        self.published.add(definition.fingerprint)
        return definition

    def fault(self, kind: str, operation: str, order: str | None = None, **more: Any) -> None:
        """Order a fault at the providers, see `Fault`."""
        self.world.add_fault(Fault.model_validate({"kind": kind, "operation": operation, "order": order, **more}))

    def hold(self, operation: str, order: str | None = None, *, after: bool = False) -> Gate:
        """Let calls of `operation` wait before they act, or `after` it before they are answered."""
        return self.gates.close(operation, order, after=after)

    def sign(
        self, request: ApprovalRequest, who: str = "alice", decision: Decision = Decision.APPROVE, **changes: Any
    ) -> str:
        """A decision of `who` on `request`; `changes` are claims to tamper with before signing."""
        claims = decision_for(request, decision, who, request.opened_at)
        return self.keys[who].sign(Claims.model_validate(claims.model_dump() | changes))

    async def start(
        self, event: OrderEvent | None = None, definition: Definition | None = None, **options: Any
    ) -> "Order":
        """Start an order; `options` are Temporal's own."""
        event = event or order_event()
        stage = SearchAttributePair(SearchAttributeKey.for_keyword(STAGE_ATTRIBUTE), Stage.RUNNING.value)
        handle = await self.client.start_workflow(
            OrderWorkflow.run,
            OrderInput(event=event, definition=definition or self.definition),
            id=order_of(event),
            task_queue=self.task_queue,
            search_attributes=TypedSearchAttributes([stage]),
            **options,
        )
        order = Order(self, handle, event, definition or self.definition)
        self.orders.append(order)
        return order


@dataclass(frozen=True)
class Ending:
    """How an order ended: Temporal's status, what `result` gave or raised, and the view."""

    status: WorkflowExecutionStatus
    result: Any
    cause: BaseException | None
    view: OrderView


@dataclass
class Order:
    """One running order, and what people may do to it. `exempt` names invariants that do not hold for it."""

    shop: Shop
    handle: WorkflowHandle[Any, Any]
    event: OrderEvent
    definition: Definition
    exempt: set[str] = field(default_factory=set)

    @property
    def id(self) -> str:
        return self.handle.id

    async def view(self) -> OrderView:
        """What the query shows now."""
        async with asyncio.timeout(self.shop.patience):
            while True:
                try:
                    return await self.handle.query(OrderWorkflow.view, rpc_timeout=_UNANSWERED)
                except RPCError as error:
                    if error.status not in _ASK_AGAIN:
                        raise
                    await asyncio.sleep(0.05)

    async def until(self, *stages: Stage) -> OrderView:
        """Wait for one of these stages; fail at once in a final one that is none of them."""
        view = await self.when(lambda view: view.stage in {*stages, *FINAL})
        if view.stage not in stages:
            raise AssertionError(f"{view.stage} ({view.reason}: {view.detail}) instead of {' or '.join(stages)}")
        return view

    async def when(self, condition: Callable[[OrderView], Any]) -> OrderView:
        """Wait until the view is as wanted."""
        async with asyncio.timeout(self.shop.patience):
            while not condition(view := await self.view()):
                await asyncio.sleep(_PAUSE)
            return view

    async def seen(self, look: Callable[["Order"], Awaitable[bool]]) -> None:
        """Wait until `look` sees what it looks for."""
        async with asyncio.timeout(self.shop.patience):
            while not await look(self):
                await asyncio.sleep(_PAUSE)

    def lines(self) -> list[Line]:
        """What the providers' log tells about this order."""
        return [line for line in self.shop.world.log() if line.get("workflow_id") == self.id]

    async def token(self, who: str = "alice", decision: Decision = Decision.APPROVE, **changes: Any) -> str:
        """A decision on the open request, signed by `who`; `changes` are claims to tamper with before signing."""
        view = await self.when(lambda view: view.request is not None)
        if view.request is None:
            raise RuntimeError("no request is open")
        return self.shop.sign(view.request, who, decision, **changes)

    async def approve(self, who: str = "alice", **changes: Any) -> None:
        """Send an approval through the signal."""
        await self.send(await self.token(who, **changes))

    async def send(self, token: str) -> None:
        """Send a decision through the signal."""
        async with asyncio.timeout(self.shop.patience):
            await self.handle.signal(APPROVE_SIGNAL, {"approval": token})

    async def decide(self, token: str) -> DoorAnswer:
        """Send a decision through the update and give the verdict."""
        return await self.update(DECIDE_UPDATE, {"approval": token})

    async def update(self, name: str, message: Any) -> DoorAnswer:
        """Send an update, again while it is turned away because the order is in the middle of a look."""
        async with asyncio.timeout(self.shop.patience):
            while True:
                try:
                    answer: DoorAnswer = await self.handle.execute_update(name, message, result_type=DoorAnswer)
                    return answer
                except WorkflowUpdateFailedError as error:
                    if not turned_away(error):
                        raise
                await asyncio.sleep(_PAUSE)

    async def cancel(self) -> None:
        """Ask Temporal to cancel the order; it may end at its own pace."""
        async with asyncio.timeout(self.shop.patience):
            await self.handle.cancel()

    async def result(self) -> Any:
        """The outcome of a completed order; raises what the order failed with."""
        async with asyncio.timeout(self.shop.patience):
            return await self.handle.result()

    async def ending(self) -> Ending:
        """Wait for the end, whatever it is."""
        result, cause = None, None
        try:
            result = await self.result()
        except WorkflowFailureError as error:
            cause = error.cause
        status = (await self.handle.describe()).status or WorkflowExecutionStatus.RUNNING
        return Ending(status, result, cause, await self.view())

    async def books(self) -> Books:
        """Everything that is known of this order now."""
        async with asyncio.timeout(self.shop.patience):
            history = await self.handle.fetch_history()
        effects = await self.shop.ledger.effects(self.id)
        described = await self.handle.describe()
        attributes = {pair.key.name: pair.value for pair in described.typed_search_attributes}
        return Books(
            history=history,
            log=tuple(self.lines()),
            view=await self.view(),
            effects=tuple(effects),
            definition=self.definition,
            attributes=attributes,
            converter=self.shop.client.data_converter,
        )


@asynccontextmanager
async def open_shop(
    client: Client,
    folder: Path,
    *,
    change: Change | None = None,
    providers: Mapping[str, Provider] | None = None,
    kinds: Iterable[StepKind] = (),
    ledger_url: str = "",
    patience: float = PATIENCE,
) -> AsyncIterator[Shop]:
    """A shop with a ledger and a world of its own in `folder`; its worker is not running yet.

    Its definition is the packaged one after `change`; `kinds` are kinds of step besides the built-in ones; `providers`
    take the place of simulated ones; `patience` is how many seconds anything may take to be seen.
    """
    catalogue = Catalogue({**load_catalogue([]).kinds, **{kind.activity: kind for kind in kinds}})
    definition = packaged(catalogue, change)
    keys = {name: ApproverKey.new(name, roles) for name, roles in ROLES.items()}
    shop = Shop(
        client=client,
        world=SimulatedWorld(folder / "simulator.jsonl"),
        ledger=await open_ledger(Settings(state_dir=folder, ledger_url=ledger_url)),
        catalogue=catalogue,
        definition=definition,
        keys=keys,
        registry=_registry(keys),
        published={definition.fingerprint},
        special=providers or {},
        task_queue=f"orders-{uuid.uuid4().hex[:8]}",
        patience=patience,
    )
    try:
        yield shop
    finally:
        await shop.sending.aclose()
        await shop.world.aclose()
        await shop.ledger.aclose()


@asynccontextmanager
async def open_for_business(
    client: Client, folder: Path, *, cached: int | None = None, **options: Any
) -> AsyncIterator[Shop]:
    """A shop (see `open_shop`) with a running worker; when it closes, the books of all its orders are checked.

    `cached` is for tests that need a cache, because they run many orders at once (see `_PAUSE`).
    """
    size = cached_workflows() if cached is None else cached
    async with open_shop(client, folder, **options) as shop, shop.worker(max_cached_workflows=size) as shop.running:
        yield shop
        await check_orders(shop)


async def check_orders(shop: Shop) -> None:
    """Check the invariants of every order of `shop`, and that its worker still runs (I-6)."""
    dropped = set() if cached_workflows() else {"I-5 in time"}  # see `_PAUSE`
    for order in shop.orders:
        await check_books(await order.books(), order.exempt | dropped)
    if shop.running is not None and not shop.running.is_running:
        raise AssertionError("I-6: the worker is dead")


def _registry(keys: dict[str, ApproverKey]) -> KeyRegistry:
    members = [key.public_jwk() | {"revoked": name == REVOKED} for name, key in keys.items() if name != UNREGISTERED]
    return KeyRegistry.from_jwks(json.dumps({"keys": members}).encode(), "the shop's approvers")
