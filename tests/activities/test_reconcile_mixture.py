"""Five hundred orders in every mixture of what Temporal, the ledger and the providers say: the books end right."""

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orderflow.contracts import Finding
from orderflow.domain.effects import EffectState
from orderflow.domain.reconciliation import CHANGES, Fate
from orderflow.ledger.review import Ledger
from orderflow.providers.simulated import SimulatedWorld
from tests.support.reconciling import STEPS, Known, Office, Situation, Truth, situations

LOST = (Fate.TERMINATED, Fate.TIMED_OUT, Fate.VANISHED)
IN_THE_AIR = (EffectState.PENDING, EffectState.REVERSING)

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def office(ledger: Any, tmp_path: Path) -> Office:
    """A ledger on each database, and a world of its own."""
    return Office(ledger, SimulatedWorld(tmp_path / "world.jsonl"))


@pytest.fixture
def seed() -> int:
    """Shown with each failure; set it here to see that one again."""
    return random.SystemRandom().randrange(10**9)


async def set_up(office: Office, number: int, seed: int) -> dict[str, Situation]:
    """Bring about that many situations; gives them by order."""
    made = {}
    for situation in situations(number, seed):
        order = office.order(situation.fate, situation.stage)
        for step, (truth, known) in situation.steps.items():
            await office.effect(order, step, truth, known)
        made[order] = situation
    return made


class Acts:
    """How often each step was done and taken back at its provider, up to now."""

    def __init__(self, office: Office) -> None:
        self.done: Counter[tuple[object, object]] = Counter()
        self.undone: Counter[tuple[object, object]] = Counter()
        for line in office.world.log():
            if line["kind"] == "act" and line["outcome"] == "done":
                counted = self.undone if "of" in line else self.done
                counted[line["workflow_id"], line["step"]] += 1

    def stands(self, order: str, step: str) -> bool:
        return self.done[order, step] > self.undone[order, step]


@dataclass(frozen=True)
class Seen:
    """One step of one order: what was true and known, and how it is after a run."""

    fate: Fate
    step: str
    truth: Truth
    known: Known
    stood: bool
    stands: bool
    state: EffectState | None
    in_review: bool

    @property
    def can_undo(self) -> bool:
        return self.step != "notify"

    @property
    def is_denied(self) -> bool:
        """Whether it stands, and the ledger swears that it never was done."""
        return self.known in (Known.VOIDED, Known.DECLINED) and self.stands


def check(seen: Seen) -> None:
    """Whether this is how it has to be."""
    if seen.known is Known.HELD:
        assert (seen.state, seen.in_review) == (EffectState.PENDING, False), "somebody is at work on it"
        assert seen.stood is seen.stands
    elif seen.fate is Fate.OPEN:
        check_open(seen)
    else:
        assert seen.in_review is waits_for_people(seen)
        assert seen.state not in IN_THE_AIR or seen.in_review or may_still_be_done(seen), "left in the air"
        if seen.fate is Fate.FAILED and seen.can_undo:
            assert not seen.stands or seen.is_denied or seen.known is Known.REVERSED
        else:
            assert seen.stood is seen.stands, "taken back by nobody's word"


def may_still_be_done(seen: Seen) -> bool:
    """Whether it was never done and its order may come again (T45): a tombstone would make that order fail."""
    return (seen.fate, seen.truth, seen.state) == (Fate.VANISHED, Truth.NEVER, EffectState.PENDING)


def check_open(seen: Seen) -> None:
    """Its workflow is responsible: the ledger learns what it had forgotten, and nothing else happens."""
    assert (seen.stood, seen.in_review) == (seen.stands, False)
    forgot_the_undo = seen.known in (Known.PENDING, Known.COMMITTED, Known.REVERSING, Known.NOTHING)
    if seen.truth is Truth.UNDONE and forgot_the_undo:
        assert seen.state is EffectState.REVERSED
    elif seen.known is Known.NOTHING:
        assert seen.state is (EffectState.COMMITTED if seen.truth is Truth.DONE else None)
    else:
        assert seen.state == EffectState(seen.known)


def waits_for_people(seen: Seen) -> bool:
    """Whether a person has to decide about a step of an order that has ended."""
    if seen.is_denied:
        return True
    if seen.fate is Fate.FAILED or not seen.can_undo:
        return seen.fate is Fate.VANISHED and seen.known is Known.NOTHING and seen.stands
    if seen.fate is Fate.COMPLETED:
        return seen.known is Known.REVERSING and seen.truth is not Truth.UNDONE
    claimed = seen.known in (Known.COMMITTED, Known.REVERSING) and seen.truth is not Truth.UNDONE
    return claimed or (seen.stands and seen.known is not Known.REVERSED)


async def test_whatever_the_three_witnesses_say_the_books_end_right(office: Office, seed: int) -> None:
    """T53, T45, I06: nothing is done anew, failed orders leave nothing, lost ones are before people, twice is once."""
    made = await set_up(office, 500, seed)
    before = Acts(office)
    report = await office.reconcile()
    after = Acts(office)
    assert after.done == before.done, f"seed {seed}: something was done anew"
    assert "failed" not in report.counts, f"seed {seed}: {report.findings}"
    for order, situation in made.items():
        shown = await office.in_review(order)
        for step in STEPS:
            pair = situation.steps.get(step, (Truth.NEVER, Known.NOTHING))
            stood, stands = before.stands(order, step), after.stands(order, step)
            seen = Seen(situation.fate, step, *pair, stood, stands, await office.state(order, step), step in shown)
            try:
                check(seen)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}: {order}: {seen}") from error
    again = await office.reconcile()
    assert again.changes == 0, f"seed {seed}: {again.counts}"
    assert Acts(office).undone == after.undone, f"seed {seed}: a second run took something back"


async def test_a_dry_run_tells_what_a_run_then_does(office: Office, seed: int) -> None:
    """And writes nothing: neither in the ledger nor at a provider."""
    made = await set_up(office, 60, seed)
    log, rows = acts_of(office), await everything(office.ledger, made)
    dry = await office.reconcile(dry_run=True)
    assert acts_of(office) == log
    assert await everything(office.ledger, made) == rows
    assert dry.changes == 0
    assert {each.what for each in dry.findings}.isdisjoint(CHANGES)
    real = await office.reconcile()
    assert {without_would(what): number for what, number in dry.counts.items()} == real.counts, f"seed {seed}"
    assert told(dry.findings) == told(real.findings), f"seed {seed}"


def told(findings: Iterable[Finding]) -> set[tuple[str, str, str | None]]:
    """What was or would be done about which effect."""
    return {(without_would(each.what), each.order, each.key) for each in findings}


def without_would(what: str) -> str:
    """`opened` for `would_be_opened`."""
    return what.removeprefix("would_be_")


def acts_of(office: Office) -> list[Any]:
    """All that a provider ever wrote down but questions."""
    return [line for line in office.world.log() if line["kind"] != "lookup"]


async def everything(ledger: Ledger, orders: Iterable[str]) -> list[Any]:
    """All that the ledger says of these orders."""
    return [
        (
            await ledger.effects(order),
            await ledger.attempts(order),
            await ledger.reviews_of(order),
            await ledger.ending(order),
        )
        for order in orders
    ]
