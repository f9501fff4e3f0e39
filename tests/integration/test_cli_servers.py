"""`dev`, `worker`, `ingress` and `simulator` as real processes: they come up, do their work, and end clean."""

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
from tests.support.observing import eventually
from tests.support.servers import DevServer

PATIENCE = 60.0
PROVIDERS = "--simulator-port"


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


@dataclass(frozen=True)
class Place:
    """Free ports for one `dev`, by their flags."""

    ports: dict[str, int] = field(
        default_factory=lambda: {flag: free_port() for flag in ("--port", "--ui-port", "--ingress-port", PROVIDERS)}
    )

    @property
    def flags(self) -> list[object]:
        """The arguments of `dev`."""
        return [word for pair in self.ports.items() for word in pair]

    @property
    def environment(self) -> dict[str, str]:
        """What other commands need to find it."""
        return {
            "TEMPORAL_ADDRESS": f"127.0.0.1:{self.ports['--port']}",
            "ORDERFLOW_INGRESS_URL": self.url("--ingress-port"),
        }

    def url(self, flag: str) -> str:
        """Where the port of a flag is reached."""
        return f"http://127.0.0.1:{self.ports[flag]}"

    def with_taken(self, flag: str, port: int) -> "Place":
        """The same with another port for one flag."""
        return Place(self.ports | {flag: port})


def children_of(dev: Running) -> dict[str, psutil.Process]:
    """The processes that a `dev` runs, by name."""
    names = {"start-dev": "temporal", "orderflow.worker": "worker", "orderflow.ingress": "ingress"}
    found = {}
    for child in psutil.Process(dev.process.pid).children():
        words = child.cmdline()
        found[next((name for word, name in names.items() if word in words), "simulator")] = child
    return found


async def test_dev_runs_everything_and_its_state_survives() -> None:
    """Issue: Temporal with its UI, door, worker and simulator in one terminal; stopped clean, started again, all there.

    What the worker's providers do shows in the log that the simulator serves: they are one world. The door closes
    before the worker drains.
    """
    place = Place()
    here = place.environment
    async with running("dev", *place.flags) as dev:
        await dev.says("try: orderflow submit")
        assert sum("ready; Ctrl+C" in line for line in dev.lines) == 1
        assert sorted(children_of(dev)) == ["ingress", "simulator", "temporal", "worker"]
        assert (await run_process("submit", "event.json", "--direct", environment=here)).code == 0
        assert (await run_process("doctor", environment=here)).code == 0
        async with httpx2.AsyncClient() as http:
            assert (await http.get(place.url("--ui-port"))).status_code == 200
            assert (await http.get(place.url("--ingress-port") + "/readyz")).status_code == 200
            assert [line["operation"] for line in await acts_seen(http, place.url(PROVIDERS))] == ["check", "reserve"]
        children = psutil.Process(dev.process.pid).children(recursive=True)
        assert await dev.stop(signal.SIGINT) == 0
        assert not any(child.is_running() for child in children)
        assert all(map(is_free, place.ports.values()))
        assert in_this_order(dev.lines, "ingress ", "door closed", "worker ", "worker draining")
    async with running("dev", *place.flags) as dev:
        await dev.says("try: orderflow submit")
        (order,) = (await run_process("list", "--json", environment=here)).json
        shown = await run_process("show", order["order"], environment=here)
        assert (shown.code, "awaiting_approval" in shown.out) == (0, True)
        approved = await run_process("approve", order["order"], "--as", "alice", environment=here)
        assert approved.code == 0
        assert await dev.stop(signal.SIGTERM) == 0


async def acts_seen(http: httpx2.AsyncClient, simulator: str) -> list[dict[str, Any]]:
    """What the providers did, once the two steps before the approval are done; in the order of their names."""

    async def look() -> list[dict[str, Any]]:
        acts = [line for line in (await http.get(f"{simulator}/log")).json() if line["kind"] == "act"]
        return sorted(acts, key=lambda act: act["operation"]) if len(acts) == 2 else []

    return await eventually(look, PATIENCE)


def in_this_order(lines: list[str], name: str, words: str, later_name: str, later_words: str) -> bool:
    """Whether one part said its words before another part said its own."""
    said = [at for at, line in enumerate(lines) if line.startswith(name) and words in line]
    later = [at for at, line in enumerate(lines) if line.startswith(later_name) and later_words in line]
    return len(said) == len(later) == 1 and said < later


