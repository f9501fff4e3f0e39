"""One time-skipping server for each module (T39), with a clock that runs, and a shop with a running worker.

Schedules, payload limits, lists of search attributes and suggested continue-as-new are not in this server (T38): tests
of those stand in `tests/integration`.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
from temporalio.testing import WorkflowEnvironment

from orderflow.client import data_converter
from orderflow.contracts import REASON_ATTRIBUTE, STAGE_ATTRIBUTE
from tests.support.servers import time_skipping_binary
from tests.support.shop import Shop, open_for_business
from tests.workflow.clock import Clock


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let a worker without a cache live: the SDK warns when an eviction cancels a local activity."""
    folder = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(folder):
            item.add_marker(pytest.mark.filterwarnings("ignore:Cannot find activity to cancel:UserWarning"))


@pytest.fixture(scope="module")
async def env() -> AsyncIterator[WorkflowEnvironment]:
    """A time-skipping server of this module's own."""
    async with await WorkflowEnvironment.start_time_skipping(
        test_server_existing_path=str(time_skipping_binary()), data_converter=data_converter()
    ) as started:
        keyword = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
        await started.client.operator_service.add_search_attributes(
            AddSearchAttributesRequest(
                namespace="default", search_attributes={STAGE_ATTRIBUTE: keyword, REASON_ATTRIBUTE: keyword}
            )
        )
        with started.auto_time_skipping_disabled():  # it would skip to an approval's expiry as soon as a test waits
            yield started


@pytest.fixture(scope="module", autouse=True)
async def clock(env: WorkflowEnvironment) -> AsyncIterator[Clock]:
    """The clock of that server, running."""
    clock = Clock(env)
    ticking = asyncio.create_task(clock.tick())
    yield clock
    ticking.cancel()
    await asyncio.wait({ticking})


@pytest.fixture
async def shop(env: WorkflowEnvironment, tmp_path: Path) -> AsyncIterator[Shop]:
    """A shop that is open for business; the books of its orders are checked when the test is over."""
    async with open_for_business(env.client, tmp_path) as opened:
        yield opened
