"""Sending the events of a file: so many at a time, each line's answer told as it comes, the sum in the end."""

import asyncio
import json
from collections.abc import Callable
from typing import Final

from orderflow.cli.event_lines import EventLines, Line
from orderflow.cli.exits import ExitCode
from orderflow.cli.sending_page import answer_as_json
from orderflow.cli.sending_progress import progress
from orderflow.cli.tally import Tally
from orderflow.domain.deliveries import MAX_EVENT_BYTES, Cause
from orderflow.sending import Answered, Retry, Sender, TurnedAway

HOPELESS: Final = 20
"""After so many events in a row that no door took (or three for each lane) the rest of the file stays unsent."""

_TOO_LARGE: Final = TurnedAway(
    Cause.BODY_TOO_LARGE,
    "The event is too large",
    f"at most {MAX_EVENT_BYTES} bytes; it was not sent",
    (),
    413,
    attempts=0,
)

MakeSender = Callable[[Callable[[Retry], None]], Sender]
"""Gives a sender that tells of its retries."""


def send_file(file: str, make_sender: MakeSender, parallel: int, *, as_json: bool) -> ExitCode:
    """Send each line of `file`, print what came of it, and give the worst exit code.

    An interruption from the keyboard goes on to the caller once what was done so far is printed.
    """
    tally = Tally()
    with EventLines(file, MAX_EVENT_BYTES) as lines:
        try:
            with progress(lines, tally, as_json=as_json) as shown:

                def heard(line: Line, answered: Answered) -> None:
                    tally.ended(line.number, answered)
                    shown.answered()
                    if as_json:
                        _print_json_line({"line": line.number, **answer_as_json(answered)})

                async def send() -> None:
                    async with make_sender(shown.retrying) as sender:
                        await send_lines(sender, lines, parallel, tally, heard)

                asyncio.run(send())
        except KeyboardInterrupt:
            tally.interrupted = True
            raise
        finally:
            if as_json:
                _print_json_line({"summary": tally.as_json()})
            else:
                tally.print()
    return tally.exit_code


async def send_lines(
    sender: Sender, lines: EventLines, parallel: int, tally: Tally, heard: Callable[[Line, Answered], None]
) -> None:
    """Send `lines`, `parallel` at a time, until none is left or none has a chance; `heard` is told each answer."""
    turn, limit = asyncio.Lock(), max(HOPELESS, 3 * parallel)

    async def next_line() -> Line | None:
        async with turn:
            if tally.stopped or (line := await lines.next()) is None:
                return None
            tally.began(line.number)
            return line

    async def lane() -> None:
        while (line := await next_line()) is not None:
            heard(line, _TOO_LARGE if line.body is None else await sender.send(line.body))
            tally.stopped = tally.stopped or tally.hopeless >= limit

    lanes = [asyncio.create_task(lane()) for _ in range(parallel)]
    try:
        await asyncio.gather(*lanes)
    finally:
        for each in lanes:
            each.cancel()
        await asyncio.gather(*lanes, return_exceptions=True)


def _print_json_line(value: object) -> None:
    print(json.dumps(value), flush=True)
