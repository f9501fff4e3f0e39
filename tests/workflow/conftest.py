"""One time-skipping server for each module (T39), with a clock that runs ahead, and a shop with a running worker.

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


@pytest.fixture(scope="module")
async def env() -> AsyncIterator[WorkflowEnvironment]:
    """A time-skipping server of this module's own; time passes about a hundred times faster than outside."""
    async with await WorkflowEnvironment.start_time_skipping(
        test_server_existing_path=str(time_skipping_binary()), data_converter=data_converter()
    ) as started:
        keyword = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
        await started.client.operator_service.add_search_attributes(
            AddSearchAttributesRequest(
                namespace="default", search_attributes={STAGE_ATTRIBUTE: keyword, REASON_ATTRIBUTE: keyword}
            )
        )
        ticking = asyncio.create_task(_tick(started))
        with started.auto_time_skipping_disabled():  # it would skip to an approval's expiry as soon as a test waits
            yield started
        ticking.cancel()
        await asyncio.wait({ticking})


async def _tick(env: WorkflowEnvironment) -> None:
    while True:
        await env.sleep(1)
        await asyncio.sleep(0.01)


@pytest.fixture
async def shop(env: WorkflowEnvironment, tmp_path: Path) -> AsyncIterator[Shop]:
    """A shop that is open for business; the books of its orders are checked when the test is over."""
    async with open_for_business(env.client, tmp_path) as opened:
        yield opened


@pytest.fixture(autouse=True)
async def _clock_check(env, request):
    yield
    import time
    t=time.time()
    try:
        async with asyncio.timeout(3): await env.sleep(600)
        print("CLOCK ok", request.node.name, round(time.time()-t,2))
    except TimeoutError: print("CLOCK STUCK", request.node.name)
