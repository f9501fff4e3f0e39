"""A person with a shell in front of a shop."""

import asyncio
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orderflow.domain.orders import Stage
from tests.support.command_line import Ran, orderflow
from tests.support.shop import Order, Shop, order_event


@dataclass(frozen=True)
class Counter:
    """A shop, and a person in front of it with a shell."""

    shop: Shop
    folder: Path

    async def __call__(self, *arguments: object, stdin: bytes = b"") -> Ran:
        """Run a command; it must say something for people on failure, and never show a traceback."""
        ran = await asyncio.to_thread(orderflow, *arguments, stdin=stdin)
        assert "Traceback" not in ran.err
        assert (ran.code == 0) or ran.err
        return ran

    def event(self, **changes: Any) -> Path:
        """A file with an event of its own; `event_id` and members of `data` can be given."""
        path = self.folder / f"{uuid.uuid4().hex}.json"
        path.write_text(order_event(**changes).model_dump_json(exclude_none=True), encoding="utf-8")
        return path

    async def submit(self, **changes: Any) -> "Order":
        """Submit an event and give the order in the shop's own terms."""
        event = order_event(**changes)
        path = self.folder / f"{uuid.uuid4().hex}.json"
        path.write_text(event.model_dump_json(exclude_none=True), encoding="utf-8")
        ran = await self("submit", path, "--direct", "--definition", "definition.json", "--json")
        assert ran.code == 0, ran
        handle = self.shop.client.get_workflow_handle(ran.json["order"])
        order = Order(self.shop, handle, event, self.shop.definition)
        self.shop.orders.append(order)
        return order

    async def pending(self, **changes: Any) -> "Order":
        """An order that waits for its approval."""
        order = await self.submit(**changes)
        await order.until(Stage.AWAITING_APPROVAL)
        return order

    def charges(self, order: Order) -> list[Any]:
        """What the payment provider really did for an order."""
        lines = self.shop.world.log()
        return [
            line["outcome"]
            for line in lines
            if (line.get("workflow_id"), line.get("operation")) == (order.id, "charge")
        ]
