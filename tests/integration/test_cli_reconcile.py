"""`orderflow reconcile` with a real server: its exit codes, its table and its JSON."""

import signal

import pytest
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import WorkflowExecutionStatus

from orderflow.client.reconciliations import RECONCILE_ID
from orderflow.domain.orders import Stage
from tests.support.command_line import NOWHERE, run_process
from tests.support.counter import Counter
from tests.support.observing import eventually
from tests.support.processes import worker_of
from tests.support.shop import packaged

pytestmark = pytest.mark.timeout(90)


async def test_a_report_for_people_and_one_for_programs(counter: Counter) -> None:
    """0 also when there is something to decide; a dry run first, then the same for real."""
    async with counter.shop.worker():
        order = await counter.shop.start()
        await order.until(Stage.AWAITING_APPROVAL)
        await order.handle.terminate("a test")
        dry = await counter("reconcile", "--dry-run")
        assert (dry.code, "would_be_opened" in dry.out, "none: a dry run" in dry.out) == (0, True, True)
        ran = await counter("reconcile", "--json", "--since", "P1D")
        assert ran.code == 0
        [found] = ran.json["findings"]
        assert (found["what"], found["order"], found["detail"]) == ("opened", order.id, "terminated: committed")
        assert (ran.json["changes"], ran.json["counts"]) == (2, {"ended": 1, "opened": 1})
        again = await counter("reconcile")
        assert f"{order.id}.reserve_inventory.do" in again.out
        assert "in_review" in again.out


async def test_nothing_to_do_is_said_so(counter: Counter) -> None:
    """And is no error."""
    async with counter.shop.worker():
        ran = await counter("reconcile")
    assert (ran.code, "nothing to settle and nothing to decide" in ran.out) == (0, True)


async def test_no_worker_is_3(counter: Counter) -> None:
    """With the command that starts one."""
    ran = await counter("reconcile", "--json")
    assert (ran.code, ran.error["exit_code"]) == (3, 3)
    assert "`orderflow worker`" in ran.err


async def test_a_worker_that_is_frozen_is_3_too(counter: Counter) -> None:
    """T16: its poller is handed the workflow task, and that is not the beginning of a reconciliation."""
    counter.shop.definition = packaged(counter.shop.catalogue)
    async with worker_of(counter.shop) as worker:
        await eventually(lambda: asks_for_tasks(counter))
        worker.send(signal.SIGSTOP)
        ran = await run_process("reconcile")
    assert (ran.code, "no worker began the reconciliation within 15 s" in ran.err) == (3, True)
    assert "one was handed it and did not answer" in ran.err
    described = await counter.shop.client.get_workflow_handle(RECONCILE_ID).describe()
    assert described.status is WorkflowExecutionStatus.TERMINATED


async def asks_for_tasks(counter: Counter) -> bool:
    """Whether a worker waits at the server for workflow tasks."""
    request = DescribeTaskQueueRequest(
        namespace=counter.shop.client.namespace,
        task_queue=TaskQueue(name=counter.shop.task_queue),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    )
    return bool((await counter.shop.client.workflow_service.describe_task_queue(request)).pollers)


async def test_no_temporal_is_3(counter: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it was looked for, and what to do."""
    monkeypatch.setenv("TEMPORAL_ADDRESS", NOWHERE)
    ran = await counter("reconcile")
    assert (ran.code, NOWHERE in ran.err) == (3, True)


@pytest.mark.parametrize("since", ["7", "P1M", "PT0S", "-P1D"])
async def test_a_span_that_is_none_is_2(counter: Counter, since: str) -> None:
    """Before anything is started."""
    ran = await counter("reconcile", "--since", since)
    assert (ran.code, "--since must be" in ran.err) == (2, True)


async def test_what_a_terminated_order_left_is_found_and_then_taken_back_by_an_operator(counter: Counter) -> None:
    """T53: from the termination to the empty queue; the reservation is released once, and nobody asks again."""
    async with counter.shop.worker():
        order = await counter.shop.start()
        await order.until(Stage.AWAITING_APPROVAL)
        await order.handle.terminate("a test")
        assert (await counter("reconcile", "--json")).json["counts"]["opened"] == 1
        assert (await counter("review", "retry", order.id, "--as", "carol")).code == 0
        assert counter.shop.world.reserved(order.id) == {}
        after = (await counter("reconcile", "--json")).json
        assert (after["changes"], after["findings"]) == (0, [])
        assert (await counter("review", "list", "--json")).json == []
    assert [line["outcome"] for line in order.lines() if line["operation"] == "release"] == ["done"]
