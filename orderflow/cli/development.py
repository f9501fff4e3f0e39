"""What `dev` runs: Temporal's dev server and a worker as children, each stopped by its own pid at the end."""

import asyncio
import os
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from filelock import FileLock, Timeout

from orderflow.cli.exits import ExitCode, NotReachable
from orderflow.domain.errors import InvalidInput
from orderflow.embedded import HOST, EmbeddedServer, find_temporal
from orderflow.settings import Settings, child_environment
from orderflow.stopping import stopped_by_signals

Say = Callable[[str], None]

DEFAULT_PORT: Final = 7233
_LONGEST_LINE: Final = 1024 * 1024


async def run_development(settings: Settings, ports: tuple[int, int], speaker: Callable[[str], Say]) -> ExitCode:
    """Run until SIGTERM, SIGINT or SIGHUP.

    `ports` are Temporal's and its UI's; `speaker` gives each part a voice by its name.

    Raises:
        InvalidInput: if a port is taken, or another `dev`, or the server of one that was killed, has the same state.
        ServerUnreachable: if the server does not come up.
        NotReachable: if the worker ended by itself.
    """
    say, stopping = speaker("dev"), asyncio.Event()
    with stopped_by_signals(stopping), _alone(settings):
        for port in ports:
            _require_free(port)
        server = EmbeddedServer(
            binary=None if sys.platform == "win32" else find_temporal(settings.temporal_binary),
            port=ports[0],
            ui_port=ports[1],
            database=settings.state_dir / "temporal.db",
            log=settings.state_dir / "temporal.log",
        )
        say("starting Temporal")
        async with server, _recorded(settings, server), _worker(settings, server, speaker("worker")) as worker:
            for line in _welcome(settings, server.address, ports):
                say(line)
            await _first(stopping.wait(), worker.wait())
            if not stopping.is_set():
                raise NotReachable(f"the worker ended by itself with {worker.returncode}; its last lines say why")
            say("stopping")
    say("stopped")
    return ExitCode.DONE


def _welcome(settings: Settings, address: str, ports: tuple[int, int]) -> Iterator[str]:
    port, ui_port = ports
    yield f"Temporal at {address}, its UI at http://{HOST}:{ui_port}; state in {settings.state_dir}"
    if port != DEFAULT_PORT:
        yield f"in other terminals: export TEMPORAL_ADDRESS={address}"
    yield "try: orderflow submit examples/order.json --direct && orderflow list; Ctrl+C stops everything"


@contextmanager
def _alone(settings: Settings) -> Iterator[None]:
    """Hold the state for this `dev` alone: two servers over one database would damage it."""
    try:
        settings.state_dir.mkdir(parents=True, exist_ok=True)
        with FileLock(settings.state_dir / "dev.lock", timeout=0):
            _refuse_orphan(settings)
            yield
    except Timeout:
        raise InvalidInput(f"another `orderflow dev` runs over {settings.state_dir}; stop it first") from None
    except OSError as error:
        message = f"ORDERFLOW_STATE_DIR: {settings.state_dir} cannot be written ({error.strerror})"
        raise InvalidInput(f"{message}; name a folder of yours") from None


def _refuse_orphan(settings: Settings) -> None:
    """A `dev` that was killed (SIGKILL) leaves a server that still has the database open."""
    try:
        pid, port = map(int, _record(settings).read_text(encoding="ascii").split())
    except (FileNotFoundError, ValueError):  # none, or cut short by a crash of the machine
        return
    if _lives(pid) and not _is_free(port):  # a pid alone may be another process's by now
        raise InvalidInput(
            f"a killed `orderflow dev` left its Temporal server (pid {pid}, port {port}) running over"
            f" {settings.state_dir}; stop it first: kill {pid}"
        )


def _record(settings: Settings) -> Path:
    return settings.state_dir / "temporal.pid"


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        return True
    return True


@asynccontextmanager
async def _recorded(settings: Settings, server: EmbeddedServer) -> AsyncIterator[None]:
    """Leave a note of the server's pid and port for as long as it runs; the SDK's own server dies with us."""
    if server.pid is None:
        yield
        return
    port = server.address.rpartition(":")[2]
    _record(settings).write_text(f"{server.pid} {port}\n", encoding="ascii")
    try:
        yield
    finally:
        _record(settings).unlink(missing_ok=True)


def _is_free(port: int) -> bool:
    try:
        _require_free(port)
    except InvalidInput:
        return False
    return True


def _require_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            message = f"port {port} cannot be listened on ({error.strerror})"
            raise InvalidInput(f"{message}; stop what is there, or choose others with --port and --ui-port") from None


@asynccontextmanager
async def _worker(settings: Settings, server: EmbeddedServer, say: Say) -> AsyncIterator[Process]:
    if settings.log_format == "auto":  # the worker writes into a pipe, but a person reads it
        settings = settings.model_copy(update={"log_format": "console"})
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "orderflow.worker"),
        env=child_environment(settings, temporal_address=server.address),
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=STDOUT,
        limit=_LONGEST_LINE,
        start_new_session=True,  # Ctrl+C is for us: the worker drains when we tell it to
    )
    lines = asyncio.create_task(_pass_on(worker, say))
    try:
        yield worker
    finally:
        await _stop(worker, settings.graceful_shutdown)
        await lines


async def _pass_on(worker: Process, say: Say) -> None:
    while worker.stdout is not None and (line := await worker.stdout.readline()):
        say(line.decode("utf-8", "replace"))


async def _stop(worker: Process, graceful_shutdown: int) -> None:
    with suppress(ProcessLookupError):
        worker.terminate()
    try:
        async with asyncio.timeout(graceful_shutdown + 10):
            await worker.wait()
    except TimeoutError:
        worker.kill()
        await worker.wait()


async def _first(*waits: Coroutine[Any, Any, Any]) -> None:
    """Wait until one of them is through."""
    tasks = [asyncio.create_task(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
