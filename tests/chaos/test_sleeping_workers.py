"""Workers that are stopped, not killed: they wake up later and believe that they still hold what they claimed."""

import signal

import pytest

from orderflow.domain.effects import EffectState
from orderflow.domain.orders import Stage
from orderflow.providers.simulation.journal import Line
from tests.chaos.crew import PATIENCE, Crew, approve_when_asked, attempts_at, check_order, seen, start
from tests.support.observing import eventually
from tests.support.providers import PROVIDER_OF
from tests.support.shop import Order, Shop

pytestmark = pytest.mark.parametrize("workers", ["postgresql"], indirect=True)
"""Where a worker that is stopped within a transaction holds nobody up for long."""


@pytest.mark.parametrize("operation", ["charge", "refund"])
async def test_fencing_refuses_what_a_worker_writes_that_slept_past_its_lease(crew: Crew, operation: str) -> None:
    """T07, D06: two_workers sleep at the provider in turn; each late write is evidence and changes nothing."""
    shop = crew.shop
    order = await start(shop)
    if operation == "refund":
        shop.fault("decline", "notify", order.id)
    shop.fault("delay", operation, order.id, milliseconds=4000)
    shop.fault("delay", "lookup", order.id, provider=PROVIDER_OF[operation], milliseconds=4000)
    await approve_when_asked(order)

    begun = await seen(shop, order, operation, "started")
    first = await fall_asleep(crew, begun)
    taken_over = await seen(shop, order, operation, "delayed", kind="lookup")
    second = await fall_asleep(crew, taken_over)
    assert second != first
    key = str(begun["key"])

    before = await shop.ledger.get(key)
    crew.worker(first).send(signal.SIGCONT)
    await until_written(shop, order, key, 1)
    assert before is not None
    assert (before.state, before.token) == (EffectState.PENDING, 2)
    assert await shop.ledger.get(key) == before

    stage = (await order.ending()).view.stage
    assert stage is (Stage.COMPLETED if operation == "charge" else Stage.FAILED_COMPENSATED)
    settled = await shop.ledger.get(key)
    crew.worker(second).send(signal.SIGCONT)
    await until_written(shop, order, key, 2)
    assert await shop.ledger.get(key) == settled
    print([(a.token, a.ended) for a in await attempts_at(shop, order.id, key)], settled.token)
    await check_order(order)
    assert [line["outcome"] for line in order.lines() if line["operation"] == operation and line["kind"] == "act"] == [
        "started",
        "done",
    ]


async def fall_asleep(crew: Crew, line: Line) -> int:
    """Stop the worker that waits for the provider's answer to `line`; gives its process id."""
    holder = await crew.holder(line)
    crew.worker(holder).send(signal.SIGSTOP)
    return holder


async def until_written(shop: Shop, order: Order, key: str, token: int) -> None:
    """Wait until the attempt with this fencing token has told how it ended."""

    async def look() -> bool:
        return any(attempt.token == token and attempt.ended for attempt in await attempts_at(shop, order.id, key))

    await eventually(look, PATIENCE)
