"""Step x fault x moment of cancellation, generated: whatever fails, at whatever moment, the books end right."""

import json
from collections.abc import AsyncIterator

import pytest
from temporalio.testing import WorkflowEnvironment

from orderflow.definitions import packaged_definitions
from orderflow.domain.definition import Definition
from tests.support.invariants import check_books
from tests.support.shop import Shop, open_for_business, quick
from tests.workflow.scenarios import QUICK_KINDS, Moment, Scenario, play, scenarios


@pytest.fixture(scope="module")
async def shop(env: WorkflowEnvironment, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shop]:
    """One shop for all cells: each fault is for one order only."""
    async with open_for_business(env.client, tmp_path_factory.mktemp("matrix"), change=quick) as opened:
        yield opened


@pytest.fixture(scope="module")
def with_long_pauses(shop: Shop) -> Definition:
    """The same definition with two attempts that are five minutes apart, so that a test can see an order pause."""
    value = json.loads(packaged_definitions()[0])
    quick(value)
    for step in value["steps"][1:]:
        step["retry"] |= {"attempts": 2, "initial_interval": "PT5M", "maximum_interval": "PT5M"}
        step["schedule_to_close"] = "P1D"
    return shop.define(value)


@pytest.mark.parametrize("scenario", scenarios(*QUICK_KINDS), ids=str)
async def test_an_order_ends_as_the_oracle_says(shop: Shop, with_long_pauses: Definition, scenario: Scenario) -> None:
    """Stage and reason are those of the table, and every invariant holds (I-1 to I-5, I06, I08, I09)."""
    during = scenario.moment is Moment.DURING_THE_STEP
    order, ending = await play(shop, scenario, with_long_pauses if during else None)
    stages, reason = scenario.ends
    assert (ending.view.stage in stages, ending.view.reason) == (True, reason), ending.view
    shop.orders.remove(order)
    await check_books(await order.books())
