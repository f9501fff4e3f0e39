"""What operators, doors and Temporal say of the gate for new events, as a page for people and as JSON."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from orderflow.cli.output import age, print_fields, print_line, print_table, span, when
from orderflow.domain.intake import ALL_DOORS

if TYPE_CHECKING:
    from orderflow.domain.intake import Look
    from orderflow.ledger.events import IntakeRecord

_GONE_AFTER: Final = timedelta(minutes=2)
"""A door says every 20 s how it stands: one that was silent for six of these runs no more."""

_SHOWN_FOR: Final = timedelta(days=1)
"""A door that is gone is news for a day; each that was ever stopped would be a list nobody reads."""

UNSTARTED_AFTER: Final = timedelta(minutes=1)
"""An event has its order a moment after its receipt, unless the start failed and its sender has yet to retry."""


@dataclass(frozen=True)
class IntakeStatus:
    """How the gates stand, how many events older than `UNSTARTED_AFTER` have no order, and what Temporal tells."""

    gates: "list[IntakeRecord]"
    unstarted: int
    temporal: "Look"
    limit: timedelta | None
    now: datetime

    @property
    def manual(self) -> "IntakeRecord | None":
        """What operators said last."""
        return operators_gate(self.gates)

    @property
    def doors(self) -> "list[IntakeRecord]":
        """What each door said last."""
        return [gate for gate in self.gates if gate.scope != ALL_DOORS and self.now - gate.seen_at < _SHOWN_FOR]


def operators_gate(gates: "list[IntakeRecord]") -> "IntakeRecord | None":
    """The gate of all doors; `None` if nobody ever said anything of it: then it is open."""
    return next((gate for gate in gates if gate.scope == ALL_DOORS), None)


def status_as_json(found: IntakeStatus) -> dict[str, Any]:
    """Give it for programs: times as ISO 8601, lengths in seconds, `null` for what nobody told."""
    oldest = found.temporal.oldest
    return {
        **gate_as_json(found.manual),
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


def print_status(found: IntakeStatus) -> None:
    """Print it for people."""
    gate = found.manual
    paused = gate is not None and gate.paused
    print_fields(
        {
            "intake": "paused: every door answers events with 503" if paused else "open",
            "reason": gate.reason if gate else None,
            "since": f"{when(gate.changed_at)}, by {gate.changed_by}" if gate else None,
            "temporal": _backlog(found),
            "events": f"{found.unstarted} older than {span(UNSTARTED_AFTER)} have no order until they are sent again",
        }
    )
    print_line()
    if found.doors:
        print_table(("door", "stands", "since", "seen", "why"), [_row(door, found.now) for door in found.doors])
    else:
        print_line("no door has said how it stands")


def _row(door: "IntakeRecord", now: datetime) -> tuple[object, ...]:
    stands = "gone" if _is_gone(door, now) else "closed" if door.paused else "open"
    return door.scope, stands, age(door.changed_at, now), age(door.seen_at, now), door.reason or "-"


def _is_gone(door: "IntakeRecord", now: datetime) -> bool:
    return now - door.seen_at > _GONE_AFTER


def _backlog(found: IntakeStatus) -> str:
    limit = f"doors close above {span(found.limit)}" if found.limit is not None else "doors do not close for that"
    seen = found.temporal
    if seen.fault is not None:
        return f"away: {seen.fault}"
    if seen.oldest is None:
        return "answers, and does not tell what waits for workers"
    if not seen.waiting:
        return f"no task waits for a worker; {limit}"
    return f"tasks that wait for a worker: {seen.waiting}, the oldest for {span(seen.oldest)}; {limit}"


def gate_as_json(gate: "IntakeRecord | None") -> dict[str, Any]:
    """Give what operators said, for programs."""
    if gate is None:  # nobody ever paused it
        return {"paused": False, "reason": None, "by": None, "since": None}
    return {
        "paused": gate.paused,
        "reason": gate.reason or None,
        "by": gate.changed_by,
        "since": gate.changed_at.isoformat(),
    }
