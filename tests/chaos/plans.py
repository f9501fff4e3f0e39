"""Orders that lose their workers: which operation is under way then, how often, and who cancels meanwhile."""

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from temporalio.service import RPCError

from orderflow.domain.orders import Stage
from orderflow.providers.simulation.journal import Line
from tests.chaos.crew import PATIENCE, Crew, approve_when_asked, start
from tests.support.observing import eventually
from tests.support.providers import PROVIDER_OF, UNDO_OF
from tests.support.shop import Order

FORWARD: Final = ("reserve", "charge", "notify")
BACKWARD: Final = tuple(UNDO_OF)

_LATE: Final = 4000
"""Milliseconds that a late act takes: longer than the lease of a worker that died."""

_STRIKES: Final = frozenset({"hang", "delay"})


class Acted(StrEnum):
    """Whether the provider has acted when the worker dies."""

    BEFORE = "after the commit"
    NEVER = "before the commit"
    LATER = "long before the commit"


@dataclass(frozen=True)
class Plan:
    """One order: its worker is killed `kills` times at `operation`, and it is cancelled `cancels` times from then on.

    The first kill is while the provider owes the answer to the act itself, the others while it owes that to a lookup.
    """

    operation: str
    kills: int
    acted: Acted
    cancels: int = 0

    def __str__(self) -> str:
        """For the name of a test."""
        cancelled = f", cancelled {self.cancels} times" if self.cancels else ""
        return f"{self.operation} killed {self.kills} times {self.acted}{cancelled}"

    @property
    def ends(self) -> Stage:
        """How the order has to end."""
        undone = self.cancels or self.operation in BACKWARD
        return Stage.FAILED_COMPENSATED if undone else Stage.COMPLETED


KILLED: Final = tuple(
    Plan(operation, kills, acted)
    for operation in (*FORWARD, *BACKWARD)
    for kills, acted in ((3, Acted.BEFORE), (1, Acted.NEVER))
)
OVERTAKEN: Final = tuple(Plan("charge", 1, acted, cancels=1) for acted in (Acted.LATER, Acted.BEFORE))
CANCELLED_TWICE: Final = tuple(Plan(operation, 1, Acted.BEFORE, cancels=2) for operation in BACKWARD)


async def play(crew: Crew, plan: Plan, chance: random.Random) -> tuple[Order, Stage]:
    """Run one order to its end, with answers that never come as planned; gives how it ended."""
    order = await start(crew.shop)
    _order_faults(crew, plan, order)
    approving = asyncio.create_task(approve_when_asked(order))
    for number in range(plan.cancels):
        if number == 0:
            await _struck(order)
        await asyncio.sleep(chance.uniform(0, 1))  # not to wait for something: any moment will do
        with suppress(RPCError):  # it has ended
            await order.cancel()
    stage = (await order.ending()).view.stage
    approving.cancel()
    return order, stage


def _order_faults(crew: Crew, plan: Plan, order: Order) -> None:
    if plan.operation in BACKWARD:
        crew.shop.fault("decline", "notify", order.id)
    if plan.acted is Acted.LATER:
        crew.shop.fault("delay", plan.operation, order.id, milliseconds=_LATE)
    else:
        crew.shop.fault("hang", plan.operation, order.id, commit=plan.acted is Acted.BEFORE)
    if plan.kills > 1:
        provider = PROVIDER_OF[plan.operation]
        crew.shop.fault("hang", "lookup", order.id, provider=provider, times=plan.kills - 1)


async def _struck(order: Order) -> None:
    async def look() -> bool:
        return bool(strikes(order.lines()))

    await eventually(look, PATIENCE)


def strikes(log: list[Line]) -> list[Line]:
    """The calls whose answers do not come, or not soon."""
    return [line for line in log if line.get("fault") in _STRIKES]


async def kill_at_strikes(crew: Crew, chance: random.Random) -> None:
    """Until cancelled, kill whoever waits for an answer that does not come, soon."""
    looked_at = 0
    while True:
        log = crew.shop.world.log()
        struck = strikes(log[looked_at:])
        looked_at = len(log)
        if struck:
            await asyncio.sleep(chance.uniform(0, 1.5))  # not to wait for something: any moment will do
        for line in struck:
            await crew.kill_whoever_waits(line)
        await asyncio.sleep(0.05)
