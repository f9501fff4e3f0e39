"""`orderflow demo`: the three chains of evidence, from an empty folder, and nothing left behind."""

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil
import pytest

from tests.support.command_line import PROGRAM, Ran
from tests.support.processes import bare_environment, run

PATIENCE: Final = 110.0

TWICE: Final = """
from orderflow import demo
done = demo.Stand.done
demo.Stand.done = lambda *asked: done(*asked) * 2
"""
"""Makes each act stand twice in the log that the demo reads."""


@pytest.fixture(scope="module")
async def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Ran, Path]:
    """One run of the demo with nothing configured, and the folder that it had for itself."""
    folder = tmp_path_factory.mktemp("demo")
    for name in ("here", "tmp", "home"):
        (folder / name).mkdir()
    # at home, where Temporal's own program notes that it was used
    environment = bare_environment(TMPDIR=str(folder / "tmp"), HOME=str(folder / "home"))
    ran = await run(*PROGRAM, "demo", "--json", folder=folder / "here", environment=environment, patience=PATIENCE)
    return ran, folder


def test_the_demo_proves_its_three_chains(demo: tuple[Ran, Path]) -> None:
    """Issue 2: a killed worker reserves once, an approval counts for its charge alone, a failure is taken back."""
    ran, _ = demo
    assert ran.code == 0, ran.err
    chains = ran.json
    assert [chain["holds"] for chain in chains] == [True, True, True]
    killed, approved, taken_back = (" | ".join(chain["evidence"]) for chain in chains)
    assert "simulator log: 1 reservation" in killed
    assert [reason in approved for reason in ("bad_signature", "expired", "wrong_order")] == [True] * 3
    assert re.search(r"simulator log: 1 charge, of \[900\].*1 message", approved)
    assert "refund before release" in taken_back
    assert "failed_compensated" in taken_back


def test_the_demo_leaves_nothing_behind(demo: tuple[Ran, Path]) -> None:
    """Issue 2: no process, no temporary folder, no state where it was started."""
    _, folder = demo
    assert [path for name in ("here", "tmp") for path in (folder / name).iterdir()] == []
    assert [process.cmdline() for process in _of_the_demo(folder)] == []


async def test_the_demo_can_fail(tmp_path: Path) -> None:
    """Issue 2: exit code 0 only when all chains hold; what is done twice in the simulator's log breaks each of them."""
    python, option, program = PROGRAM
    ran = await run(python, option, TWICE + program, "demo", "--json", folder=tmp_path, patience=PATIENCE)
    assert ran.code == 1
    assert [chain["holds"] for chain in ran.json] == [False, False, False]
    assert "NOT SO: simulator log: 2 reservation" in ran.json[0]["evidence"]


def _of_the_demo(folder: Path) -> Iterator[psutil.Process]:
    """Processes that inherited the demo's own environment."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("TMPDIR") == str(folder / "tmp"):
                yield process
