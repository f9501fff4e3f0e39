"""`orderflow intake status|pause|resume`: the gate for new events. Orders that run are not touched by it."""

import asyncio
import getpass
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from orderflow.cli.arguments import AsJson
from orderflow.cli.intake_status import (
    UNSTARTED_AFTER,
    IntakeStatus,
    gate_as_json,
    operators_gate,
    print_status,
    status_as_json,
)
from orderflow.cli.output import print_json, print_line, when
from orderflow.domain.errors import InvalidInput
from orderflow.domain.intake import ALL_DOORS, Look

if TYPE_CHECKING:
    from orderflow.ledger.events import EventLedger, IntakeRecord
    from orderflow.settings import Settings

T = TypeVar("T")

app = typer.Typer(name="intake", help="The gate for new events; orders that run go on.", rich_markup_mode=None)

_LONGEST_TEXT: Final = 500

Reason = Annotated[str, typer.Option("--reason", help="Why, for whoever looks at the status.")]
By = Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who says so; by default this system's user.")]


@app.command("status")
def status(as_json: AsJson = False) -> None:
    """Show whether events are taken in: what operators said, how each door stands, what waits."""
    from orderflow.settings import load_settings

    settings = load_settings()
    found = asyncio.run(_status(settings))
    if as_json:
        print_json(status_as_json(found))
    else:
        print_status(found)


@app.command("pause")
def pause(reason: Reason, by: By = None, as_json: AsJson = False) -> None:
    """Have every door refuse events, with 503 and a time to retry. Orders that run or wait for approval go on."""
    change = _set(paused=True, reason=_text(reason, "--reason"), by=_who(by))
    if as_json:
        print_json(change.as_json())
        return
    gate = change.gate
    print_line(
        f"intake is paused{'' if change.made else ' already'}, by {gate.changed_by} at {when(gate.changed_at)}:"
        f" {gate.reason}"
    )
    print_line("every door answers events with 503; orders that run or wait for approval go on")


@app.command("resume")
def resume(by: By = None, as_json: AsJson = False) -> None:
    """Take events in again. A door that closed by itself opens by itself."""
    change = _set(paused=False, reason="", by=_who(by))
    if as_json:
        print_json(change.as_json())
    else:
        print_line(
            f"intake is open{' again' if change.made else ' already'}; `orderflow intake status` shows each door"
        )


@dataclass(frozen=True)
class _Change:
    """What came of a pause or a resumption: how the gate stands, and whether that changed it."""

    made: bool
    gate: "IntakeRecord"

    def as_json(self) -> dict[str, Any]:
        return {"changed": self.made, **gate_as_json(self.gate)}


def _set(*, paused: bool, reason: str, by: str) -> _Change:
    from orderflow.settings import load_settings

    async def change(ledger: "EventLedger") -> _Change:
        stands = operators_gate(await ledger.intake())
        if stands is not None and stands.paused is paused:  # it stays with whoever said so first, and why
            return _Change(False, stands)
        gate = await ledger.set_intake(ALL_DOORS, paused=paused, reason=reason, changed_by=by)
        return _Change(paused or stands is not None, gate)

    return asyncio.run(_with_ledger(load_settings(), change))


def _who(by: str | None) -> str:
    if by is not None:
        return _text(by, "--by")
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container whose user has no name; before Python 3.13 a KeyError
        raise InvalidInput("this system's user has no name; say who you are with --by NAME") from None


def _text(given: str, option: str) -> str:
    text = " ".join(given.split())
    if text and len(text) <= _LONGEST_TEXT and text.isprintable():
        return text
    raise InvalidInput(f"{option} has to be one printable line of 1 to {_LONGEST_TEXT} characters")


async def _status(settings: "Settings") -> IntakeStatus:
    async def read(ledger: "EventLedger") -> "tuple[list[IntakeRecord], int]":
        return await ledger.intake(), await ledger.waiting_events(UNSTARTED_AFTER)

    gates, unstarted = await _with_ledger(settings, read)
    temporal = await _temporal(settings)
    return IntakeStatus(gates, unstarted, temporal, settings.backlog_limit, datetime.now(UTC))


async def _with_ledger(settings: "Settings", work: "Callable[[EventLedger], Awaitable[T]]") -> T:
    from orderflow.backends import open_existing_ledger  # the settings and database drivers, see orderflow.cli

    async with aclosing(await open_existing_ledger(settings)) as ledger:
        return await work(ledger)


async def _temporal(settings: "Settings") -> Look:
    """What Temporal tells of the backlog now; that it does not answer is an answer here."""
    from orderflow.cli.connection import quieten_client
    from orderflow.client import ServerUnreachable, connect
    from orderflow.client.backlog import look

    quieten_client()
    try:
        return await look(await connect(), settings.task_queue)
    except ServerUnreachable as error:
        return Look(fault=error.message)
