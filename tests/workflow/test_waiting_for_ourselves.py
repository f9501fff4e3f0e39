"""What is our own trouble never fails an order, and what became stale meanwhile is not done after all."""

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.testing import WorkflowEnvironment

from orderflow.definitions import packaged_definitions
from orderflow.dispatch import LEDGER_UNAVAILABLE
from orderflow.domain.errors import LedgerUnavailable
from orderflow.domain.orders import Reason, Stage, StepState
from orderflow.ledger.sqlite import SqliteLedger
from tests.support.shop import Shop, open_for_business, order_event, quick
from tests.workflow.clock import Clock

MORE_THAN_ATTEMPTS = 5
"""Failures in a row, where the definition allows three attempts."""


@pytest.mark.parametrize("broken", ["claim", "settle", "claim_undo"])
async def test_an_order_waits_for_a_ledger_that_cannot_be_used(
    env: WorkflowEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """No attempts of the definition are used up by it: an hour without the ledger costs an hour, not an order."""
    working = getattr(SqliteLedger, broken)
    failures: list[str] = []

    async def unavailable(ledger: SqliteLedger, *arguments: Any, **named: Any) -> Any:
        if len(failures) < MORE_THAN_ATTEMPTS:
            failures.append(broken)
            raise LedgerUnavailable("the disk is full")
        return await working(ledger, *arguments, **named)

    monkeypatch.setattr(SqliteLedger, broken, unavailable)
    async with open_for_business(env.client, tmp_path, change=quick) as shop:
        order = await shop.start()
        if broken == "claim_undo":
            await order.until(Stage.AWAITING_APPROVAL)
            await order.cancel()
            await order.until(Stage.FAILED_COMPENSATED)
        else:
            await order.when(lambda view: view.steps[1].detail == LEDGER_UNAVAILABLE or view.request is not None)
            await order.approve()
            view = await order.until(Stage.COMPLETED)
            assert [record.state for record in view.steps] == [StepState.DONE] * 5
        assert len(failures) == MORE_THAN_ATTEMPTS


def _slow_to_retry(value: dict[str, Any]) -> None:
    notify = value["steps"][4]
    notify["deadline"] = "PT1M"
    notify["retry"] |= {"initial_interval": "PT2M", "maximum_interval": "PT2M", "backoff": 1}


async def test_a_message_that_was_proven_not_sent_is_not_sent_after_its_deadline(
    env: WorkflowEnvironment, clock: Clock, tmp_path: Path
) -> None:
    """The first try found the provider away; at the second the message would be stale. Nothing can send it later."""
    async with open_for_business(env.client, tmp_path, change=_slow_to_retry) as shop:
        order = await shop.start()
        shop.fault("unavailable", "notify", order.id)
        await order.approve()
        async with asyncio.timeout(20):
            while not any(line["operation"] == "notify" for line in order.lines()):
                await asyncio.sleep(0.01)
        await clock.skip(timedelta(minutes=3))
        view = await order.until(Stage.COMPLETED)
        assert (view.steps[4].state, view.steps[4].error) == (StepState.SKIPPED, "DeadlinePassed")
        assert view.outcome is not None
        assert "stale" in view.outcome.notes[0]
        assert shop.world.messages(order.id) == []
        [message] = [record for record in await shop.ledger.effects(order.id) if record.step == "notify"]
        assert message.state == "voided"


async def test_the_rules_of_an_order_hold_whatever_its_definition_says(shop: Shop) -> None:
    """A definition without the step that stands for them cannot switch them off; nothing is done for such an order."""
    value = json.loads(packaged_definitions()[0])
    value["version"] = "2.0.0"
    value["steps"] = [step | {"depends_on": []} for step in value["steps"][1:3]] + value["steps"][3:]
    order = await shop.start(order_event(total_minor=1), shop.define(value))
    view = await order.until(Stage.FAILED)
    assert (view.reason, "total_minor" in (view.detail or "")) == (Reason.INVALID_ORDER, True)
    assert order.lines() == []
