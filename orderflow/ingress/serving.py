"""The door as a process: wires ledger, callers and Temporal to it, serves until told to stop, finishes what came in."""

import argparse
import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Final

from temporalio.client import Client

from orderflow.backends import open_working_ledger
from orderflow.callers import caller_registry
from orderflow.catalogue import load_catalogue
from orderflow.client import address_of, connect
from orderflow.definitions import load_chosen
from orderflow.ingress.app import create_app
from orderflow.ingress.door import Door
from orderflow.ingress.gate import Gate
from orderflow.ledger import INGRESS
from orderflow.serving import Limits, listen, run_server, url_of
from orderflow.settings import Settings
from orderflow.stopping import exit_code_of, stopped_by_signals, unless_stopped

log = logging.getLogger(__name__)

Say = Callable[[str], None]

HOST: Final = "127.0.0.1"
PORT: Final = 8080
"""Where the door is unless told otherwise: on this machine, behind whatever ends TLS."""


async def run_ingress(
    settings: Settings,
    host: str,
    port: int,
    *,
    stop: asyncio.Event | None = None,
    ready: Callable[[str], None] | None = None,
    say: Say = log.info,
) -> None:
    """Serve until `stop` is set or SIGTERM or SIGINT comes, then answer what has come in and close everything.

    Port 0 takes a free one; `ready` is called with the door's base URL once it is open.

    Raises:
        InvalidSettings: something has to be provided first, such as a caller's secret (W10); the message says what.
        ServerUnreachable: Temporal is not there.
        LedgerUnavailable: the ledger's database is not there.
    """
    stopping = stop or asyncio.Event()
    with stopped_by_signals(stopping):
        client = await unless_stopped(stopping, connect(settings, say=say))
        if client is None:
            return
        with listen(host, port) as listener:
            async with _open_door(settings, client, say, name=_name_of(listener)) as door:
                say(f"door open: {url_of(listener)}, orders go to {client.namespace} at {address_of(client)}")
                if ready is not None:
                    ready(url_of(listener))
                await run_server(create_app(door), listener, Limits(), stop=stopping)
    say("door closed")


@asynccontextmanager
async def _open_door(settings: Settings, client: Client, say: Say, *, name: str) -> AsyncIterator[Door]:
    callers = caller_registry(settings, address_of(client), log.warning)
    definition = load_chosen(load_catalogue(), settings.order_definition, settings.definitions_dir)
    async with AsyncExitStack() as opened:
        ledger = await open_working_ledger(settings, opened, say, INGRESS)
        gate = Gate(ledger, client, settings, name)
        watch = asyncio.create_task(gate.watch())
        try:
            yield Door(
                client=client,
                ledger=ledger,
                callers=callers,
                gate=gate,
                definition=definition,
                task_queue=settings.task_queue,
            )
        finally:
            watch.cancel()
            with suppress(asyncio.CancelledError):
                await watch


def _name_of(listener: socket.socket) -> str:
    """What this door is called in the ledger: the same after a restart."""
    return f"{socket.gethostname()}:{listener.getsockname()[1]}"


def main() -> int:
    """Run a door with the settings of the environment; gives the exit code, see `exit_code_of`."""
    given = _arguments()
    return exit_code_of(lambda settings: run_ingress(settings, given.host, given.port))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m orderflow.ingress", description="Run the HTTP door.")
    parser.add_argument("--host", default=HOST, help="where to listen (%(default)s)")
    parser.add_argument("--port", type=int, default=PORT, help="0 takes a free one (%(default)s)")
    return parser.parse_args()
