"""`orderflow history export|redact|replay`: histories for tests and for others' eyes."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orderflow.cli.arguments import AsJson, EventId, Order, Source, order_reference
from orderflow.cli.exits import ExitCode, InvalidFile
from orderflow.cli.output import print_json, print_line, print_table, shortened
from orderflow.domain.errors import InvalidInput

if TYPE_CHECKING:
    from temporalio.client import Client, WorkflowHistory

    from orderflow.history.replaying import Replayed

app = typer.Typer(name="history", help="Export histories, redact them, replay them on this release's code.")

Places = Annotated[list[Path], typer.Argument(metavar="FILE|DIR…", help="Histories, or folders of them (*.json).")]
WorkflowId = Annotated[str | None, typer.Option("--workflow-id", help="Of a file that does not say it.")]


@app.command()
def export(
    order: Order = None,
    source: Source = None,
    event_id: EventId = None,
    query: Annotated[str | None, typer.Option("--query", help="Temporal's visibility query.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every workflow of orderflow's.")] = False,
    folder: Annotated[Path, typer.Option("--dir", help="Where the files go.")] = Path("histories"),
    as_json: AsJson = False,
) -> None:
    """Write one file for each run: of one order, of what a query finds, or of everything. They hold customers' data."""
    from orderflow.cli.connection import with_temporal

    named = order is not None or source is not None or event_id is not None
    if named + (query is not None) + everything != 1:
        raise InvalidInput("say what to export: one ORDER (or --source and --id), --query, or --all")
    reference = order_reference(order, source, event_id) if named else None
    files = with_temporal(lambda client, _: _exported(client, reference, query, folder))
    if as_json:
        print_json({"files": [str(file) for file in files]})
    else:
        print_line(f"{len(files)} histories in {folder}")


async def _exported(client: "Client", order: str | None, query: str | None, folder: Path) -> list[Path]:
    from orderflow.history import exporting, files

    if order is not None:
        found = exporting.runs_of(client, order)
    else:
        found = exporting.histories(client, query or exporting.EVERYTHING)
    return [files.write(history, folder, files.name_of(history)) async for history in found]


@app.command()
def redact(
    places: Places,
    out: Annotated[Path, typer.Option("--out", help="A folder for the redacted ones; no other file may be in it.")],
    as_json: AsJson = False,
) -> None:
    """Write each history without anything of a customer's; it still replays. All or none are written."""
    from orderflow.history import files
    from orderflow.history.decoding import decoded
    from orderflow.history.redacting import Redaction

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InvalidInput(f"{out} is not an empty folder: nothing may be left among redacted histories")
    redaction = Redaction()
    histories = []
    for file, history in _read(places):
        with _about(file):
            histories.append((file, decoded(history)))
            redaction.meet(histories[-1][1])
    made = []
    for file, history in histories:
        with _about(file):
            made.append(redaction.redact(history))
    written = [files.write(history, out, files.name_of(history)) for history in made]
    if as_json:
        print_json({"files": [str(file) for file in written]})
    else:
        print_line(f"{len(written)} redacted histories in {out}")


@app.command()
def replay(places: Places, workflow_id: WorkflowId = None, as_json: AsJson = False) -> ExitCode:
    """Replay histories on this release's code: exit code 0 if it would do the same in all of them, 1 if not."""
    from orderflow.cli.connection import quieten_client
    from orderflow.history.decoding import require_readable
    from orderflow.history.replaying import Verdict
    from orderflow.history.replaying import replay as replayed

    quieten_client()
    told: list[tuple[Path, Replayed]] = []
    with _quiet("temporalio"):  # the verdict says it
        for file, history in list(_read(places, workflow_id)):
            with _about(file):
                require_readable(history)
            told.append((file, replayed(history)))
    if as_json:
        print_json({"histories": [{"file": str(file)} | asdict(each) for file, each in told]})
    else:
        print_table(("file", "workflow", "events", "verdict", "first divergence"), [_row(*each) for each in told])
    return ExitCode.DONE if all(each.verdict is Verdict.OK for _, each in told) else ExitCode.REFUSED


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def _row(file: Path, each: "Replayed") -> tuple[Any, ...]:
    state = "" if each.closed else " (open)"
    return file.name, f"{each.workflow_type}{state}", each.events, each.verdict, shortened(each.divergence or "")


def _read(places: list[Path], workflow_id: str | None = None) -> "Iterator[tuple[Path, WorkflowHistory]]":
    from orderflow.history import files
    from orderflow.history.reading import read_history

    for file in files.found(places):
        with _about(file):
            history = read_history(file, workflow_id=workflow_id)
        yield file, history


@contextmanager
def _about(file: Path) -> Iterator[None]:
    """Name the file in whatever is wrong with it."""
    try:
        yield
    except InvalidInput as error:
        raise InvalidFile(shortened(str(file))[:200], error) from None
