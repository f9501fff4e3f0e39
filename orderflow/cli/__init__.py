"""`orderflow …`: the command line, for people; scripts rely on its exit codes (`orderflow.cli.exits`) and on `--json`.

Modules that import Temporal's client (0.4 s), the settings or joserfc are imported by the verbs that need them, so that
`validate`, `graph` and `--help` answer at once.
"""

import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

import orderflow
from orderflow.cli import (
    callers,
    database,
    decisions,
    definitions,
    doctor,
    history,
    intake,
    keys,
    orders,
    payload_keys,
    reconciliation,
    review,
    servers,
    simulator,
    submission,
)
from orderflow.cli.exits import ExitCode, report


class CommandLine(TyperGroup):
    """The root command: whatever goes wrong in a verb ends as one line and an exit code, never as a traceback (O01)."""

    def invoke(self, ctx: Any) -> Any:
        """Run the verb; a reader of its output that has gone is told to us before Typer makes an exit code 1 of it."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise typer.Exit(report(error, as_json=False)) from None

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> NoReturn:
        """Run the verb that `args` (by default the process's own) names, and exit with its code."""
        arguments = list(sys.argv[1:] if args is None else args)
        try:
            ended = super().main(arguments or ["--help"], *rest, **(extra | {"standalone_mode": False}))
        except Exception as error:  # noqa: BLE001 - the outermost boundary
            if "--debug" in arguments[:1]:
                traceback.print_exc()
            ended = report(error, as_json="--json" in arguments)
        sys.exit(int(ended or ExitCode.DONE) if arguments else ExitCode.BAD_INPUT)


app = typer.Typer(
    name="orderflow",
    cls=CommandLine,
    help="Durable order workflows on Temporal. Exit codes: 0 done, 1 refused, 2 bad input, 3 not reachable.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(orderflow.__version__)
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback when something goes wrong.")] = False,
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True)] = False,
) -> None:
    """What stands before the verb."""


for verb in (
    servers.demo,
    servers.dev,
    servers.worker,
    servers.ingress,
    submission.submit,
    orders.list_orders,
    orders.show,
    decisions.approve,
    decisions.reject,
    reconciliation.reconcile,
    definitions.validate,
    definitions.graph,
    doctor.doctor,
):
    app.command(verb.__name__.removesuffix("_orders"))(verb)
app.add_typer(callers.app)
app.add_typer(database.app)
app.add_typer(history.app)
app.add_typer(intake.app)
app.add_typer(keys.app)
app.add_typer(payload_keys.app)
app.add_typer(review.app)
app.add_typer(simulator.app)


def main() -> NoReturn:
    """Be the program `orderflow`."""
    code: object = ExitCode.BUG
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that lacks a character gets its escape, not a crash
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except SystemExit as ended:
        code = ended.code
    try:
        sys.stdout.flush()
    except OSError as error:
        code = code or report(error, as_json=False)
    with suppress(OSError):
        sys.stderr.flush()
    # Temporal's client runs threads of its own; an interpreter that shuts down under them can abort.
    os._exit(code if isinstance(code, int) else ExitCode.BUG)


def _open_closed_streams() -> None:
    """What was closed by whoever started us (`>&-`) is as good as /dev/null; no file of ours takes its number."""
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115 - for as long as the process lives
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
