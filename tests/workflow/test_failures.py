"""Providers that answer at last, or not in time: one effect under one key, and no attempt without an end."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from temporalio.client import WorkflowHistory
from temporalio.testing import WorkflowEnvironment

from orderflow.definitions import packaged_definitions
from orderflow.domain.effects import EffectState
from orderflow.domain.orders import Stage
from tests.support.shop import Shop, open_for_business, quick

HISTORIES: Final = sorted((Path(__file__).parents[1] / "replay" / "histories").glob("*.json"))

FAULTS: Final[dict[str, dict[str, Any]]] = {
    "committed, then 504": {"kind": "lost_reply"},
    "two requests lost": {"kind": "lost_reply", "times": 2, "commit": False},
    "twice 409": {"kind": "busy", "times": 2},
    "twice 503": {"kind": "unavailable", "times": 2},
}


@pytest.fixture
async def shop(env: WorkflowEnvironment, tmp_path: Path) -> AsyncIterator[Shop]:
    """A shop with three attempts a second apart."""
    async with open_for_business(env.client, tmp_path, change=quick) as opened:
        yield opened


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_charge_that_succeeds_at_last_is_one_act_under_one_key(shop: Shop, fault: str) -> None:
    """I04, I06, I08, I09: the provider's log has one key for all attempts, and the ledger the provider's reference."""
    order = await shop.start()
    shop.fault(operation="charge", order=order.id, **FAULTS[fault])
    await order.approve()
    assert (await order.ending()).view.stage is Stage.COMPLETED
    lines = [line for line in order.lines() if line["operation"] == "charge"]
    assert {line["key"] for line in lines} == {f"{order.id}.charge.do"}
    assert len([line for line in lines if "fault" in line]) == FAULTS[fault].get("times", 1)
    [charge] = [line for line in lines if line["outcome"] == "done" and line["kind"] == "act"]
    [row] = [row for row in await shop.ledger.effects(order.id) if row.step == "charge"]
    assert (row.state, row.reference, row.captured_minor) == (EffectState.COMMITTED, charge["reference"], 900)


@pytest.mark.parametrize(
    ("commit", "stage"), [(True, Stage.COMPLETED), (False, Stage.FAILED_COMPENSATED)], ids=["made", "never made"]
)
async def test_a_charge_that_is_out_of_time_is_unknown_until_the_provider_says(
    shop: Shop, commit: bool, stage: Stage
) -> None:
    """T23, I06: its only attempt fills all its time; the last look adopts it, or proves that it never was."""
    value = json.loads(packaged_definitions()[0])
    value["steps"][3] |= {"start_to_close": "PT2S", "schedule_to_close": "PT2S", "heartbeat": "PT1S"}
    value["steps"][3]["retry"]["attempts"] = 1
    order = await shop.start(definition=shop.define(value))
    shop.fault("hang", "charge", order.id, commit=commit)
    await order.approve()
    ending = await order.ending()
    assert ending.view.stage is stage
    assert (await order.books()).events("ActivityTaskTimedOut")
    assert shop.world.net_charged(order.id) == (900 if commit else 0)


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_nothing_that_was_ever_scheduled_can_go_on_for_ever(path: Path) -> None:
    """T22: in the history of every ending, each activity has finite attempts and every timeout."""
    history = WorkflowHistory.from_json(path.stem, path.read_text())
    scheduled = [
        event.activity_task_scheduled_event_attributes
        for event in history.events
        if event.HasField("activity_task_scheduled_event_attributes")
    ]
    assert scheduled
    for each in scheduled:
        timeouts = (each.start_to_close_timeout, each.schedule_to_close_timeout, each.heartbeat_timeout)
        assert all(timeout.ToTimedelta() for timeout in timeouts), each.activity_id
        assert each.retry_policy.maximum_attempts >= 1, each.activity_id
