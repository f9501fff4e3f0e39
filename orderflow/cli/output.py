"""What the verbs print: tables and fields for people, one JSON document for programs."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from orderflow.domain.money import Money

PIPED_WIDTH = 4000
"""Columns where nobody looks at a screen: each record then stands on one line, for `grep`."""

LONGEST_LINE = 600


def console(stream: TextIO | None = None) -> Console:
    """Give `stream`, by default standard output, as it is now; text is printed as it stands, never as markup."""
    file = stream or sys.stdout
    return Console(
        file=file,
        width=None if file.isatty() else PIPED_WIDTH,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=False,
    )


def print_json(value: object) -> None:
    """Print one JSON document."""
    print(as_json(value))


def as_json(value: object) -> str:
    """Give one JSON document; ASCII only, so that no terminal's encoding can break it."""
    return json.dumps(value, indent=2)


def print_table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows under headers, one line each where the width allows."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for header in headers:
        table.add_column(header, overflow="fold")
    for row in rows:
        table.add_row(*map(_cell, row))
    _print(table)


def _print(table: Table, stream: TextIO | None = None) -> None:
    """Print a table without the blanks that fill its lines."""
    screen = console(stream)
    with screen.capture() as captured:
        screen.print(table)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()), file=stream)


def _cell(value: object) -> Text:
    """A value as it stands in a table; the values of a tuple stand below each other."""
    return Text("\n".join(map(printable, value if isinstance(value, tuple) else (value,))))


def print_fields(fields: Mapping[str, object], indent: int = 0, stream: TextIO | None = None) -> None:
    """Print one `name  value` line for each field that has a value, by default to standard output."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in fields.items():
        if value not in (None, "", ()):
            table.add_row(" " * indent + name, Text(printable(value)))
    _print(table, stream)


def print_line(text: str = "", stream: TextIO | None = None) -> None:
    """Print one line for people, by default to standard output; a terminal folds it, nothing else does."""
    print(printable(text), file=stream)


def printable(value: object) -> str:
    """Give `value` on one line without control characters: what came from outside must not steer a terminal."""
    if value is None:
        return "-"
    text = when(value) if isinstance(value, datetime) else str(value)
    return "".join(character if character.isprintable() else " " for character in text)


def shortened(text: str) -> str:
    """Give `text` as one printable line of bounded length, its whitespace runs as one space each."""
    line = " ".join(printable(text).split())
    return line if len(line) <= LONGEST_LINE else line[: LONGEST_LINE - 1] + "…"


def money(amount_minor: int | None, currency: str | None) -> str:
    """Give an amount for people, `EUR 33.99`; `-` where no money moves."""
    if amount_minor is None:
        return "-"
    try:
        return str(Money(amount_minor=amount_minor, currency=currency or ""))
    except ValueError:  # no currency, or one that this release does not know
        return f"{amount_minor} minor units{f' of {currency}' if currency else ''}"


def when(at: datetime) -> str:
    """Give an aware time as `2026-01-31 12:00:00Z`."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def age(at: datetime, now: datetime) -> str:
    """Give how long ago `at` was, in its largest whole unit: `12s`, `5m`, `3h` or `20d`."""
    return _parts(now - at)[0]


def span(length: timedelta) -> str:
    """Give a length of time in its two largest whole units: `1d23h`, `5m2s` or `12s`."""
    return "".join(_parts(length)[:2])


def _parts(length: timedelta) -> list[str]:
    parts: list[str] = []
    left = max(0, int(length.total_seconds()))
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count or parts or unit == "s":
            parts.append(f"{count}{unit}")
    return parts
