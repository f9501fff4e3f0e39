"""A newcomer's walk, as README and issue print it: Temporal's own CLI, a plain dev server, one worker, a shell."""

import os
import re
import shlex
import shutil
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from orderflow.embedded import find_program, free_port
from tests.architecture.markdown import README, blocks
from tests.architecture.product import ROOT
from tests.support.command_line import PROGRAM, Ran
from tests.support.observing import eventually
from tests.support.processes import Child, bare_environment, run

SERVER: Final = "temporal server start-dev"
WORKER: Final = "python -m orderflow.worker"
ACTIVATE: Final = ". .venv/bin/activate"

ORDER: Final = "order-2ef951e1b56934c780c034adc1f2cbdd"
"""The order of `examples/order.json`."""


@dataclass
class Desk:
    """A folder with the examples, and a shell in it with everything on PATH; it keeps its variables."""

    folder: Path
    environment: dict[str, str]
    variables: list[str] = field(default_factory=list)

    async def type(self, command: str) -> Ran:
        """Run a command line as it stands; it must succeed."""
        if re.match(r"[A-Z]+=", command):
            self.variables.append(command)
        script = "; ".join([*self.variables, command])
        ran = await run("sh", "-c", script, folder=self.folder, environment=self.environment)
        assert ran.code == 0, f"$ {command}\n{ran.out}{ran.err}"
        return ran

    def leave_running(self, command: str, *more: str) -> Child:
        """Run a command in a terminal of its own."""
        words = (*shlex.split(command), *more)
        return Child(words, self.folder, self.environment, name=words[0])


@pytest.fixture(scope="module")
async def desk(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Desk]:
    """A desk beside a plain dev server and a worker with nothing configured, but for a port that is free."""
    folder, port = tmp_path_factory.mktemp("desk"), free_port()
    shutil.copytree(ROOT / "examples", folder / "examples")
    environment = bare_environment(TEMPORAL_ADDRESS=f"127.0.0.1:{port}", HOME=str(folder))
    environment["PATH"] = os.pathsep.join([str(_programs(folder / "bin")), environment["PATH"]])
    desk = Desk(folder, environment)
    async with desk.leave_running(SERVER, "--headless", "--port", str(port)), desk.leave_running(WORKER) as worker:
        await worker.until_said("worker ready")
        yield desk


def _programs(folder: Path) -> Path:
    """A folder with the command `orderflow`, for where nothing is installed; an installed one counts more."""
    folder.mkdir()
    if find_program("orderflow") is None:
        program = folder / "orderflow"
        program.write_text(f'#!/bin/sh\nexec {shlex.join(PROGRAM)} "$@"\n')
        program.chmod(0o755)
    return folder


@dataclass
class Step:
    """A command of the README, and the lines that it says will be printed."""

    command: str
    shown: list[str] = field(default_factory=list)

    def missing(self, ran: Ran) -> list[str]:
        """The lines that were not printed; one with `…` shows some members of a value, in order."""
        printed = [_plain(line) for line in ran.out.splitlines()]
        return [line for line in self.shown if not any(re.fullmatch(_pattern(line), each) for each in printed)]


def _plain(line: str) -> str:
    """A line without its spacing and its number: acts are numbered as they come."""
    return re.sub(r"^\d+ ", "", " ".join(line.split()))


def _pattern(line: str) -> str:
    members = re.split(r"[…,{}]+", _plain(line)) if "…" in line else [_plain(line)]
    return ".*".join(map(re.escape, members))


def walk() -> Iterator[Step]:
    """The steps of the README's walk, in order."""
    (console,) = (block for block in blocks(README) if block.language == "console" and SERVER in block.text)
    steps: list[Step] = []
    for line in console.text.splitlines():
        if line.startswith("$ "):
            steps.append(Step(re.sub(r"\s+# .*", "", line.removeprefix("$ "))))
        else:
            steps[-1].shown.append(line)
    return iter(steps)


async def test_the_walk_of_the_readme_runs_as_it_is_printed(desk: Desk) -> None:
    """Issue 2: every command as it stands, every line that it shows; the printed command completes the order."""
    steps = list(walk())
    assert [step.command for step in steps[:3]] == [ACTIVATE, SERVER, WORKER]
    assert any(" approve " in step.command for step in steps)
    for step in steps[3:]:
        await _take(desk, step)
    described = await desk.type(f"temporal workflow describe --workflow-id {ORDER}")
    assert re.search(r"Status +COMPLETED", described.out)
    log = (await desk.type(f"orderflow simulator log --order {ORDER} --json")).json
    assert sorted(line["operation"] for line in log) == ["charge", "check", "notify", "reserve"]


async def _take(desk: Desk, step: Step) -> None:
    """Take a step until it shows what it should; only a query may be tried again."""
    ran = await desk.type(step.command)

    async def look() -> bool:
        return not step.missing(await desk.type(step.command))

    if step.missing(ran) and " query " in step.command:
        await eventually(look)
    else:
        assert not step.missing(ran), f"$ {step.command}\n{ran.out}"


async def test_the_printed_payload_completes_an_order_through_the_update_too(desk: Desk) -> None:
    """Issue 2: the other door, with Temporal's own command; it answers at once."""
    event = (desk.folder / "examples" / "order.json").read_text().replace("order-placed-1001", "order-placed-1002")
    (desk.folder / "event.json").write_text(event)
    started = await desk.type("orderflow submit event.json --direct --print | sh")
    (order,) = re.findall(r"WorkflowId +(order-[0-9a-f]{32})", started.out)
    await _take(desk, Step(f"temporal workflow query --workflow-id {order} --type view", ['…"awaiting_approval"…']))
    printed = await desk.type(f"orderflow approve {order} --as alice --print 2>&1 >/dev/null")
    payload = shlex.quote(printed.out.partition("payload: ")[2].strip())
    decided = await desk.type(f"temporal workflow update execute --workflow-id {order} --name decide --input {payload}")
    assert "accepted:true" in decided.out
    ended = await desk.type(f"temporal workflow result --workflow-id {order}")
    assert re.search(r"Status +COMPLETED", ended.out)


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("orderflow validate", r"order 1\.0\.0 sha256:[0-9a-f]{64}"),
        ("orderflow graph --format mermaid", r"(?s)\nflowchart .*charge"),
        ("orderflow submit examples/order.json --direct && orderflow list", ORDER),
        ("orderflow doctor", "worker"),
    ],
)
async def test_what_the_issue_shows_is_shown(desk: Desk, command: str, shown: str) -> None:
    """Issue 2, must show: on a fresh clone, with no other set-up."""
    assert re.search(shown, (await desk.type(command)).out)
