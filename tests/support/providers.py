"""Simulated providers as tests use them: acts to ask for, and a log to look at."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from orderflow.domain.effects import Act, Performed, Provider
from orderflow.domain.intents import digest
from orderflow.domain.strict_json import JsonValue
from orderflow.providers.simulated import Fault, SimulatedWorld
from orderflow.providers.simulation.journal import Line

T = TypeVar("T")

PROVIDER_OF = {
    "reserve": "inventory",
    "check": "risk",
    "charge": "payments",
    "notify": "notifications",
    "release": "inventory",
    "refund": "payments",
    "ship": "shipping",
}
FORWARD = ("reserve", "check", "charge", "notify", "ship")
UNDO_OF = {"release": "reserve", "refund": "charge"}
OPERATIONS = (*FORWARD, *UNDO_OF)

_order_numbers = itertools.count(1)


@dataclass(frozen=True)
class Backend:
    """The same world, and providers that reach it one way or the other."""

    world: SimulatedWorld
    providers: dict[str, Provider]

    def of(self, act: Act) -> Provider:
        return self.providers[act.provider]

    def fault(self, kind: str, operation: str, order: str, **more: object) -> None:
        self.world.add_fault(Fault.model_validate({"kind": kind, "operation": operation, "order": order, **more}))

    def lines(self, act: Act, kind: str = "act") -> list[Line]:
        return [line for line in self.world.log() if line["kind"] == kind and line.get("key") == act.key]

    def outcomes(self, act: Act) -> list[JsonValue]:
        return [line["outcome"] for line in self.lines(act)]


def new_order() -> str:
    """A workflow id that no other test uses."""
    return f"order-{next(_order_numbers)}"


async def within(awaitable: Awaitable[T], seconds: float = 20) -> T:
    """Await with a limit of the test's own."""
    async with asyncio.timeout(seconds):
        return await awaitable


async def seen(condition: Callable[[], T], seconds: float = 20) -> T:
    """Look until there is something to see."""
    async with asyncio.timeout(seconds):
        while not (result := await asyncio.to_thread(condition)):  # other processes write the log
            await asyncio.sleep(0.01)
    return result


def act(operation: str, order: str, *, amount: int = 10_00, quantity: int = 2, step: str | None = None) -> Act:
    """What the worker would ask of the provider of `operation` for an order."""
    intent: dict[str, JsonValue] = {
        "order": order,
        "amount_minor": amount,
        "items": [{"sku": f"sku-{order}", "quantity": quantity}],
        "email": "canary@example.org",
    }
    money = operation in ("charge", "refund")
    step = step or operation
    return Act(
        key=f"{order}.{step}.{'undo' if operation in UNDO_OF else 'do'}",
        workflow_id=order,
        step=step,
        provider=PROVIDER_OF[operation],
        operation=operation,
        intent=intent,
        intent_digest=digest(intent),
        amount_minor=amount if money else None,
        currency="EUR" if money else None,
    )


async def do(backend: Backend, asked: Act) -> Performed:
    """Perform it, or undo what it takes back."""
    provider = backend.of(asked)
    if (forward := UNDO_OF.get(asked.operation)) is not None:
        return await within(provider.undo(asked, act(forward, asked.workflow_id)))
    return await within(provider.perform(asked))
