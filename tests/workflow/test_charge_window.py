"""Late decisions and late charges: what still counts after `expires_at`, and what after `charge_by` (A01)."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.testing import WorkflowEnvironment

from orderflow.contracts import OrderView
from orderflow.domain.approvals import Refusal
from orderflow.domain.audit import Told
from orderflow.domain.orders import Reason, Stage
from tests.support.shop import Shop, check_orders, open_shop
from tests.workflow.clock import Clock
from tests.workflow.decisions import DOORS, asked, completes, fails, is_refused
from tests.workflow.late_payments import with_payments, without_payments

EXPIRES_IN = timedelta(minutes=10)
CHARGE_WITHIN = timedelta(minutes=20)


def _short(value: dict[str, Any]) -> None:
    value["steps"][3]["approval"] |= {"expires_in": "PT10M", "charge_within": "PT20M"}


@pytest.fixture
async def closed(env: WorkflowEnvironment, tmp_path: Path) -> AsyncIterator[Shop]:
    """A shop, without a worker, where a charge is approved within 10 minutes and begun within 20."""
    async with open_shop(env.client, tmp_path, change=_short) as shop:
        yield shop


async def test_a_request_is_open_until_it_expires(clock: Clock, shop: Shop) -> None:
    """T10: a minute before its time the order still waits."""
    order = await shop.start()
    await asked(order)
    await clock.skip(timedelta(hours=23, minutes=55))
    assert (await order.view()).stage is Stage.AWAITING_APPROVAL
    await order.approve()
    await completes(order)


@pytest.mark.parametrize("door", DOORS)
async def test_a_decision_after_the_expiry_is_named_expired(
    env: WorkflowEnvironment, clock: Clock, shop: Shop, door: str
) -> None:
    """A01, T10: too late by seconds is too late; that the request is gone by then does not change the reason."""
    gate = shop.hold("release")
    order = await shop.start()
    request = await asked(order)
    await clock.skip(request.expires_at - await env.get_current_time())
    await order.when(lambda _: gate.reached.is_set())
    await is_refused(order, door, shop.sign(request), Refusal.EXPIRED)
    gate.open()
    await fails(order, Reason.APPROVAL_EXPIRED)


async def test_a_decision_that_comes_with_the_expiry_is_too_late(
    env: WorkflowEnvironment, clock: Clock, closed: Shop
) -> None:
    """A01, T10: no worker runs when the request expires and a decision comes; both are seen at once, and it is no."""
    async with closed.worker(max_cached_workflows=0):
        order = await closed.start()
        request = await asked(order)
    await clock.skip(request.expires_at - await env.get_current_time())
    await order.send(closed.sign(request))
    async with closed.worker() as closed.running:
        await fails(order, Reason.APPROVAL_EXPIRED)
        assert [refused.reason for refused in (await order.view()).refusals] == [Refusal.EXPIRED]
        await check_orders(closed)


async def test_a_charge_that_could_not_begin_in_time_is_asked_for_anew(clock: Clock, closed: Shop) -> None:
    """Past `charge_by` and never claimed: another request, for which the old decision is worth nothing."""
    async with without_payments(closed) as (order, old, token):
        await clock.skip(CHARGE_WITHIN)
    async with with_payments(clock, closed):
        new = await asked(order)
        assert new.bound.request_id != old.bound.request_id
        assert new.opened_at > old.charge_by
        for door in DOORS:
            await is_refused(order, door, token, Refusal.EXPIRED)
            renewed = closed.sign(old, expires_at=new.bound.expires_at)
            await is_refused(order, door, renewed, Refusal.NO_SUCH_REQUEST)
        await order.approve("bob")
        await completes(order)
        assert _opened(await order.view()) == [old.bound.request_id, new.bound.request_id]


def _opened(view: OrderView) -> list[str | None]:
    """The ids of the requests that the trail tells of, oldest first."""
    return [event.detail for event in view.trail if event.told is Told.REQUEST_OPENED]


async def test_a_charge_that_is_asked_for_anew_can_expire_too(clock: Clock, closed: Shop) -> None:
    """The second request is a request like the first one: nobody answers, and everything is taken back."""
    async with without_payments(closed) as (order, _, _):
        await clock.skip(CHARGE_WITHIN)
    async with with_payments(clock, closed):
        await asked(order)
        await clock.skip(EXPIRES_IN)
        await fails(order, Reason.APPROVAL_EXPIRED)


async def test_a_charge_that_begins_after_the_expiry_but_in_time_is_made(clock: Clock, closed: Shop) -> None:
    """The decision came by `expires_at`; the charge has until `charge_by`."""
    async with without_payments(closed) as (order, _, _):
        await clock.skip(EXPIRES_IN)
    async with with_payments(clock, closed):
        await completes(order)
