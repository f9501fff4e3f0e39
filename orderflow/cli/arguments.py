"""What several verbs take: `--json`, an order's reference, a file or standard input."""

import re
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from orderflow.cli.exits import InvalidFile
from orderflow.cli.output import shortened
from orderflow.domain.errors import InvalidInput
from orderflow.domain.events import workflow_id

_WORKFLOW_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")

STANDARD_INPUT = "-"

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document for programs.")]
Order = Annotated[str | None, typer.Argument(metavar="ORDER", help="The order's Workflow ID.", show_default=False)]
Source = Annotated[str | None, typer.Option("--source", help="Instead of ORDER, with --id: the event's source.")]
EventId = Annotated[str | None, typer.Option("--id", help="Instead of ORDER, with --source: the event's id.")]


def order_reference(order: str | None, source: str | None, event_id: str | None) -> str:
    """Give the Workflow ID that is meant. Raises `InvalidInput` unless exactly one order is named."""
    if order is not None and source is None and event_id is None:
        return _workflow_id(order)
    if order is None and source is not None and event_id is not None:
        return _of_event(source, event_id)
    raise InvalidInput("name one order: by its Workflow ID (order-…), or by both --source and --id of its event")


def _workflow_id(order: str) -> str:
    if _WORKFLOW_ID.fullmatch(order):
        return order
    raise InvalidInput(
        f"'{shortened(order)[:60]}' is no Workflow ID (order-… as `orderflow list` shows it);"
        " an order can also be named by --source and --id of its event"
    )


def _of_event(source: str, event_id: str) -> str:
    try:
        return workflow_id(source, event_id)
    except InvalidInput as error:
        raise InvalidInput(f"--source and --id cannot name an event: {error.message}") from error


def read_document(file: str, *, max_bytes: int) -> bytes:
    """Read `file`, or standard input for `-`, and never more than `max_bytes`.

    Raises `InvalidFile` when it is missing, is no file, cannot be read, is empty, or holds more.
    """
    with reading(file), open_document(file) as opened:
        return _read(opened, max_bytes)


def open_document(file: str) -> AbstractContextManager[BinaryIO]:
    """Open `file`, or take standard input for `-`, which stays open; raises as `open` does: see `reading`."""
    return nullcontext(sys.stdin.buffer) if file == STANDARD_INPUT else Path(file).open("rb")


@contextmanager
def reading(file: str) -> Iterator[None]:
    """Make an `InvalidFile` that names `file` of whatever goes wrong while it is opened or read."""
    try:
        yield
    except InvalidInput as error:
        raise InvalidFile(name_of(file), error) from None
    except FileNotFoundError:
        raise InvalidFile(name_of(file), InvalidInput("there is no such file; give the path of one, or -")) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InvalidFile(name_of(file), InvalidInput(f"cannot be read ({reason}); give a readable file")) from None


def name_of(file: str) -> str:
    """Give the name of `file` for messages."""
    return "standard input" if file == STANDARD_INPUT else shortened(file)[:200]


def _read(opened: BinaryIO, max_bytes: int) -> bytes:
    raw = opened.read(max_bytes + 1)
    if len(raw) > max_bytes:
        raise InvalidInput(f"holds more than the {max_bytes} bytes that are read; is it the right file?")
    if not raw.strip():
        raise InvalidInput("is empty; give a file that holds one JSON document")
    return raw
