"""`orderflow intake status|pause|resume`: the gate for new events. Orders that run are not touched by it."""

import asyncio
import getpass
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from orderflow.cli.arguments import AsJson
from orderflow.cli.output import age, print_fields, print_json, print_line, print_table, span, when
from orderflow.domain.errors import InvalidInput

if TYPE_CHECKING:
    from orderflow.domain.intake import Look
    from orderflow.ledger.events import EventLedger, IntakeRecord
    from orderflow.settings import Settings

T = TypeVar("T")

app = typer.Typer(name="intake", help="The gate for new events; orders that run go on.", rich_markup_mode=None)

_ALL: Final = "all"
"""The scope of the gate of all doors."""

_GONE_AFTER: Final = timedelta(minutes=2)
"""A door says every 20 s how it stands: one that was silent for six of these runs no more."""

_SHOWN_FOR: Final = timedelta(days=1)
"""A door that is gone is news for a day; each that was ever stopped would be a list nobody reads."""

_UNSTARTED_AFTER: Final = timedelta(minutes=1)
"""An event has its order a moment after its receipt, unless the start failed and its sender has yet to retry."""

_LONGEST_TEXT: Final = 500

Reason = Annotated[str, typer.Option("--reason", help="Why, for whoever looks at the status.")]
By = Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who says so; by default this system's user.")]


@app.command("status")
def status(as_json: AsJson = False) -> None:
    """Show whether events are taken in: what operators said, how each door stands, what waits."""
    from orderflow.settings import load_settings

    settings = load_settings()
    found = asyncio.run(_found(settings))
    if as_json:
        print_json(_as_json(found))
    else:
        _print(found)


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
        return {"changed": self.made, **_manual_as_json(self.gate)}


def _set(*, paused: bool, reason: str, by: str) -> _Change:
    from orderflow.settings import load_settings

    async def change(ledger: "EventLedger") -> _Change:
        stands = _manual(await ledger.intake())
        if stands is not None and stands.paused is paused:  # it stays with whoever said so first, and why
            return _Change(False, stands)
        gate = await ledger.set_intake(_ALL, paused=paused, reason=reason, changed_by=by)
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


@dataclass(frozen=True)
class _Found:
    """What `status` tells."""

    manual: "IntakeRecord | None"
    doors: "list[IntakeRecord]"
    unstarted: int
    temporal: "Look"
    limit: timedelta | None
    now: datetime


async def _found(settings: "Settings") -> _Found:
    async def read(ledger: "EventLedger") -> "tuple[list[IntakeRecord], int]":
        return await ledger.intake(), await ledger.waiting_events(_UNSTARTED_AFTER)

    gates, unstarted = await _with_ledger(settings, read)
    temporal, now = await _temporal(settings), datetime.now(UTC)
    doors = [gate for gate in gates if gate.scope != _ALL and now - gate.seen_at < _SHOWN_FOR]
    return _Found(_manual(gates), doors, unstarted, temporal, settings.backlog_limit, now)


async def _with_ledger(settings: "Settings", work: "Callable[[EventLedger], Awaitable[T]]") -> T:
    from orderflow.backends import open_existing_ledger  # the settings and database drivers, see orderflow.cli

    async with aclosing(await open_existing_ledger(settings)) as ledger:
        return await work(ledger)


async def _temporal(settings: "Settings") -> "Look":
    """What Temporal tells of the backlog now; that it does not answer is an answer here."""
    from orderflow.cli.connection import quieten_client
    from orderflow.client import ServerUnreachable, connect
    from orderflow.client.backlog import look
    from orderflow.domain.intake import Look

    quieten_client()
    try:
        return await look(await connect(), settings.task_queue)
    except ServerUnreachable as error:
        return Look(fault=error.message)


def _manual(gates: "list[IntakeRecord]") -> "IntakeRecord | None":
    return next((gate for gate in gates if gate.scope == _ALL), None)


def _manual_as_json(gate: "IntakeRecord | None") -> dict[str, Any]:
    if gate is None:  # nobody ever paused it
        return {"paused": False, "reason": None, "by": None, "since": None}
    return {
        "paused": gate.paused,
        "reason": gate.reason or None,
        "by": gate.changed_by,
        "since": gate.changed_at.isoformat(),
    }


def _as_json(found: _Found) -> dict[str, Any]:
    oldest = found.temporal.oldest
    return {
        **_manual_as_json(found.manual),
        "doors": [
            {
                "door": door.scope,
                "open": not door.paused,
                "reason": door.reason or None,
                "since": door.changed_at.isoformat(),
                "seen": door.seen_at.isoformat(),
                "gone": _is_gone(door, found.now),
            }
            for door in found.doors
        ],
        "temporal": {
            "fault": found.temporal.fault,
            "oldest_task_seconds": oldest.total_seconds() if oldest is not None else None,
            "waiting_tasks": found.temporal.waiting,
            "limit_seconds": found.limit.total_seconds() if found.limit is not None else None,
        },
        "events_without_order": found.unstarted,
    }


def _print(found: _Found) -> None:
    gate = found.manual
    if gate is not None and gate.paused:
        print_fields({"intake": "paused: every door answers events with 503", "reason": gate.reason})
    else:
        print_fields({"intake": "open"})
    if gate is not None:
        print_fields({"since": f"{when(gate.changed_at)}, by {gate.changed_by}"})
    print_fields({"temporal": _backlog(found), "events": _unstarted(found.unstarted)})
    if found.doors:
        print_line()
        print_table(("door", "stands", "since", "seen", "why"), [_row(door, found.now) for door in found.doors])
    else:
        print_line("no door has said how it stands; `orderflow ingress` is one")


def _row(door: "IntakeRecord", now: datetime) -> tuple[object, ...]:
    stands = "gone" if _is_gone(door, now) else "closed" if door.paused else "open"
    return door.scope, stands, age(door.changed_at, now), age(door.seen_at, now), door.reason or "-"


def _is_gone(door: "IntakeRecord", now: datetime) -> bool:
    return now - door.seen_at > _GONE_AFTER


def _backlog(found: _Found) -> str:
    limit = f"doors close above {span(found.limit)}" if found.limit is not None else "doors do not close for that"
    seen = found.temporal
    if seen.fault is not None:
        return f"away: {seen.fault}"
    if seen.oldest is None:
        return "answers, and does not tell what waits for workers"
    if not seen.waiting:
        return f"no task waits for a worker; {limit}"
    return f"{seen.waiting} tasks wait for a worker, the oldest for {span(seen.oldest)}; {limit}"


def _unstarted(number: int) -> str:
    return f"{number} received more than {span(_UNSTARTED_AFTER)} ago, and without an order until sent again"
