"""How far a file of events is: a bar on a terminal, else a line of counts now and then; both on standard error."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn

from orderflow.cli.event_lines import EventLines
from orderflow.cli.output import console, print_line
from orderflow.cli.sending_page import retry_line
from orderflow.cli.tally import Tally
from orderflow.sending import Retry

EVERY: Final = 5.0
"""Seconds between two lines of counts."""


class Shown(Protocol):
    """What is told while events are on their way."""

    def answered(self) -> None:
        """One more line has its answer."""
        ...

    def retrying(self, retry: Retry) -> None:
        """An event waits for its next attempt."""
        ...


@contextmanager
def progress(lines: EventLines, tally: Tally, *, as_json: bool) -> Iterator[Shown]:
    """Show how far the sending of `lines` is; JSON that goes to the same terminal is not painted over."""
    if not sys.stderr.isatty() or (as_json and sys.stdout.isatty()):
        yield _Counts(tally)
        return
    columns = (
        SpinnerColumn(),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    screen = console(sys.stderr)
    with Progress(*columns, console=screen, transient=True, redirect_stdout=False, redirect_stderr=False) as painted:
        yield _Bar(painted, lines, tally)


def _counts(tally: Tally) -> str:
    return f"{tally.events} events: " + ", ".join(f"{count} {answer}" for answer, count in tally.counts.items())


class _Counts:
    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._next = time.monotonic() + EVERY

    def answered(self) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + EVERY
            print_line(_counts(self._tally), sys.stderr)

    def retrying(self, retry: Retry) -> None:
        """The counts tell in the end; a log has no use for each pause."""


class _Bar:
    def __init__(self, painted: Progress, lines: EventLines, tally: Tally) -> None:
        self._painted, self._lines, self._tally = painted, lines, tally
        self._bar = painted.add_task("", total=lines.size)

    def answered(self) -> None:
        self._painted.update(self._bar, completed=self._lines.read_bytes, description=_counts(self._tally))

    def retrying(self, retry: Retry) -> None:
        self._painted.update(self._bar, description=retry_line(retry))
