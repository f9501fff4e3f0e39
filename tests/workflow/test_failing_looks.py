"""A look that fails is no reason for an order to fail: it goes on without, or asks again.

Temporal's SDK wraps the failure of an activity, and not that of a local one.
"""

import functools
from pathlib import Path
from typing import Any

import pytest
from temporalio.testing import WorkflowEnvironment

from orderflow.activities import OrderActivities
from orderflow.dispatch import OWN_ATTEMPTS
from orderflow.domain.approvals import Refusal
from orderflow.domain.errors import LedgerUnavailable
from orderflow.domain.operations import Operation
from orderflow.domain.orders import Reason, Stage
from orderflow.ledger.sqlite import SqliteLedger
from tests.support.operations import left_standing, operate, signed
from tests.support.shop import Shop, open_for_business, quick
from tests.workflow.decisions import completes, refusal

FAILURES = 7
"""More than one round of attempts, and fewer than two."""


class Broken:
    """Something that fails `FAILURES` times in a row, and then works again."""

    def __init__(self, owner: type, name: str, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
        self.failures = 0
        working = getattr(owner, name)

        @functools.wraps(working)
        async def broken(instance: Any, *arguments: Any, **named: Any) -> Any:
            if self.failures < FAILURES:
                self.failures += 1
                raise error
            return await working(instance, *arguments, **named)

        monkeypatch.setattr(owner, name, broken)


def _without(method: str, monkeypatch: pytest.MonkeyPatch) -> Broken:
    return Broken(SqliteLedger, method, LedgerUnavailable("the disk is full"), monkeypatch)


async def test_an_order_completes_though_nobody_can_note_its_ending(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T53: the ending is for later; no order waits for it, let alone fails with its charge made."""
    broken = _without("end_order", monkeypatch)
    order = await shop.start()
    await order.approve()
    await completes(order)
    assert broken.failures == 1


async def test_what_may_stand_is_taken_back_though_the_ledger_cannot_say_what_does(
    env: WorkflowEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T06: every step's undo then finds out by itself."""
    async with open_for_business(env.client, tmp_path, change=quick) as shop:
        order = await shop.start()
        await order.until(Stage.AWAITING_APPROVAL)
        broken = _without("effects", monkeypatch)
        await order.cancel()
        ending = await order.ending()
        assert (ending.view.stage, ending.view.reason) == (Stage.FAILED_COMPENSATED, Reason.CANCELLED)
        assert (shop.world.reserved(order.id), broken.failures) == ({}, OWN_ATTEMPTS.maximum_attempts)
        broken.failures = FAILURES


async def test_the_queue_is_told_as_soon_as_the_ledger_is_back(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """T06: until then the order shows what stands, and afterwards an operator can act."""
    broken = _without("put_in_review", monkeypatch)
    order = await left_standing(shop)
    await order.seen(lambda order: _is_queued(shop, order.id))
    assert broken.failures == FAILURES
    assert (await operate(order, await signed(order, Operation.RETRY))).accepted
    await order.until(Stage.FAILED_COMPENSATED)


async def _is_queued(shop: Shop, order: str) -> bool:
    return bool(await shop.ledger.reviews_of(order))


async def test_a_decision_that_cannot_be_verified_is_refused_and_can_be_sent_again(
    env: WorkflowEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A02: not believed, not lost: the reason says to send it again."""
    broken = Broken(OrderActivities, "verify_decision", RuntimeError("no keys"), monkeypatch)
    async with open_for_business(env.client, tmp_path) as shop:
        order = await shop.start()
        assert await refusal(order, "update", await order.token()) is Refusal.CANNOT_VERIFY
        broken.failures = FAILURES
        await order.approve()
        await completes(order)
