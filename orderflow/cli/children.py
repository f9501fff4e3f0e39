"""A process that `dev` runs beside others in one terminal: its lines under its name, stopped by its own pid."""

import sys
from asyncio import Event, create_subprocess_exec, create_task, timeout
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

_LONGEST_LINE: Final = 1024 * 1024


@dataclass(frozen=True)
class Program:
    """What to run: `python -m` with `arguments`.

    It gets `grace` seconds to stop; `port` is where it listens. It is ready at once, or once a line holds `ready`.
    """

    name: str
    arguments: Sequence[str]
    grace: float
    port: int | None = None
    ready: str = ""


@dataclass(frozen=True)
class Child:
    """A program that runs."""

    program: Program
    process: Process
    ready: Event = field(default_factory=Event)

    @property
    def name(self) -> str:
        """What a person knows it by."""
        return self.program.name


@asynccontextmanager
async def running(program: Program, environment: Mapping[str, str], say: Callable[[str], None]) -> AsyncIterator[Child]:
    """Run a program for as long as the context lasts, and tell each of its lines; at the end it has time to drain."""
    process = await create_subprocess_exec(
        *(sys.executable, "-m", *program.arguments),
        env=environment,
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=STDOUT,
        limit=_LONGEST_LINE,
        start_new_session=True,  # Ctrl+C is for us: a child stops when we tell it to
    )
    child = Child(program, process)
    if not program.ready:
        child.ready.set()
    lines = create_task(_pass_on(child, say))
    try:
        yield child
    finally:
        await _stop(process, program.grace)
        await lines


async def _pass_on(child: Child, say: Callable[[str], None]) -> None:
    lines = child.process.stdout
    while lines is not None and (line := await lines.readline()):
        said = line.decode("utf-8", "replace")
        say(said.removeprefix(f"{child.name} | "))  # the simulator puts its name before its lines by itself
        if child.program.ready and child.program.ready in said:
            child.ready.set()


async def _stop(process: Process, grace: float) -> None:
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        async with timeout(grace):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
