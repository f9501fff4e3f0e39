"""Waiting for a reconciliation on the real server: nobody begins it, its worker freezes, its ledger is down."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from temporalio.api.activity.v1 import ActivityOptions
from temporalio.api.common.v1 import RetryPolicy, WorkflowExecution
from temporalio.api.workflowservice.v1 import UpdateActivityOptionsRequest
from temporalio.client import Client, WorkflowExecutionStatus

from orderflow.cli.exits import ExitCode, exit_code
from orderflow.client import NoAnswer
from orderflow.client.reconciliations import RECONCILE_ID, OutOfReach, Patience, reconcile
from orderflow.contracts import RECONCILE, ReconcileRequest
from orderflow.embedded import HOST
from tests.support.observing import eventually
from tests.support.postgres import LEDGER, Postgres
from tests.support.processes import worker_of
from tests.support.shop import open_shop

pytestmark = pytest.mark.timeout(90)


async def test_without_a_worker_nothing_is_left_that_would_begin_later(client: Client, tmp_path: Path) -> None:
    """Whoever is told that it did not run must be able to rely on it."""
    async with open_shop(client, tmp_path) as shop:
        with pytest.raises(NoAnswer, match="no worker began the reconciliation within 1 s"):
            await reconcile(
                client, ReconcileRequest(), say=print, task_queue=shop.task_queue, patience=Patience(begin=1)
            )
        described = await client.get_workflow_handle(RECONCILE_ID).describe()
        assert described.status is WorkflowExecutionStatus.TERMINATED


async def test_one_whose_worker_freezes_at_work_is_given_up_in_time(client: Client, tmp_path: Path) -> None:
    """T16: people are told of the silence, and that the reconciliation may still go on."""
    said: list[str] = []
    async with (
        open_shop(client, tmp_path) as shop,
        a_provider_that_is_silent() as (url, asked),
        worker_of(shop, providers="http", providers_url=url, providers_timeout=60) as worker,
    ):
        waiting = asyncio.create_task(
            reconcile(
                client, ReconcileRequest(), say=said.append, task_queue=shop.task_queue, patience=Patience(stalled=3)
            )
        )
        await asyncio.wait_for(asked.wait(), 30)
        worker.send(signal.SIGSTOP)
        with pytest.raises(NoAnswer, match=r"no sign of life from a worker for 3 s .*; the reconciliation goes on"):
            await asyncio.wait_for(waiting, 30)
    assert any("no sign of life from its worker for 1 s: is it dead or frozen" in line for line in said)
    handle = client.get_workflow_handle(RECONCILE_ID)
    assert (await handle.describe()).status is WorkflowExecutionStatus.RUNNING
    await handle.terminate("a test")


@asynccontextmanager
async def a_provider_that_is_silent() -> AsyncIterator[tuple[str, asyncio.Event]]:
    """An address where calls are taken and never answered, and whether there was one."""
    asked, over = asyncio.Event(), asyncio.Event()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        asked.set()
        await over.wait()
        writer.close()

    server = await asyncio.start_server(take, HOST, 0)
    try:
        yield f"http://{HOST}:{server.sockets[0].getsockname()[1]}", asked
    finally:
        over.set()
        server.close()


async def test_a_ledger_that_is_down_is_out_of_reach_and_no_refusal(
    client: Client, tmp_path: Path, postgres: Postgres
) -> None:
    """I05: what can be done again later is not a no; the exit code of its kind is 3."""
    postgres.emptied()
    said: list[str] = []
    async with open_shop(client, tmp_path, ledger_url=postgres.url(LEDGER)) as shop, shop.worker():
        await postgres.stop()
        try:
            running = reconcile(client, ReconcileRequest(), say=said.append, task_queue=shop.task_queue)
            waiting = asyncio.create_task(running)
            await eventually(lambda: asyncio.sleep(0, [line for line in said if line.startswith("attempt 2 waits")]))
            await no_more_attempts(client)
            with pytest.raises(OutOfReach, match="could not use the ledger") as caught:
                await waiting
        finally:
            await postgres.start()
    assert exit_code(caught.value) is ExitCode.NOT_REACHABLE


async def no_more_attempts(client: Client) -> None:
    """Let the attempt that is waited for be the last."""
    await client.workflow_service.update_activity_options(
        UpdateActivityOptionsRequest(
            namespace=client.namespace,
            execution=WorkflowExecution(workflow_id=RECONCILE_ID),
            type=RECONCILE,
            activity_options=ActivityOptions(retry_policy=RetryPolicy(maximum_attempts=2)),
            update_mask=FieldMask(paths=["retry_policy.maximum_attempts"]),
        )
    )
