"""`orderflow dev`, `worker` and `simulator` as real processes: they come up, do their work, and end clean."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from orderflow.embedded import free_port
from tests.order_events import EXAMPLE
from tests.support.command_line import PROGRAM, run_process, unconfigure
from tests.support.servers import DevServer

PATIENCE = 60.0


pytestmark = pytest.mark.timeout(120)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to run in."""
    unconfigure(tmp_path, monkeypatch)
    (tmp_path / "event.json").write_bytes(EXAMPLE)
    return tmp_path


@dataclass
class Running:
    """A command that runs, and what it has said so far, both streams in one."""

    process: asyncio.subprocess.Process
    lines: list[str] = field(default_factory=list)

    async def says(self, words: str) -> str:
        """Read on until a line holds `words`; gives that line."""
        async with asyncio.timeout(PATIENCE):
            while self.process.stdout is not None and (raw := await self.process.stdout.readline()):
                self.lines.append(raw.decode())
                if words in self.lines[-1]:
                    return self.lines[-1]
        raise AssertionError(f"never said {words!r}: {self.lines}")

    async def stop(self, number: signal.Signals) -> int:
        """Send a signal, read what is left, and give the exit code."""
        self.process.send_signal(number)
        async with asyncio.timeout(PATIENCE):
            out, _ = await self.process.communicate()
        self.lines += out.decode().splitlines()
        assert "Traceback" not in "".join(self.lines)
        return self.process.returncode if self.process.returncode is not None else -1


