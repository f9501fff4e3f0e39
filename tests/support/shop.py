"""One shop: a Temporal client, a worker, the simulated providers and approvers' keys, for tests that run orders."""

import asyncio
import json
import os
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio.client import Client, WorkflowHandle
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes
from temporalio.worker import Worker

from orderflow.activities import OrderActivities
from orderflow.catalogue import Catalogue, load_catalogue
from orderflow.contracts import DECIDE_UPDATE, APPROVE_SIGNAL, DoorAnswer, OrderInput, OrderView
from orderflow.definitions import packaged_definitions
from orderflow.domain.approvals import Claims, Decision
from orderflow.domain.definition import Definition, load_definition
from orderflow.domain.effects import Provider
from orderflow.domain.events import OrderEvent, workflow_id
from orderflow.domain.orders import Stage
from orderflow.ledger.effects import EffectStore
from orderflow.ledger.sqlite import SqliteLedger
from orderflow.providers.simulated import PROVIDERS, Fault, SimulatedWorld
from orderflow.signing import ApproverKey, KeyRegistry, decision_for
from orderflow.worker import make_worker
from orderflow.workflows import OrderWorkflow

PATIENCE = 20.0
"""Seconds that any wait of a test may take."""

ROLES = {"alice": ("finance",), "bob": ("finance",), "carol": ("operator",), "dana": ("finance",)}


def cached_workflows() -> int:
    """How many workflows a test's worker keeps; the suite also runs with none, so that each task replays."""
    return int(os.environ.get("ORDERFLOW_TEST_MAX_CACHED_WORKFLOWS", "1000"))


def order_event(**changes: Any) -> OrderEvent:
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
        "id": uuid.uuid4().hex,
        "source": "/shop",
        "type": "dev.orderflow.order.placed.v1",
        "data": data,
    }
    return OrderEvent.model_validate_json(json.dumps(event))


def packaged(catalogue: Catalogue, change: Callable[[dict[str, Any]], None] | None = None) -> Definition:
    """The packaged definition; `change` may alter its JSON first."""
    value = json.loads(packaged_definitions()[0])
    if change is not None:
        change(value)
    return load_definition(json.dumps(value).encode(), catalogue)


def quick(value: dict[str, Any]) -> None:
    """Shorten the pauses and timeouts of a definition, for servers that do not skip time."""
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
    ledger: SqliteLedger
    activities: OrderActivities
    definition: Definition
    keys: dict[str, ApproverKey]
    task_queue: str

    def worker(self, **options: Any) -> Worker:
        """A worker of this shop that is not running yet."""
        options.setdefault("graceful_shutdown", timedelta(seconds=5))
        return make_worker(
            self.client,
            self.activities,
            task_queue=self.task_queue,
            max_cached_workflows=cached_workflows(),
            **options,
        )

    async def start(self, event: OrderEvent | None = None, definition: Definition | None = None) -> "Order":
        """Start an order."""
        event = event or order_event()
        handle = await self.client.start_workflow(
            OrderWorkflow.run,
            OrderInput(event=event, definition=definition or self.definition),
            id=workflow_id(event.source, event.id),
            task_queue=self.task_queue,
        )
        return Order(self, handle, event)


@dataclass
class Order:
    """One running order, and what people may do to it."""

    shop: Shop
    handle: WorkflowHandle[Any, Any]
    event: OrderEvent

    @property
    def id(self) -> str:
        """The Workflow ID."""
        return self.handle.id

    async def view(self) -> OrderView:
        """What the query shows now."""
        async with asyncio.timeout(PATIENCE):
            return await self.handle.query(OrderWorkflow.view)

    async def until(self, *stages: Stage) -> OrderView:
        """Wait for one of these stages."""
        return await self.when(lambda view: view.stage in stages)

    async def when(self, condition: Callable[[OrderView], bool]) -> OrderView:
        """Wait until the view is as wanted."""
        async with asyncio.timeout(PATIENCE):
            while not condition(view := await self.view()):
                await asyncio.sleep(0.02)
            return view

    async def token(self, who: str = "alice", decision: Decision = Decision.APPROVE, **changes: Any) -> str:
        """A decision on the open request, signed by `who`; `changes` are claims to tamper with before signing."""
        view = await self.when(lambda view: view.request is not None)
        if view.request is None:
            raise RuntimeError("no request is open")
        claims = decision_for(view.request, decision, who, view.request.opened_at)
        return self.shop.keys[who].sign(Claims.model_validate(claims.model_dump() | changes))

    async def approve(self, who: str = "alice", **changes: Any) -> None:
        """Send an approval through the signal."""
        await self.handle.signal(APPROVE_SIGNAL, {"approval": await self.token(who, **changes)})

    async def decide(self, token: str) -> DoorAnswer:
        """Send a decision through the update and give the verdict."""
        async with asyncio.timeout(PATIENCE):
            return await self.handle.execute_update(DECIDE_UPDATE, {"approval": token}, result_type=DoorAnswer)

    async def result(self) -> Any:
        """The outcome of a completed order; raises what the order failed with."""
        async with asyncio.timeout(PATIENCE):
            return await self.handle.result()


@asynccontextmanager
async def open_shop(
    client: Client,
    folder: Path,
    *,
    change: Callable[[dict[str, Any]], None] | None = None,
    providers: dict[str, Provider] | None = None,
) -> AsyncIterator[Shop]:
    """A shop with a ledger and a world of its own in `folder`; its worker is not running yet."""
    catalogue = load_catalogue([])
    definition = packaged(catalogue, change)
    world = SimulatedWorld(folder / "simulator.jsonl")
    ledger = await SqliteLedger.open(folder / "ledger.db")
    keys = {name: ApproverKey.new(name, roles) for name, roles in ROLES.items()}
    registry = KeyRegistry()
    for key in keys.values():
        registry = registry.with_added(key.public_jwk())
    activities = OrderActivities(
        effects=EffectStore(ledger, poll_interval=0.05),
        providers={name: world.provider(name) for name in PROVIDERS} | (providers or {}),
        catalogue=catalogue,
        verify=registry.verify,
        published={definition.fingerprint},
        worker="test",
    )
    try:
        yield Shop(client, world, ledger, activities, definition, keys, f"orders-{uuid.uuid4().hex[:8]}")
    finally:
        await world.aclose()
        await ledger.aclose()
