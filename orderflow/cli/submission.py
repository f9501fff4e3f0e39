"""`orderflow submit`: an event, or a file of them, on its way to an order: signed over HTTP, or directly."""

import asyncio
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from orderflow.cli.arguments import AsJson, name_of, read_document
from orderflow.cli.definitions import definition_of, unpublished
from orderflow.cli.exits import ExitCode, InvalidFile
from orderflow.cli.output import shortened
from orderflow.domain.errors import InvalidInput
from orderflow.domain.events import OrderEvent, check_order, validate_event
from orderflow.domain.strict_json import MAX_BYTES, read_json

if TYPE_CHECKING:
    from orderflow.cli.many_events import MakeSender
    from orderflow.sending import Answered

PARALLEL = 8


def submit(
    event: Annotated[
        str | None, typer.Argument(metavar="EVENT.json", help="The event, or - for standard input.", show_default=False)
    ] = None,
    jsonl: Annotated[
        str | None,
        typer.Option("--jsonl", metavar="FILE", help="Send many: an event on each line; - is standard input."),
    ] = None,
    url: Annotated[str | None, typer.Option("--url", help="Of the door, instead of ORDERFLOW_INGRESS_URL.")] = None,
    attempts: Annotated[
        int | None, typer.Option("--attempts", min=1, max=20, help="At one event, retries included (5).")
    ] = None,
    parallel: Annotated[
        int | None, typer.Option("--parallel", min=1, max=64, help="With --jsonl: events under way at once (8).")
    ] = None,
    direct: Annotated[bool, typer.Option("--direct", help="Start the order without HTTP.")] = False,
    definition: Annotated[
        str | None, typer.Option("--definition", help="With --direct: instead of the packaged one.")
    ] = None,
    only_print: Annotated[
        bool, typer.Option("--print", help="With --direct: print the `temporal workflow start` command instead.")
    ] = False,
    as_json: AsJson = False,
) -> ExitCode:
    """Sign an event and send it to the door, as its sender would.

    The file goes out byte for byte; the door judges it. An event is tried again
    when no door is reached or it has no time (408, 429, 502-504), with growing
    random pauses and for two minutes at most. That is safe: an event that did
    arrive is known by its source and id, and begins no second order.
    """
    _require_one_file(event, jsonl, parallel)
    over_http = {"--jsonl": jsonl, "--url": url, "--attempts": attempts, "--parallel": parallel}
    without = {"--definition": definition, "--print": only_print or None}
    if direct:
        _refuse(over_http, "is for sending over HTTP; leave it out, or --direct")
        return _start_directly(event or "", definition, only_print, as_json)
    _refuse(without, "belongs to --direct: who sends an event does not choose how its order is started")
    if jsonl is not None:
        return _send_lines(jsonl, url, attempts, parallel or PARALLEL, as_json)
    return _send(event or "", url, attempts, as_json)


def _require_one_file(event: str | None, jsonl: str | None, parallel: int | None) -> None:
    if (event is None) == (jsonl is None):
        raise InvalidInput("name what to submit: either EVENT.json, or --jsonl FILE; see `orderflow submit --help`")
    if parallel is not None and jsonl is None:
        raise InvalidInput("--parallel belongs to --jsonl: one event is sent by itself")


def _refuse(options: Mapping[str, object], why: str) -> None:
    for option, value in options.items():
        if value is not None:
            raise InvalidInput(f"{option} {why}")


def _start_directly(file: str, definition: str | None, only_print: bool, as_json: bool) -> ExitCode:
    event, steps = read_event(file), definition_of(definition)
    if definition is not None and (warning := unpublished(steps)):
        print(f"orderflow: {shortened(warning)}", file=sys.stderr)
    from orderflow.cli.direct_start import print_start, start_directly  # Temporal's client, see orderflow.cli

    if only_print:
        print_start(event, steps, as_json=as_json)
    else:
        start_directly(event, steps, as_json=as_json)
    return ExitCode.DONE


def read_event(file: str) -> OrderEvent:
    """The event in `file`. Raises `InvalidFile` with every problem of its shape, or every rule that it breaks."""
    raw = read_document(file, max_bytes=MAX_BYTES)
    try:
        event = validate_event(read_json(raw, allow_bom=True))
        check_order(event)
    except InvalidInput as error:
        raise InvalidFile(name_of(file), error) from error
    return event


def _send(file: str, url: str | None, attempts: int | None, as_json: bool) -> ExitCode:
    from orderflow.cli.sending_page import print_answer, tell_retry
    from orderflow.domain.deliveries import MAX_EVENT_BYTES

    body = read_document(file, max_bytes=MAX_EVENT_BYTES)
    make_sender = _sender_maker(url, attempts, 1)

    async def send() -> "Answered":
        async with make_sender(tell_retry) as sender:
            return await sender.send(body)

    return print_answer(asyncio.run(send()), as_json=as_json)


def _send_lines(file: str, url: str | None, attempts: int | None, parallel: int, as_json: bool) -> ExitCode:
    from orderflow.cli.many_events import send_file

    return send_file(file, _sender_maker(url, attempts, parallel), parallel, as_json=as_json)


def _sender_maker(url: str | None, attempts: int | None, parallel: int) -> "MakeSender":
    """What makes a sender as the settings say; flags count more. Raises `InvalidSettings` before anything is begun."""
    from orderflow.callers import sender_secret
    from orderflow.sending import Patience, Sender
    from orderflow.settings import load_settings

    settings = load_settings() if url is None else load_settings(ingress_url=url)
    secret = sender_secret(settings)
    patience = Patience() if attempts is None else Patience(attempts=attempts)
    return lambda tell: Sender(settings.ingress_url, secret, patience, parallel, tell)
