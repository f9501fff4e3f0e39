"""Whether a door takes events in by itself: what it sees of Temporal opens or closes it, with hysteresis.

Pure: whoever looks gives what it saw. A pause by an operator is another matter and stands in the ledger.
"""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

ALL_DOORS: Final = "all"
"""The scope of the gate that operators close and open; that of a door is its name."""

LOOK_EVERY: Final = timedelta(seconds=2)
"""From one look to the next: two short calls; a door that found out ten seconds late would not matter more."""

SILENT_LOOKS: Final = 2
"""Looks in a row without an answer after which Temporal is away: one is lost when a server behind a balancer ends."""

OPENING_LOOKS: Final = 4
"""Good looks in a row that open a closed door: at 2 s they span more than the 5 s for which Temporal repeats one answer
about a backlog, so that no door opens on a single one."""

OPENING_SHARE: Final = 0.5
"""A closed door opens below this share of the limit. The age of a task grows no faster than time does, so a door that
opened on an age below half of the limit stays open for the other half at least."""


class Closure(StrEnum):
    """Why a door closed by itself."""

    TEMPORAL_AWAY = "temporal-away"
    BACKLOG = "backlog"


@dataclass(frozen=True)
class Look:
    """What one look at Temporal saw.

    `fault` says why it did not answer, `None` if it did. `oldest` is the age of the oldest task that waits for a worker
    and `waiting` the number of such tasks, both `None` where Temporal does not tell.
    """

    fault: str | None = None
    oldest: timedelta | None = None
    waiting: int | None = None


@dataclass(frozen=True)
class Intake:
    """How a door stands: why it is closed, `None` while open; looks in a row without an answer; good ones in a row."""

    closed: Closure | None = None
    silent: int = 0
    good: int = 0


def after(intake: Intake, look: Look, limit: timedelta | None) -> Intake:
    """How the door stands after one more look. `limit` is the age that no waiting task may pass; `None` is no limit.

    It closes on the `SILENT_LOOKS`-th look in a row without an answer, and at once on a backlog that is too old. It
    opens after `OPENING_LOOKS` good looks in a row.
    """
    silent = 0 if look.fault is None else min(intake.silent + 1, SILENT_LOOKS)
    if silent == SILENT_LOOKS:
        return Intake(Closure.TEMPORAL_AWAY, silent)
    if _older(look, limit):
        return Intake(Closure.BACKLOG, silent)
    if intake.closed is None:
        return Intake(None, silent)
    if look.fault is not None or not _drained(intake.closed, look, limit):
        answered = look.fault is None
        return Intake(Closure.BACKLOG if answered else intake.closed, silent)  # what keeps it closed from now on
    good = intake.good + 1
    return Intake() if good == OPENING_LOOKS else Intake(intake.closed, silent, good)


def _older(look: Look, limit: timedelta | None) -> bool:
    return limit is not None and look.oldest is not None and look.oldest > limit


def _drained(closed: Closure, look: Look, limit: timedelta | None) -> bool:
    """Whether an answer speaks for opening; one that tells nothing of a backlog says nothing good about one."""
    if limit is None:
        return True
    if look.oldest is None:
        return closed is not Closure.BACKLOG
    return look.oldest < limit * OPENING_SHARE
