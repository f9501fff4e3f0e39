"""`orderflow worker`, `dev` and `demo`: what runs until it is stopped, or until it has shown what it is to show."""

import asyncio
import json
from collections.abc import Callable
from typing import Annotated

import typer

from orderflow.cli.arguments import AsJson
from orderflow.cli.exits import ExitCode
from orderflow.cli.output import print_json, print_line, printable

Say = Callable[[str], None]

Port = Annotated[int, typer.Option("--port", min=1, max=65535, help="Where Temporal listens.")]
UiPort = Annotated[int, typer.Option("--ui-port", min=1, max=65535, help="Where Temporal's Web UI listens.")]


def worker(as_json: AsJson = False) -> None:
    """Run a worker until SIGTERM or Ctrl+C."""
    from orderflow.settings import load_settings  # the settings and Temporal's client, see orderflow.cli
    from orderflow.telemetry import configure_logging
    from orderflow.worker import run_worker

    settings = load_settings()
    configure_logging("json" if as_json else settings.log_format)
    asyncio.run(run_worker(settings))


def dev(port: Port = 7233, ui_port: UiPort = 8233, as_json: AsJson = False) -> ExitCode:
    """Run Temporal with its UI, and a worker with simulated providers; the state survives."""
    from orderflow.cli.development import run_development
    from orderflow.settings import load_settings

    settings = load_settings()
    return asyncio.run(run_development(settings, (port, ui_port), lambda name: speaker(name, as_json)))


def demo(as_json: AsJson = False) -> ExitCode:
    """Prove the three chains of evidence on a real server."""
    from orderflow.demo import run_demo

    chains = asyncio.run(run_demo(speaker("demo", as_json=False)))
    holds = all(chain.holds for chain in chains)
    if as_json:
        claims = [{"claim": chain.claim, "evidence": chain.evidence, "holds": chain.holds} for chain in chains]
        print_json({"holds": holds, "chains": claims})
    else:
        for chain in chains:
            print_line(f"{'holds ' if chain.holds else 'BROKEN'}  {chain.claim}")
            for evidence in chain.evidence:
                print_line(f"        {evidence}")
    return ExitCode.DONE if holds else ExitCode.REFUSED


def speaker(name: str, as_json: bool) -> Say:
    """Give a function that prints one line at once, under the name of what it comes from."""

    def say(line: str) -> None:
        text = printable(line.rstrip())
        print(json.dumps({"from": name, "line": text}) if as_json else f"{name:<8} | {text}", flush=True)

    return say
