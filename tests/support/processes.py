"""Processes of the product as tests run them: a worker beside a server, and Temporal's own command line."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Self

from orderflow.client import address_of
from orderflow.embedded import HOST, free_port
from tests.support.command_line import KEPT, PROGRAM, Ran
from tests.support.observing import eventually
from tests.support.servers import temporal_binary
from tests.support.shop import Shop, packaged

PATIENCE: Final = 30.0

WORKER: Final = (sys.executable, "-m", "orderflow.worker")


def bare_environment(**variables: str) -> dict[str, str]:
    """The environment of somebody who has configured nothing but `variables`; `temporal` is on PATH."""
    ours = [name for name in os.environ if name.startswith(("ORDERFLOW_", "TEMPORAL_")) and name != KEPT]
    inherited = {name: value for name, value in os.environ.items() if name not in ours}
    programs = os.pathsep.join([str(Path(sys.executable).parent), str(temporal_binary().parent), os.environ["PATH"]])
    return {**inherited, "PATH": programs, "PYTHONPATH": os.pathsep.join(sys.path), **variables}


class Child:
    """`async with Child(...) as child`: a process of our own, killed if it outlives that; its output goes to a file."""

    def __init__(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str], name: str = "worker"
    ) -> None:
        self._command = command
        self._folder = folder
        self._environment = environment
        self._log = folder / f"{name}.log"
        self._process: Process | None = None

    async def __aenter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._log.open("wb") as output:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                cwd=self._folder,
                env=dict(self._environment),
                stdin=DEVNULL,
                stdout=output,
                stderr=STDOUT,
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop(signal.SIGKILL)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._running.pid

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended, be it stopped or not."""
        return self._running.returncode is None

    @property
    def said(self) -> str:
        """Everything it has printed so far."""
        return self._log.read_text()

    async def until_said(self, words: str, patience: float = PATIENCE) -> None:
        """Wait until it has printed `words`; fail at once when it ended without them."""

        async def look() -> bool:
            ended = not self.is_alive
            if words in self.said:
                return True
            if ended:
                raise AssertionError(f"it ended with {self._running.returncode} before it said {words!r}: {self.said}")
            return False

        await eventually(look, patience)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._running.send_signal(number)

    async def ended(self) -> int:
        """Wait for its end; gives the exit code."""
        async with asyncio.timeout(PATIENCE):
            return await self._running.wait()

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send it a signal unless it has ended, and wait for its end; gives the exit code."""
        if self.is_alive:
            self.send(number)
        return await self.ended()

    @property
    def _running(self) -> Process:
        if self._process is None:
            raise RuntimeError("it was not started")
        return self._process


async def run(
    *command: object,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    patience: float = PATIENCE,
) -> Ran:
    """Run a program to its end, which has to come within `patience` seconds; it reads nothing."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        cwd=folder,
        env=dict(environment or bare_environment()),
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
    )
    try:
        async with asyncio.timeout(patience):
            out, err = await process.communicate()
    except BaseException:
        process.kill()
        await process.wait()
        raise
    return Ran(process.returncode or 0, out.decode(), err.decode())


def worker_of(shop: Shop, name: str = "worker", command: Sequence[str] = WORKER, **settings: object) -> Child:
    """A real worker for the orders of `shop`: its books, its approvers, its task queue, the definitions it publishes.

    `settings` are more of them, by the names of `orderflow.settings`.
    """
    folder = shop.world.path.parent
    definitions = folder / "definitions"
    definitions.mkdir(exist_ok=True)
    if shop.definition.fingerprint != packaged(shop.catalogue).fingerprint:
        (definitions / "own.json").write_text(shop.definition.model_dump_json(exclude_unset=True))
    (folder / "approvers.json").write_bytes(shop.registry.as_jwks())
    configured = {
        "state_dir": folder,
        "task_queue": shop.task_queue,
        "approvers_file": folder / "approvers.json",
        "definitions_dir": definitions,
        **settings,
    }
    variables = {f"ORDERFLOW_{setting.upper()}": str(value) for setting, value in configured.items()}
    return Child(command, folder, bare_environment(TEMPORAL_ADDRESS=address_of(shop.client), **variables), name)


@asynccontextmanager
async def simulator_of(shop: Shop) -> AsyncIterator[str]:
    """The providers of `shop` as an HTTP server in a process of its own, over the same log; gives its address."""
    folder, port = shop.world.path.parent, free_port()
    environment = bare_environment(ORDERFLOW_STATE_DIR=str(folder))
    async with Child((*PROGRAM, "simulator", "--port", str(port)), folder, environment, name="simulator") as server:
        await server.until_said("ready at", shop.patience)
        yield f"http://{HOST}:{port}"


class TemporalCli:
    """`temporal workflow …` at one server, as a person would type it."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def workflow(self, *arguments: object) -> Ran:
        """Run `temporal workflow` with these arguments."""
        return await run(temporal_binary(), "workflow", *arguments, "--address", self._address)

    async def json(self, *arguments: object) -> Any:
        """Run `temporal workflow` with these arguments, which must succeed, and give what it prints, if anything."""
        ran = await self.workflow(*arguments, "--output", "json")
        if ran.code:
            raise AssertionError(f"temporal workflow {arguments}: {ran.err}")
        return ran.json if ran.out.strip() else None
