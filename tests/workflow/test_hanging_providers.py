"""The part of the fault matrix that takes real time: providers that hang, or are pending for ever.

All its orders run side by side, because the time-skipping server does not skip while an activity runs.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from temporalio.testing import WorkflowEnvironment

from tests.support.invariants import check_books
from tests.support.shop import Ending, Order, open_for_business, quick
from tests.workflow.scenarios import SLOW_KINDS, Scenario, Struck, play, scenarios

SCENARIOS = [
    scenario
    for scenario in scenarios(*SLOW_KINDS)
    if scenario.struck is Struck.IN_THE_LOG  # not what is retried at once: that stands in the quick matrix
]

Played = Mapping[str, asyncio.Task[tuple[Order, Ending]]]


def _impatient(value: dict[str, Any]) -> None:
    quick(value)
    for step in value["steps"][1:]:
        for policy in filter(None, (step, step.get("compensation"))):
            policy["start_to_close"] = "PT2S"


@pytest.fixture(scope="module")
async def played(env: WorkflowEnvironment, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Played]:
    """Every scenario, running."""
    folder = tmp_path_factory.mktemp("hanging")
    async with open_for_business(env.client, folder, change=_impatient, cached=100) as shop:
        tasks = {str(scenario): asyncio.create_task(play(shop, scenario)) for scenario in SCENARIOS}
        yield tasks
        for task in tasks.values():
            task.cancel()
        await asyncio.wait(tasks.values())


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
async def test_an_order_ends_whatever_hangs(played: Played, scenario: Scenario) -> None:
    """Stage, reason and invariants as in the matrix; a cancelled order does not wait for its provider (T26, I06)."""
    order, ending = await played[str(scenario)]
    stages, reason = scenario.ends
    assert (ending.view.stage in stages, ending.view.reason) == (True, reason), ending.view
    await check_books(await order.books())
