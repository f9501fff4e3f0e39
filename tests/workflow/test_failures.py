"""Providers that fail, stay silent or are cut off, and workers that die: each effect once, and the amount that was asked."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from temporalio.testing import WorkflowEnvironment

from orderflow.definitions import packaged_definitions
from orderflow.domain.effects import EffectState
from orderflow.domain.orders import Reason, Stage
from tests.support.gates import Gate
from tests.support.invariants import attempts_are_finite
from tests.support.shop import Order, Shop, check_orders, open_for_business, open_shop, order_event, quick

FOR_EVER: Final = 1000


@pytest.fixture
async def shop(env: WorkflowEnvironment, tmp_path: Path) -> AsyncIterator[Shop]:
    """A shop with three attempts a second apart."""
    async with open_for_business(env.client, tmp_path, change=quick) as opened:
        yield opened


@pytest.fixture
async def closed(env: WorkflowEnvironment, tmp_path: Path) -> AsyncIterator[Shop]:
    """A shop whose worker a test starts and stops itself; the books are checked when it is over."""
    async with open_shop(env.client, tmp_path, change=quick) as opened:
        yield opened
        await check_orders(opened)


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "lost_reply"},
        {"kind": "lost_reply", "times": 2, "commit": False},
        {"kind": "busy", "times": 2},
        {"kind": "unavailable", "times": 2},
    ],
    ids=["I06: committed, then 504", "I04: two requests lost", "I08: twice 409", "I09: twice 503"],
)
async def test_a_charge_that_succeeds_at_last_is_one_charge_under_one_key(shop: Shop, fault: dict[str, Any]) -> None:
    """I04, I06, I08, I09: up to three attempts; the provider's log has one key and one act."""
    order = await shop.start()
    shop.fault(operation="charge", order=order.id, **fault)
    await order.approve()
    assert (await order.ending()).view.stage is Stage.COMPLETED
    charges = [line for line in order.lines() if line.get("operation") == "charge"]
    assert {line["key"] for line in charges} == {f"{order.id}.charge.do"}
    asked = [line for line in charges if line["kind"] == "act"]
    assert len(asked) == fault.get("times", 0) + 1
    assert [line["outcome"] for line in asked].count("done") == 1
