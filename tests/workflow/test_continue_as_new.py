"""An order that waits for people for long goes on in a new run, with all that it knows.

The time-skipping server never suggests that (T38), so these tests do, for a history of 80 events; the flood of junk
that makes the real server suggest it stands in `tests/integration`.
"""

from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from temporalio import workflow
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import WorkflowEnvironment

from orderflow.contracts import DoorAnswer, OrderView
from orderflow.domain.orders import Reason, Stage
from tests.support.operations import waits_for_people
from tests.support.shop import Order, Shop, open_for_business
from tests.workflow.clock import Clock
from tests.workflow.decisions import DOORS, completes, fails

EVENTS = 80


@pytest.fixture
async def shop(env: WorkflowEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Shop]:
    """A shop where a history of more than `EVENTS` events counts as long."""
    monkeypatch.setattr(
        workflow.Info, "is_continue_as_new_suggested", lambda info: info.get_current_history_length() > EVENTS
    )
    async with open_for_business(env.client, tmp_path) as opened:
        yield opened


async def _renewed(order: Order) -> OrderView:
    """Send junk through both doors until the order has gone on in another run; every message is counted once."""
    before = view = await order.view()
    while view.run_id == before.run_id:
        await order.send("junk")
        assert not (await _decided(order)).accepted
        view = await order.when(partial(_has_refused, view.refused_total + 2))
    return view


async def _decided(order: Order) -> DoorAnswer:
    """Send junk through the update; once more when it met a run that had just made way for the next one."""
    while True:
        try:
            return await order.decide("junk")
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise


def _has_refused(total: int, view: OrderView) -> bool:
    return view.refused_total == total


@pytest.mark.parametrize("door", DOORS)
async def test_what_was_asked_before_can_be_answered_after(shop: Shop, door: str) -> None:
    """T12, T54: the request keeps its id and its times, so the decision that was signed before is still about it."""
    order = await shop.start()
    before = await order.until(Stage.AWAITING_APPROVAL)
    token = await order.token()
    after = await _renewed(order)
    changed = {"run_id", "refusals", "refused_total", "trail"}
    assert after.model_dump(exclude=changed) == before.model_dump(exclude=changed)
    assert [(told.subject, told.detail) for told in after.trail] == [
        (told.subject, told.detail) for told in before.trail
    ]
    await (order.send(token) if door == "signal" else order.decide(token))
    await completes(order)


async def test_a_request_expires_when_it_said_it_would(clock: Clock, shop: Shop) -> None:
    """T10: the time that has passed before counts."""
    order = await shop.start()
    await order.until(Stage.AWAITING_APPROVAL)
    await clock.skip(timedelta(hours=20))
    await _renewed(order)
    await clock.skip(timedelta(hours=4, minutes=1))
    await fails(order, Reason.APPROVAL_EXPIRED)


async def test_an_order_in_its_second_run_can_be_cancelled(shop: Shop) -> None:
    """T01: what the first run has reserved, the second one takes back."""
    order = await shop.start()
    await order.until(Stage.AWAITING_APPROVAL)
    await _renewed(order)
    await order.cancel()
    await fails(order, Reason.CANCELLED)


async def test_a_review_goes_on_in_the_next_run(shop: Shop) -> None:
    """The stage is carried, also the one in which a person decides for the check."""
    shop.fault("manual_review", "check")
    order = await shop.start()
    await order.until(Stage.MANUAL_REVIEW)
    assert (await _renewed(order)).stage is Stage.MANUAL_REVIEW
    await order.approve()
    await order.until(Stage.AWAITING_APPROVAL)
    await order.approve()
    await completes(order)


async def test_what_stands_is_still_named_in_the_next_run(shop: Shop) -> None:
    """T06, I-4: an order with a failed compensation stays open, and goes on knowing what a person has to put right."""
    shop.fault("decline", "refund", times=1000)
    shop.fault("decline", "notify")
    order = await shop.start()
    await order.approve()
    await waits_for_people(order)
    before = await order.view()
    after = await _renewed(order)
    assert (after.stage, after.reason, after.standing) == (before.stage, before.reason, before.standing)
    assert (await _renewed(order)).standing == before.standing
