"""What is right for an effect that stands, given what became of its order: the rule of reconciliation, as one table."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from orderflow.domain.effects import EffectState


class Fate(StrEnum):
    """What became of an order, as far as Temporal or the ledger knows."""

    OPEN = "open"
    COMPLETED = "completed"
    FAILED = "failed"
    """It came to its own end, failed or cancelled, and was to take back what it had done."""
    TERMINATED = "terminated"
    TIMED_OUT = "timed_out"
    VANISHED = "vanished"


class Due(StrEnum):
    """What has to be done about one effect."""

    NOTHING = "nothing"
    LOOK = "look"
    """Ask the provider what became of it; what it proves never to have done can never be done any more."""
    UNDO = "undo"
    REVIEW = "review"
    """A person has to decide: nobody undoes what another cut short."""


_LOST: Final[Mapping[EffectState, Due]] = MappingProxyType(
    {EffectState.PENDING: Due.LOOK, EffectState.COMMITTED: Due.REVIEW, EffectState.REVERSING: Due.REVIEW}
)

_DUE: Final[Mapping[Fate, Mapping[EffectState, Due]]] = MappingProxyType(
    {
        Fate.OPEN: {},
        Fate.COMPLETED: {EffectState.PENDING: Due.LOOK, EffectState.REVERSING: Due.REVIEW},
        Fate.FAILED: {
            EffectState.PENDING: Due.UNDO,
            EffectState.COMMITTED: Due.UNDO,
            EffectState.REVERSING: Due.UNDO,
        },
        Fate.TERMINATED: _LOST,
        Fate.TIMED_OUT: _LOST,
        Fate.VANISHED: _LOST,
    }
)


def due(fate: Fate, state: EffectState, *, can_undo: bool) -> Due:
    """What has to be done about an effect in `state`; `can_undo` is whether its order could have taken it back."""
    if fate is Fate.OPEN:
        return Due.NOTHING
    if not can_undo:
        return Due.LOOK if state is EffectState.PENDING else Due.NOTHING
    return _DUE[fate].get(state, Due.NOTHING)


def due_for_announcement(fate: Fate, state: EffectState) -> Due:
    """What has to be done about an announcement: never undone, and sent again by nobody but its workflow or people."""
    return Due.REVIEW if state is EffectState.PENDING and fate is not Fate.OPEN else Due.NOTHING


class What(StrEnum):
    """What a reconciliation did, found, or left."""

    ADOPTED = "adopted"
    """The provider has done it, and the ledger did not know."""
    VOIDED = "voided"
    DECLINED = "declined"
    UNDONE = "undone"
    ENDED = "ended"
    """How an order ended was noted."""
    OPENED = "opened"
    CLOSED = "closed"
    IN_REVIEW = "in_review"
    POSTPONED = "postponed"
    FAILED = "failed"


CHANGES: Final = frozenset(
    {What.ADOPTED, What.VOIDED, What.DECLINED, What.UNDONE, What.ENDED, What.OPENED, What.CLOSED}
)
"""What changed something; a second run finds none of them."""

RESOLVED_BEFORE: Final = "resolved_before"
"""People said how it was settled, and this ledger does not show it: nothing is taken back on top of that."""

UNKNOWN_TO_THE_LEDGER: Final = "unknown_to_the_ledger"
"""A review item's error: a provider has done it, and neither the ledger nor Temporal knows why."""

CONTRADICTS_THE_LEDGER: Final = "contradicts_the_ledger"
"""A review item's error: it stands at the provider, and the ledger says that it was never done."""
