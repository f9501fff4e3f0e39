"""Two workers on one ledger, each killed at generated moments and replaced; every order ends right all the same.

All orders run side by side, first on SQLite, then on PostgreSQL.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from orderflow.domain.orders import Stage
from tests.chaos.crew import PATIENCE, Crew, check_order
from tests.chaos.plans import (
    CANCELLED_TWICE,
    KILLED,
    OVERTAKEN,
    Plan,
    kill_at_strikes,
    play,
    strikes,
)
from tests.support.observing import eventually
from tests.support.shop import Order

Playing = Mapping[Plan, "asyncio.Task[tuple[Order, Stage]]"]


@pytest.fixture(scope="module")
async def playing(workers: Crew, seed: int) -> AsyncIterator[Playing]:
    """Every plan, being played."""
    async with under_fire(workers, random.Random(seed)):
        plans = (*KILLED, *OVERTAKEN, *CANCELLED_TWICE)
        tasks = {plan: asyncio.create_task(play(workers, plan, random.Random(f"{seed} {plan}"))) for plan in plans}
        yield tasks
        for task in tasks.values():
            task.cancel()
        await asyncio.wait(tasks.values())


@asynccontextmanager
async def under_fire(crew: Crew, chance: random.Random) -> AsyncIterator[None]:
    """Kill workers of `crew` meanwhile; all others must be alive at the end."""
    killing = asyncio.create_task(kill_at_strikes(crew, chance))
    try:
        yield
    finally:
        killing.cancel()
        await asyncio.wait({killing})
    if not killing.cancelled():
        killing.result()
    crew.require_alive()


@pytest.mark.parametrize("plan", KILLED, ids=str)
async def test_two_workers_end_an_order_right_at_whatever_attempt_sigkill_comes(playing: Playing, plan: Plan) -> None:
    """T07, T25, T35, I05, D06: nothing is done or undone twice, and nothing is left standing."""
    order, stage = await playing[plan]
    assert stage is plan.ends
    await check_order(order)
    struck = [line["operation"] for line in strikes(order.lines())]
    # A kill that was meant for another order may have found this one at its charge: then that is what is looked up.
    assert len(struck) == plan.kills
    assert plan.operation in struck


@pytest.mark.parametrize("plan", OVERTAKEN, ids=str)
async def test_a_cancellation_that_overtakes_an_act_of_a_worker_lost_to_sigkill_leaves_nothing(
    playing: Playing, plan: Plan
) -> None:
    """T02: whichever comes first, a late act is refused, or it is taken back after it."""
    order, stage = await playing[plan]
    assert stage is plan.ends
    await eventually(lambda: no_longer_late(order), PATIENCE)
    await check_order(order)
    assert order.shop.world.net_charged(order.id) == 0
    assert order.shop.world.reserved(order.id) == {}


async def no_longer_late(order: Order) -> bool:
    """Whether every act that had begun has come to its end, for good or not at all."""
    begun = [line["key"] for line in order.lines() if line["outcome"] == "started"]
    ended = [line["key"] for line in order.lines() if line["kind"] == "act" and line["outcome"] != "started"]
    return set(begun) <= set(ended)


@pytest.mark.parametrize("plan", CANCELLED_TWICE, ids=str)
async def test_cancelling_twice_and_sigkill_while_compensating_ends_all_the_same(playing: Playing, plan: Plan) -> None:
    """T01, T09: every undo is carried through, once."""
    order, stage = await playing[plan]
    assert stage is plan.ends
    books = await check_order(order)
    assert {step: len(books.undone(step)) for step in books.compensable()} == {"reserve_inventory": 1, "charge": 1}
