"""The table of effect states: what may follow what."""

from collections.abc import Mapping

import pytest

from orderflow.domain.effects import STANDING, TRANSITIONS, UNDONE, EffectState

Table = Mapping[EffectState | None, frozenset[EffectState]]


WITHOUT_PEOPLE: Table = {
    **TRANSITIONS,
    EffectState.REVERSING: TRANSITIONS[EffectState.REVERSING] - {EffectState.COMMITTED},
}
"""The table but for `resolve --outcome kept`, which alone ends an undo with the effect as it was."""


def _reachable(start: EffectState | None, by: Table = TRANSITIONS) -> set[EffectState]:
    found: set[EffectState] = set()
    ahead = list(by[start])
    while ahead:
        state = ahead.pop()
        if state not in found:
            found.add(state)
            ahead.extend(by[state])
    return found


def test_every_state_has_its_row_and_can_be_reached() -> None:
    """A state without a row would have no rule, one that cannot be reached no use."""
    assert set(TRANSITIONS) == {None, *EffectState}
    assert _reachable(None) == set(EffectState)


@pytest.mark.parametrize("state", [None, *EffectState])
def test_every_effect_can_come_to_an_end(state: EffectState | None) -> None:
    """From each state a final one can be reached, and none leads back into itself but by a person's word.

    A tombstone may stay one for ever, or be REVERSED once what a sleeper did was taken back.
    """
    final = {end for end in EffectState if not TRANSITIONS[end]}
    assert final == {EffectState.DECLINED, EffectState.REVERSED}
    assert TRANSITIONS[EffectState.VOIDED] == {EffectState.REVERSED}
    assert state in final or _reachable(state) & final
    assert state not in _reachable(state, by=WITHOUT_PEOPLE)


@pytest.mark.parametrize("state", sorted(UNDONE))
def test_what_was_undone_is_never_committed_again(state: EffectState) -> None:
    """A reset or second run never finds "its" charge again (T02), unless a person decided that it stands."""
    done_again = {EffectState.PENDING, EffectState.COMMITTED, EffectState.DECLINED}
    assert not _reachable(state, by=WITHOUT_PEOPLE) & done_again


def test_what_stands_is_exactly_what_may_have_been_done_and_not_been_taken_back() -> None:
    """A state that can still become REVERSED may have something outside; no other can.

    Of what is VOIDED the attempts say whether a sleeper may have done it since.
    """
    can_be_taken_back = {state for state in EffectState if EffectState.REVERSED in _reachable(state)}
    assert can_be_taken_back == STANDING | {EffectState.VOIDED}
