"""`orderflow …`: the command line, for people; scripts rely on its exit codes (`orderflow.cli.exits`) and on `--json`.

Modules that import Temporal's client (0.4 s) are imported by the verbs that need it, so that `validate`, `graph`,
`keys` and `--help` answer at once.
"""

import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from orderflow.cli import definitions
from orderflow.cli.exits import ExitCode, report


class CommandLine(TyperGroup):
    """The root command: whatever goes wrong in a verb ends as one line and an exit code, never as a traceback (O01)."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, standalone_mode: bool = True, **extra: Any) -> NoReturn:
        """Run the verb that `args` (by default the process's own) names, and exit with its code."""
        arguments = list(sys.argv[1:] if args is None else args)
        try:
            ended = super().main(arguments or ["--help"], *rest, standalone_mode=False, **extra)
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the outermost boundary
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
for verb in (definitions.validate, definitions.graph):
    app.command()(verb)


def main() -> NoReturn:
    """Be the program `orderflow`."""
    try:
        app()
    except SystemExit as ended:
        code = ended.code
    sys.stdout.flush()
    sys.stderr.flush()
    # Temporal's client runs threads of its own; an interpreter that shuts down under them can abort.
    os._exit(code if isinstance(code, int) else ExitCode.BUG)
