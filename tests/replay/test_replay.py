"""Histories of the real server replay on today's code: determinism as a test (T28, T29)."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest
from temporalio import workflow
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from orderflow import dispatch
from orderflow.announcing import AnnounceWorkflow
from orderflow.client import data_converter
from orderflow.domain.announcements import is_announcement
from orderflow.workflows import OrderWorkflow
from tests.replay.endings import ENDINGS
from tests.replay.record import HISTORIES, recorded


def history(name: str) -> WorkflowHistory:
    """One history of the corpus."""
    text = (HISTORIES / f"{name}.json").read_text()
    order = json.loads(text)["workflowId"]
    return WorkflowHistory.from_json(order, text)


async def replay(name: str) -> None:
    """Replay one history; raises when today's code would have acted otherwise."""
    told = history(name)
    replayed = AnnounceWorkflow if is_announcement(told.workflow_id) else OrderWorkflow
    replayer = Replayer(workflows=[replayed], data_converter=data_converter())
    async with asyncio.timeout(30):
        await replayer.replay_workflow(told)


def test_the_corpus_has_one_history_for_every_ending() -> None:
    """Deleting a history, or adding an ending without one, is noticed (T29)."""
    assert {path.stem for path in recorded()} == set(ENDINGS)


@pytest.mark.parametrize("name", ENDINGS)
async def test_a_recorded_history_replays(name: str) -> None:
    """What the server recorded is what today's code would do."""
    await replay(name)


@pytest.mark.parametrize("name", ENDINGS)
async def test_a_timer_more_in_the_workflow_breaks_the_replay(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The corpus can see drift: an unguarded change of the commands turns it red (T28, T29)."""

    def later(begin: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
        async def begin_later(*arguments: object) -> object:
            await workflow.sleep(1)
            return await begin(*arguments)

        return begin_later

    for first in ("admit", "tell"):
        monkeypatch.setattr(dispatch, first, later(getattr(dispatch, first)))
    with pytest.raises(Exception, match=r"[Nn]ondeterminism"):
        await replay(name)


async def test_only_the_workflow_module_is_imported_anew_for_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sandbox re-imports what is not passed through, for each run: one crowded module cost 19 ms an order."""
    loaded: list[str] = []
    load = SourceFileLoader.exec_module

    def exec_module(loader: SourceFileLoader, module: ModuleType) -> None:
        loaded.append(module.__name__)
        load(loader, module)

    monkeypatch.setattr(SourceFileLoader, "exec_module", exec_module)
    await replay("completed")
    assert {name for name in loaded if name.startswith("orderflow")} == {"orderflow", "orderflow.workflows"}


@pytest.mark.parametrize("seed", ["0", "1", "2", "random"])
def test_replay_does_not_depend_on_the_hash_seed(seed: str) -> None:
    """No order of a set or a hash decides what an order does next (T32)."""
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.replay.test_replay"]
    ran = subprocess.run(
        command, cwd=root, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, timeout=100
    )
    assert ran.returncode == 0, ran.stderr


async def _replay_all() -> None:
    for name in ENDINGS:
        await replay(name)


if __name__ == "__main__":
    asyncio.run(_replay_all())
    os._exit(0)  # an interpreter that ends beside the SDK's threads may abort instead (134, 139)
