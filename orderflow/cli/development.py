"""What `dev` runs: Temporal's dev server, then simulator, worker and door as children; stopped the other way round."""

import asyncio
import sys
from asyncio import create_task
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final

import httpx2

from orderflow.cli.children import Child, Program, running
from orderflow.cli.development_state import Resident, alone, recorded, require_free
from orderflow.cli.exits import ExitCode, NotReachable
from orderflow.embedded import HOST, EmbeddedServer, find_temporal
from orderflow.settings import Settings, child_environment
from orderflow.stopping import stopped_by_signals

Say = Callable[[str], None]

READY_WITHIN: Final = 60.0
"""Seconds until all of it has to be ready."""

_LAST_RESORT: Final = 10.0
"""Seconds more than a child says it needs, after which it is killed."""

_PAUSE: Final = 0.1


@dataclass(frozen=True)
class Ports:
    """Where everything listens, on this machine alone."""

    temporal: int = 7233
    ui: int = 8233
    ingress: int = 8080
    simulator: int = 8090


async def run_development(settings: Settings, ports: Ports, speaker: Callable[[str], Say]) -> ExitCode:
    """Run until SIGTERM, SIGINT or SIGHUP; `speaker` gives each part a voice by its name.

    Raises:
        InvalidInput: if a port is taken, or another `dev`, or what is left of one that was killed, has the same state.
        ServerUnreachable: if Temporal does not come up.
        NotReachable: if the door does not become ready, or a child ended by itself.
    """
    say, stopping = speaker("dev"), asyncio.Event()
    with stopped_by_signals(stopping), alone(settings):
        require_free(_by_flag(settings, ports))
        async with AsyncExitStack() as started:
            say("starting Temporal")
            server = await started.enter_async_context(_temporal(settings, ports))
            environment = child_environment(_for_a_person(settings), temporal_address=server.address)
            children = [
                await started.enter_async_context(running(program, environment, speaker(program.name)))
                for program in _programs(settings, ports)
            ]
            started.enter_context(recorded(settings, _residents(server, ports, children)))
            welcome = list(_welcome(settings, server.address, ports))
            await _attend(children, stopping, _greet_when_ready(children, _door(ports), say, welcome))
            say("stopping")
    say("stopped")
    return ExitCode.DONE


def _by_flag(settings: Settings, ports: Ports) -> dict[str, int]:
    flags = {"--port": ports.temporal, "--ui-port": ports.ui, "--ingress-port": ports.ingress}
    return flags | ({"--simulator-port": ports.simulator} if settings.providers == "simulated" else {})


def _temporal(settings: Settings, ports: Ports) -> EmbeddedServer:
    return EmbeddedServer(
        binary=None if sys.platform == "win32" else find_temporal(settings.temporal_binary),
        port=ports.temporal,
        ui_port=ports.ui,
        database=settings.state_dir / "temporal.db",
        log=settings.state_dir / "temporal.log",
    )


def _programs(settings: Settings, ports: Ports) -> Iterator[Program]:
    """In the order of their start. They stop the other way round: first no new events, then no work under way."""
    if settings.providers == "simulated":  # over the log of the providers in the worker, so that both are one world
        yield _listening("simulator", ports.simulator, "orderflow.cli", "simulator")
    patience = settings.graceful_shutdown + _LAST_RESORT
    yield Program("worker", ("orderflow.worker",), grace=patience, ready="worker ready")
    yield _listening("ingress", ports.ingress, "orderflow.ingress")


def _listening(name: str, port: int, *arguments: str) -> Program:
    return Program(name, (*arguments, "--host", HOST, "--port", str(port)), grace=2 * _LAST_RESORT, port=port)


def _for_a_person(settings: Settings) -> Settings:
    """Children write into a pipe, but a person reads it."""
    return settings.model_copy(update={"log_format": "console"}) if settings.log_format == "auto" else settings


def _residents(server: EmbeddedServer, ports: Ports, children: Sequence[Child]) -> list[Resident]:
    """Who would be left behind if we were killed; the SDK's own server dies with us."""
    temporal = [Resident("temporal", server.pid, ports.temporal)] if server.pid is not None else []
    return temporal + [Resident(child.name, child.process.pid, child.program.port) for child in children]


def _welcome(settings: Settings, address: str, ports: Ports) -> Iterator[str]:
    yield f"Temporal at {address}, its UI at http://{HOST}:{ports.ui}; state in {settings.state_dir}"
    yield f"the door for events at {_door(ports)}" + (
        f", simulated providers at http://{HOST}:{ports.simulator}" if settings.providers == "simulated" else ""
    )
    usual = Ports()
    if ports.temporal != usual.temporal:
        yield f"in other terminals: export TEMPORAL_ADDRESS={address}"
    if ports.ingress != usual.ingress:
        yield f"in other terminals: export ORDERFLOW_INGRESS_URL={_door(ports)}"
    yield "ready; Ctrl+C stops everything"
    yield "try: orderflow submit examples/order.json && orderflow list"


def _door(ports: Ports) -> str:
    return f"http://{HOST}:{ports.ingress}"


async def _attend(children: Sequence[Child], stopping: asyncio.Event, greeting: Coroutine[Any, Any, None]) -> None:
    """Return when told to stop. Raises `NotReachable` for a child that ended by itself, and what `greeting` raises."""
    greeted, told = create_task(greeting), create_task(stopping.wait())
    ends = {create_task(child.process.wait()): child for child in children}
    try:
        done, _ = await asyncio.wait({greeted, told, *ends}, return_when=asyncio.FIRST_COMPLETED)
        if done == {greeted}:
            greeted.result()
            done, _ = await asyncio.wait({told, *ends}, return_when=asyncio.FIRST_COMPLETED)
        if not stopping.is_set():
            ended = next(child for end, child in ends.items() if end in done)
            raise NotReachable(
                f"the {ended.name} ended by itself with {ended.process.returncode}; its last lines say why"
            )
    finally:
        for task in (greeted, told, *ends):
            task.cancel()
        await asyncio.gather(greeted, told, *ends, return_exceptions=True)


async def _greet_when_ready(children: Sequence[Child], door: str, say: Say, welcome: Sequence[str]) -> None:
    try:
        async with asyncio.timeout(READY_WITHIN), httpx2.AsyncClient(base_url=door, trust_env=False) as client:
            for child in children:
                await child.ready.wait()
            while not await _is_ready(client):  # noqa: ASYNC110 - what is looked at is another process
                await asyncio.sleep(_PAUSE)
    except TimeoutError:
        late = next((child.name for child in children if not child.ready.is_set()), f"door at {door}")
        raise NotReachable(f"the {late} was not ready within {READY_WITHIN:g} s; its last lines say why") from None
    for line in welcome:
        say(line)


async def _is_ready(client: httpx2.AsyncClient) -> bool:
    try:
        return (await client.get("/readyz")).is_success
    except httpx2.HTTPError:  # not there yet
        return False
