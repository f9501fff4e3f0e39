"""Workers that are stopped, not killed: they wake up later and believe that they still hold what they claimed."""

import signal

import pytest

from orderflow.domain.effects import EffectState
from orderflow.domain.orders import Stage
from orderflow.ledger import EffectRecord
from orderflow.providers.simulation.journal import Line
from tests.chaos.crew import PATIENCE, Crew, approve_when_asked, attempts_at, check_order, seen, start
from tests.support.observing import eventually
from tests.support.providers import PROVIDER_OF
from tests.support.shop import Order, Shop

pytestmark = pytest.mark.parametrize("workers", ["postgresql"], indirect=True)
"""Where a worker that is stopped within a transaction holds nobody up for long."""


@pytest.mark.parametrize("operation", ["charge", "refund"])
async def test_fencing_refuses_what_a_worker_writes_that_slept_past_its_lease(crew: Crew, operation: str) -> None:
    """T07, D06: two workers sleep at the provider in turn; each late write is evidence and changes nothing."""
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
    await seen(shop, order, operation, "done", kind="act")

    key = str(begun["key"])
    before = await shop.ledger.get(key)
    assert before is not None
    assert (before.state, before.token, first != second) == (EffectState.PENDING, 2, True)
    crew.worker(first).send(signal.SIGCONT)
    await until_written(shop, order, key, 1)
    assert_unchanged(before, await shop.ledger.get(key))

    settled = await eventually(lambda: settled_by_another(shop, key), PATIENCE)
    crew.worker(second).send(signal.SIGCONT)
    await until_written(shop, order, key, 2)
    assert await shop.ledger.get(key) == settled

    stage = (await order.ending()).view.stage
    assert stage is (Stage.COMPLETED if operation == "charge" else Stage.FAILED_COMPENSATED)
    await check_order(order)
    acts = [line for line in order.lines() if line["operation"] == operation and line["kind"] == "act"]
    assert [line["outcome"] for line in acts] == ["started", "done"]
    assert [attempt.token for attempt in await attempts_at(shop, order.id, key)][:3] == [1, 2, 3]


def assert_unchanged(before: EffectRecord, after: EffectRecord | None) -> None:
    """The first worker, the only one awake, may have claimed anew by now, but it has settled nothing as it was."""
    assert after is not None
    assert after == before or after.token > before.token


async def settled_by_another(shop: Shop, key: str) -> EffectRecord | None:
    """The effect, once a third claim has come to its end."""
    record = await shop.ledger.get(key)
    return record if record and record.state is EffectState.COMMITTED and record.token > 2 else None


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
