"""Step x fault x moment of cancellation, generated: whatever fails, at whatever moment, the books end right."""

from collections.abc import AsyncIterator

import pytest
from temporalio.testing import WorkflowEnvironment

from tests.support.invariants import check_books
from tests.support.shop import Shop, open_for_business, quick
from tests.workflow.scenarios import QUICK_KINDS, Scenario, play, scenarios


@pytest.fixture(scope="module")
async def shop(env: WorkflowEnvironment, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shop]:
    """One shop for all cells: each fault is for one order only."""
    async with open_for_business(env.client, tmp_path_factory.mktemp("matrix"), change=quick) as opened:
        yield opened


@pytest.mark.parametrize("scenario", scenarios(*QUICK_KINDS), ids=str)
async def test_an_order_ends_as_the_oracle_says(shop: Shop, scenario: Scenario) -> None:
    """Stage and reason are those of the table, and every invariant holds (I-1 to I-5, I06, I08, I09)."""
    order, ending = await play(shop, scenario)
    stages, reason = scenario.ends
    assert (ending.view.stage in stages, ending.view.reason) == (True, reason), ending.view
    shop.orders.remove(order)
    await check_books(await order.books())