async def test_dev_never_shares_its_state_or_a_port() -> None:
    """Exit code 2, in a line that says what to do; the one that runs is not disturbed, and nothing else was started."""
    place = Place()
    async with running("dev", *place.flags) as dev:
        await dev.says("try: orderflow submit")
        second = await run_process("dev", *Place().flags)
        assert (second.code, "another `orderflow dev`" in second.err) == (2, True)
        elsewhere = {"ORDERFLOW_STATE_DIR": "other"}
        for flag, port in place.ports.items():
            taken = await run_process("dev", *Place().with_taken(flag, port).flags, environment=elsewhere)
            assert (taken.code, taken.out) == (2, "")
            assert taken.err.endswith(f"or choose another with {flag}\n")
        assert await dev.stop(signal.SIGTERM) == 0


async def test_dev_refuses_one_port_for_two_servers() -> None:
    """Nothing was started: the line names both flags."""
    place = Place()
    ran = await run_process("dev", *place.with_taken(PROVIDERS, place.ports["--ingress-port"]).flags)
    assert (ran.code, ran.out) == (2, "")
    assert "--ingress-port and --simulator-port are both" in ran.err


async def test_dev_with_providers_elsewhere_runs_no_simulator() -> None:
    """Nor does it need a port for one."""
    place = Place()
    providers = {"ORDERFLOW_PROVIDERS": "http", "ORDERFLOW_PROVIDERS_URL": "http://127.0.0.1:9"}
    with socket.create_server(("127.0.0.1", place.ports[PROVIDERS])):
        async with running("dev", *place.flags, **providers) as dev:
            await dev.says("try: orderflow submit")
            assert sorted(children_of(dev)) == ["ingress", "temporal", "worker"]
            assert await dev.stop(signal.SIGTERM) == 0


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL and SIGHUP are POSIX's")
async def test_dev_refuses_the_state_that_a_killed_one_still_serves() -> None:
    """Two servers over one database would damage it; the line says which processes to stop, and then all is well."""
    async with running("dev", *Place().flags) as dev:
        await dev.says("try: orderflow submit")
        children = children_of(dev)
        dev.process.kill()
        await dev.process.wait()
    try:
        second = await run_process("dev", *Place().flags)
        pids = [str(children[name].pid) for name in ("temporal", "simulator", "worker", "ingress")]
        assert (second.code, len(second.err.splitlines())) == (2, 1)
        assert second.err.endswith(f": kill {' '.join(pids)}\n")
    finally:
        for child in children.values():
            child.kill()
        psutil.wait_procs(children.values(), timeout=PATIENCE)
    async with running("dev", *Place().flags) as dev:
        await dev.says("try: orderflow submit")
        assert await dev.stop(signal.SIGHUP) == 0  # its terminal is closed
    assert "dev.pids" not in os.listdir(".orderflow")


@pytest.mark.parametrize("name", ["worker", "ingress", "simulator"])
async def test_dev_says_so_when_one_of_its_children_dies(name: str) -> None:
    """It does not go on as if all were well, says which, and leaves nothing behind."""
    place = Place()
    async with running("dev", *place.flags, "--json") as dev:
        greeting = json.loads(await dev.says("try: orderflow submit"))
        assert greeting["from"] == "dev"
        children = children_of(dev)
        children[name].kill()
        await dev.says(f"the {name} ended by itself")
        async with asyncio.timeout(PATIENCE):
            assert await dev.process.wait() == 3
        assert not any(child.is_running() for child in children.values())


async def test_dev_shows_why_a_child_could_not_start() -> None:
    """The child's own line says it, under its name; what had come up is stopped, and nothing was said to be ready."""
    async with running("dev", *Place().flags, ORDERFLOW_APPROVERS_FILE="missing.json") as dev:
        assert (await dev.says("missing.json")).startswith("worker ")
        await dev.says("the worker ended by itself with 2")
        async with asyncio.timeout(PATIENCE):
            assert await dev.process.wait() == 3
        assert not any("try: orderflow submit" in line for line in dev.lines)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_door_stops_clean(number: signal.Signals, dev_server: DevServer) -> None:
    """Exit code 0, and it said where it was."""
    async with running("ingress", "--port", 0, "--json", TEMPORAL_ADDRESS=dev_server.address) as door:
        line = await door.says("door open")
        url = next(word for word in line.replace(",", " ").replace('"', " ").split() if word.startswith("http://"))
        async with httpx2.AsyncClient() as http:
            assert (await http.get(f"{url}/livez")).status_code == 200
        assert await door.stop(number) == 0


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


@pytest.mark.parametrize("verb", ["simulator", "ingress"])
async def test_a_port_that_is_taken_is_told(verb: str, dev_server: DevServer) -> None:
    """Exit code 2, and what to do."""
    here = {"TEMPORAL_ADDRESS": dev_server.address}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ran = await run_process(verb, "--port", taken.getsockname()[1], environment=here)
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
