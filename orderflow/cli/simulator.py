"""`orderflow simulator` serves the simulated providers; `log`, `fault` and `reset` look at them and change them."""

from collections.abc import Sequence
from typing import Annotated, Any, get_args

import typer
from pydantic import ValidationError

from orderflow.cli.arguments import AsJson
from orderflow.cli.output import print_json, print_line, print_table
from orderflow.cli.servers import speaker
from orderflow.domain.errors import InvalidInput
from orderflow.domain.problems import problems_in
from orderflow.providers.simulation.faults import Fault, FaultKind

app = typer.Typer(name="simulator", rich_markup_mode=None, invoke_without_command=True)

OneOrder = Annotated[str | None, typer.Option("--order", metavar="ORDER", help="Only this Workflow ID.")]


@app.callback()
def serve(
    context: typer.Context,
    host: Annotated[str, typer.Option("--host", help="Where to listen; it has no authentication.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0 takes a free one.")] = 8090,
    as_json: AsJson = False,
) -> None:
    """Serve the simulated providers over HTTP, or look at them."""
    if context.invoked_subcommand is not None:
        return
    from orderflow.settings import load_settings
    from orderflow.simulator import run_simulator  # uvicorn and the settings, see orderflow.cli

    path, say = load_settings().simulator_log, speaker("simulator", as_json)
    try:
        run_simulator(host, port, path, lambda url: say(f"ready at {url}, its log is {path}"))
    except OSError as error:
        raise InvalidInput(f"{path.parent} cannot be made ({error.strerror}); set ORDERFLOW_STATE_DIR") from None


@app.command("log")
def show_log(order: OneOrder = None, as_json: AsJson = False) -> None:
    """Show what the providers did since the last reset."""
    from orderflow.cli.simulated_world import world_of
    from orderflow.settings import load_settings

    lines = [line for line in world_of(load_settings()).log() if order in (None, line.get("workflow_id"))]
    if as_json:
        print_json(lines)
    elif lines:
        print_table(("seq", "what", "outcome", "amount", "key or order", "fault"), list(map(_row, lines)))
    else:
        print_line("nothing happened yet")


def _row(line: dict[str, Any]) -> Sequence[object]:
    if line["kind"] == "fault":
        injected = line["injected"]
        what = f"{injected['kind']} at {injected['operation']}, {injected['times']} times"
        return line["seq"], "fault ordered", what, None, injected.get("order"), None
    what = line.get("operation", "reset") if line["kind"] != "lookup" else f"lookup of {line['operation']}"
    return line["seq"], what, line.get("outcome"), line.get("amount_minor"), line.get("key"), line.get("fault")


@app.command("fault")
def add_fault(
    operation: Annotated[
        str, typer.Option("--operation", help="reserve, check, charge, notify, release, refund, lookup.")
    ],
    kind: Annotated[
        FaultKind,
        typer.Option("--kind", metavar="KIND", help=f"What shall go wrong: {', '.join(get_args(FaultKind))}."),
    ],
    times: Annotated[int, typer.Option("--times", help="How often.")] = 1,
    order: OneOrder = None,
    seconds: Annotated[float | None, typer.Option("--seconds", help="For delay, busy and unavailable.")] = None,
    as_json: AsJson = False,
) -> None:
    """Order a fault."""
    from orderflow.cli.simulated_world import world_of
    from orderflow.settings import load_settings

    fault = _fault(operation=operation, kind=kind, times=times, order=order, milliseconds=_milliseconds(kind, seconds))
    line = world_of(load_settings()).add_fault(fault)
    if as_json:
        print_json(line)
    else:
        print_line(f"ordered: {kind} at {operation}, {times} times" + (f", for {order}" if order else ""))


def _milliseconds(kind: FaultKind, seconds: float | None) -> int | None:
    if seconds is None:
        if kind == "delay":
            raise InvalidInput("--seconds: is missing: say how long a delay is")
        return None
    if kind not in ("delay", "busy", "unavailable"):
        raise InvalidInput(f"--seconds: is only for delay, busy and unavailable, not for {kind}")
    if not 0 <= seconds <= 86_400:
        raise InvalidInput("--seconds: must be at least 0 and at most 86400")
    return round(seconds * 1000)


def _fault(**fields: object) -> Fault:
    try:
        return Fault.model_validate(fields)
    except ValidationError as error:
        problems = problems_in(error)
    sentences = [
        f"{_option(problem.path)}{problem.message.replace('milliseconds', '--seconds')}" for problem in problems
    ]
    raise InvalidInput("; ".join(sentences), path=problems[0].path)


def _option(path: str) -> str:
    """`--times: ` for `$.times`; nothing for what is wrong with the fault as a whole."""
    name = path.removeprefix("$").removeprefix(".")
    return f"--{name}: " if name else ""


@app.command("reset")
def reset(as_json: AsJson = False) -> None:
    """Begin anew: full stock, no acts, no faults."""
    from orderflow.cli.simulated_world import world_of
    from orderflow.settings import load_settings

    line = world_of(load_settings()).reset()
    if as_json:
        print_json(line)
    else:
        print_line("the simulated world begins anew; its log keeps what was before")
