"""`orderflow worker`, `ingress`, `dev` and `demo`: what runs until it is stopped, or has shown what it is to show."""

import asyncio
import json
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from orderflow.cli.arguments import AsJson
from orderflow.cli.exits import ExitCode, NotReachable
from orderflow.cli.output import print_line, printable

if TYPE_CHECKING:
    from orderflow.demo import Chain

Say = Callable[[str], None]

Port = Annotated[int, typer.Option("--port", min=1, max=65535, help="Where Temporal listens.")]
UiPort = Annotated[int, typer.Option("--ui-port", min=1, max=65535, help="Where Temporal's Web UI listens.")]
IngressPort = Annotated[
    int, typer.Option("--ingress-port", min=1, max=65535, help="Where the door for events listens.")
]
SimulatorPort = Annotated[
    int, typer.Option("--simulator-port", min=1, max=65535, help="Where the simulated providers listen.")
]


def worker(as_json: AsJson = False) -> None:
    """Run a worker until SIGTERM or Ctrl+C."""
    from orderflow.settings import load_settings  # the settings and Temporal's client, see orderflow.cli
    from orderflow.telemetry import configure_logging
    from orderflow.worker import run_worker

    settings = load_settings()
    configure_logging("json" if as_json else settings.log_format)
    asyncio.run(run_worker(settings))


def ingress(
    host: Annotated[str, typer.Option("--host", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0 takes a free one.")] = 8080,
    as_json: AsJson = False,
) -> None:
    """Run the HTTP door for events until SIGTERM or Ctrl+C."""
    from orderflow.ingress.serving import run_ingress
    from orderflow.settings import load_settings
    from orderflow.telemetry import configure_logging

    settings = load_settings()
    configure_logging("json" if as_json else settings.log_format)
    asyncio.run(run_ingress(settings, host, port))


def dev(
    port: Port = 7233,
    ui_port: UiPort = 8233,
    ingress_port: IngressPort = 8080,
    simulator_port: SimulatorPort = 8090,
    as_json: AsJson = False,
) -> ExitCode:
    """Run Temporal with its UI, the door, a worker and simulated providers; the state survives."""
    from orderflow.cli.development import Ports, run_development
    from orderflow.settings import load_settings

    ports = Ports(temporal=port, ui=ui_port, ingress=ingress_port, simulator=simulator_port)
    return asyncio.run(run_development(load_settings(), ports, lambda name: speaker(name, as_json)))


def demo(as_json: AsJson = False) -> ExitCode:
    """Prove the three chains of evidence on a real server."""
    from orderflow import demo as chains_of_evidence

    tell = speaker("demo", as_json=False, stream=sys.stderr if as_json else sys.stdout)
    try:
        chains = asyncio.run(chains_of_evidence.run_demo(tell))
    except TimeoutError:
        raise NotReachable(
            "the demo waited too long for something; run it again when the machine is less busy"
        ) from None
    if chains is None:
        raise KeyboardInterrupt  # also for SIGTERM: nothing was proven
    if as_json:
        print(chains_of_evidence.as_json(chains))
    else:
        _print_chains(chains)
    return ExitCode.DONE if all(chain.holds for chain in chains) else ExitCode.REFUSED


def _print_chains(chains: "list[Chain]") -> None:
    for chain in chains:
        print_line(f"{'holds ' if chain.holds else 'BROKEN'}  {chain.claim}")
        for evidence in chain.evidence:
            print_line(f"        {evidence}")


def speaker(name: str, as_json: bool, stream: TextIO | None = None) -> Say:
    """Give a function that prints one line at once, by default to standard output, under the name of who says it.

    What runs goes on, and stops clean, also when its terminal was closed and nobody can be told.
    """

    def say(line: str) -> None:
        text = printable(line.rstrip())
        said = json.dumps({"from": name, "line": text}) if as_json else f"{name:<9} | {text}"
        with suppress(OSError):
            print(said, file=stream, flush=True)

    return say