@asynccontextmanager
async def running(*arguments: object, **environment: str) -> AsyncIterator[Running]:
    """A command as a process of its own; it is gone afterwards, with its children, whatever the test does."""
    process = await asyncio.create_subprocess_exec(
        *PROGRAM,
        *map(str, arguments),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        yield Running(process)
    finally:
        if process.returncode is None:
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
            process.kill()
            await process.wait()


def is_free(port: int) -> bool:
    """Whether nobody listens on a port of this machine."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


async def test_dev_runs_everything_and_its_state_survives() -> None:
    """Issue: Temporal with its UI, worker and simulator in one terminal; stopped clean, started again, nothing lost."""
    port, ui_port = free_port(), free_port()
    ports = ("--port", port, "--ui-port", ui_port)
    here = {"TEMPORAL_ADDRESS": f"127.0.0.1:{port}"}
    async with running("dev", *ports) as dev:
        await dev.says("worker ready")
        assert (await run_process("submit", "event.json", "--direct", environment=here)).code == 0
        assert (await run_process("doctor", environment=here)).code == 0
        async with httpx2.AsyncClient() as http:
            assert (await http.get(f"http://127.0.0.1:{ui_port}/")).status_code == 200
        children = psutil.Process(dev.process.pid).children(recursive=True)
        assert len(children) == 2
        assert await dev.stop(signal.SIGINT) == 0
        assert not any(child.is_running() for child in children)
        assert is_free(port)
        assert is_free(ui_port)
        assert any(line.startswith("worker ") and "worker draining" in line for line in dev.lines)
    async with running("dev", *ports) as dev:
        await dev.says("worker ready")
        (order,) = (await run_process("list", "--json", environment=here)).json
        shown = await run_process("show", order["order"], environment=here)
        assert (shown.code, "awaiting_approval" in shown.out) == (0, True)
        approved = await run_process("approve", order["order"], "--as", "alice", environment=here)
        assert approved.code == 0
        assert await dev.stop(signal.SIGTERM) == 0


async def test_dev_never_shares_its_state_or_a_port() -> None:
    """Exit code 2, in a line that says what to do; the one that runs is not disturbed."""
    port, ui_port = free_port(), free_port()
    async with running("dev", "--port", port, "--ui-port", ui_port) as dev:
        await dev.says("worker ready")
        second = await run_process("dev", "--port", free_port(), "--ui-port", free_port())
        assert (second.code, "another `orderflow dev`" in second.err) == (2, True)
        elsewhere = {"ORDERFLOW_STATE_DIR": "other"}
        for ports in ((port, free_port()), (free_port(), ui_port)):
            taken = await run_process("dev", "--port", ports[0], "--ui-port", ports[1], environment=elsewhere)
            assert (taken.code, "--ui-port" in taken.err) == (2, True)
        assert await dev.stop(signal.SIGTERM) == 0


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL and SIGHUP are POSIX's")
async def test_dev_refuses_the_state_that_a_killed_one_still_serves() -> None:
    """Two servers over one database would damage it; the line says which process to stop, and then all is well."""
    async with running("dev", "--port", free_port(), "--ui-port", free_port()) as dev:
        await dev.says("worker ready")
        children = psutil.Process(dev.process.pid).children()
        dev.process.kill()
        await dev.process.wait()
    try:
        (server,) = [child for child in children if "start-dev" in child.cmdline()]
        second = await run_process("dev", "--port", free_port(), "--ui-port", free_port())
        assert (second.code, f"kill {server.pid}" in second.err, len(second.err.splitlines())) == (2, True, 1)
    finally:
        for child in children:
            child.kill()
        psutil.wait_procs(children, timeout=PATIENCE)
    async with running("dev", "--port", free_port(), "--ui-port", free_port()) as dev:
        await dev.says("worker ready")
        assert await dev.stop(signal.SIGHUP) == 0  # its terminal is closed
    assert "temporal.pid" not in os.listdir(".orderflow")


async def test_dev_says_so_when_its_worker_dies() -> None:
    """It does not go on as if all were well, and leaves no server behind."""
    port = free_port()
    async with running("dev", "--port", port, "--ui-port", free_port(), "--json") as dev:
        ready = json.loads(await dev.says("worker ready"))
        assert ready["from"] == "worker"
        (worker,) = [
            child for child in psutil.Process(dev.process.pid).children() if "orderflow.worker" in child.cmdline()
        ]
        worker.kill()
        await dev.says("the worker ended by itself")
        async with asyncio.timeout(PATIENCE):
            assert await dev.process.wait() == 3
        assert is_free(port)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_worker_stops_clean(number: signal.Signals, dev_server: DevServer) -> None:
    """Exit code 0: a supervisor does not take it for a crash."""
    settings = {"TEMPORAL_ADDRESS": dev_server.address, "ORDERFLOW_TASK_QUEUE": "stops-clean"}
    async with running("worker", **settings) as worker:
        await worker.says("worker ready")
        assert await worker.stop(number) == 0


async def test_a_worker_without_a_server_exits_with_3() -> None:
    """When it is told not to wait; one line says what to start."""
    ran = await run_process("worker", environment={"ORDERFLOW_WAIT_FOR_SERVER": "0"})
    assert ran.code == 3
    assert len(ran.err.splitlines()) == 1
    assert "temporal server start-dev" in ran.err


async def test_a_worker_without_keys_against_a_remote_server_exits_with_2(dev_server: DevServer) -> None:
    """A missing approvers' file is a refusal to start that says what to provide."""
    settings = {"TEMPORAL_ADDRESS": dev_server.address, "ORDERFLOW_APPROVERS_FILE": "missing.json"}
    ran = await run_process("worker", environment=settings)
    assert ran.code == 2
    assert "missing.json" in ran.err


async def test_the_simulator_serves_and_is_looked_at_over_http(folder: Path) -> None:
    """`log`, `fault` and `reset` go where the worker's providers are."""
    async with running("simulator", "--port", 0, ORDERFLOW_STATE_DIR="elsewhere") as simulator:
        url = (await simulator.says("ready at")).split("ready at ")[1].split(",")[0]
        there = {"ORDERFLOW_PROVIDERS": "http", "ORDERFLOW_PROVIDERS_URL": url}
        fault = ("simulator", "fault", "--operation", "charge", "--kind", "decline")
        assert (await run_process(*fault, environment=there)).code == 0
        (line,) = (await run_process("simulator", "log", "--json", environment=there)).json
        assert line["injected"]["kind"] == "decline"
        assert (await run_process("simulator", "reset", environment=there)).code == 0
        assert [line["kind"] for line in await log_of(there)] == ["reset"]
        assert await simulator.stop(signal.SIGTERM) == 0
    gone = await run_process("simulator", "log", environment=there)
    assert (gone.code, url in gone.err) == (3, True)
    assert ".orderflow" not in os.listdir(folder)


async def log_of(environment: dict[str, str]) -> list[dict[str, Any]]:
    """The log of a simulator, as the command line gives it."""
    lines: list[dict[str, Any]] = (await run_process("simulator", "log", "--json", environment=environment)).json
    return lines


async def test_a_port_that_is_taken_is_told() -> None:
    """Exit code 2, and what to do."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ran = await run_process("simulator", "--port", taken.getsockname()[1])
    assert ran.code == 2
    assert "another port" in ran.err


async def test_what_is_no_simulator_is_told_apart_from_one_that_is_away() -> None:
    """Some other server listens at that address."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        ran = await run_process("simulator", "log", environment={"ORDERFLOW_PROVIDERS_URL": url})
    assert ran.code == 3
    assert url in ran.err
