"""When a door closes by itself, and when it opens again (issue 4: the intake gate)."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from orderflow.domain.intake import OPENING_LOOKS, OPENING_SHARE, SILENT_LOOKS, Closure, Intake, Look, after

LIMIT = timedelta(seconds=60)
OPEN = Intake()
AWAY = Look(fault="no answer")
FINE = Look(oldest=timedelta(0), waiting=0)
UNTOLD = Look()


def aged(seconds: float) -> Look:
    """A look that sees a task of this age."""
    return Look(oldest=timedelta(seconds=seconds), waiting=1)


AGES = st.one_of(st.sampled_from([0, 0.4, 0.5, 1, 1.1, 29.9, 30, 45, 60, 60.1]), st.floats(0, 200))
SEEN = st.one_of(st.just(AWAY), st.just(UNTOLD), AGES.map(aged))
SPELLS = st.builds(lambda seen, often: [seen] * often, SEEN, st.integers(1, 2 * OPENING_LOOKS))
LOOKS = st.lists(SPELLS, max_size=20).map(lambda spells: [look for spell in spells for look in spell])
"""What lasts, and what comes once: looks in spells."""

LIMITS = st.sampled_from([LIMIT, timedelta(seconds=1), None])


def stands(looks: Iterable[Look], limit: timedelta | None = LIMIT, start: Intake = OPEN) -> list[Intake]:
    """How a door stands at first, and after each look."""
    states = [start]
    for look in looks:
        states.append(after(states[-1], look, limit))
    return states


def is_bad(looks: Sequence[Look], limit: timedelta | None) -> bool:
    """Whether the last of these looks alone speaks against an open door."""
    silent = len(looks) >= SILENT_LOOKS and all(look.fault is not None for look in looks[-SILENT_LOOKS:])
    return silent or (limit is not None and looks[-1].oldest is not None and looks[-1].oldest > limit)


@given(LOOKS, LIMITS)
def test_a_door_is_closed_whenever_what_it_just_saw_is_bad(looks: list[Look], limit: timedelta | None) -> None:
    """It closes at once, and does not open while it is so."""
    for seen, state in enumerate(stands(looks, limit)[1:], start=1):
        assert state.closed or not is_bad(looks[:seen], limit)


@given(LOOKS, LIMITS)
def test_a_door_closes_for_nothing_but_what_is_bad(looks: list[Look], limit: timedelta | None) -> None:
    """Between half of the limit and the limit, and after one lost answer, an open door stays open."""
    for seen, (before, state) in enumerate(pairwise(stands(looks, limit)), start=1):
        if state.closed and not before.closed:
            assert is_bad(looks[:seen], limit)


@given(LOOKS, LIMITS)
def test_a_door_opens_only_after_several_good_looks_in_a_row(looks: list[Look], limit: timedelta | None) -> None:
    """So it opens at most once in so many looks: it never flaps faster."""
    for seen, (before, state) in enumerate(pairwise(stands(looks, limit)), start=1):
        if before.closed and not state.closed:
            last = looks[seen - OPENING_LOOKS : seen]
            assert len(last) == OPENING_LOOKS
            assert all(look.fault is None for look in last)
            if limit is not None:
                assert all(look.oldest is None or look.oldest < limit * OPENING_SHARE for look in last)
            assert all(each.closed for each in stands(looks, limit)[seen - OPENING_LOOKS : seen])


@given(LOOKS, LIMITS, st.integers(OPENING_LOOKS, 20))
def test_a_door_is_open_once_all_was_well_for_long_enough(
    looks: list[Look], limit: timedelta | None, well: int
) -> None:
    """Whatever happened before."""
    assert stands([*looks, *[FINE] * well], limit)[-1] == OPEN


@given(LOOKS)
def test_without_a_limit_no_backlog_closes_a_door(looks: list[Look]) -> None:
    """`ORDERFLOW_INTAKE_BACKLOG_LIMIT=0`."""
    assert {state.closed for state in stands(looks, None)} <= {None, Closure.TEMPORAL_AWAY}


def test_a_closed_door_says_what_keeps_it_closed_now() -> None:
    """Temporal comes back with a backlog from the time before: that is then the reason."""
    away = stands([AWAY] * SILENT_LOOKS)[-1]
    assert away.closed is Closure.TEMPORAL_AWAY
    assert after(away, aged(40), LIMIT).closed is Closure.BACKLOG
    assert after(away, FINE, LIMIT).closed is Closure.TEMPORAL_AWAY
    assert stands([AWAY] * SILENT_LOOKS, start=Intake(Closure.BACKLOG))[-1].closed is Closure.TEMPORAL_AWAY


def test_a_server_that_tells_nothing_of_backlogs_opens_the_door_it_closed_by_its_absence() -> None:
    """And not one that a backlog closed: nobody knows that it is gone."""
    assert not stands([AWAY] * SILENT_LOOKS + [UNTOLD] * OPENING_LOOKS)[-1].closed
    assert stands([aged(61)] + [UNTOLD] * 20)[-1].closed is Closure.BACKLOG
