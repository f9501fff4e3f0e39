"""The gate of one door, looked at turn by turn (issue 4: the intake gate)."""

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from orderflow.domain.errors import LedgerUnavailable
from orderflow.domain.intake import ALL_DOORS, OPENING_LOOKS, SILENT_LOOKS, Look
from orderflow.ingress.gate import FORGET_EVERY, NONCES_KEPT, TELL_EVERY, Gate
from orderflow.ledger.events import IntakeRecord
from orderflow.settings import Settings
from orderflow.webhooks import MAX_AGE, MAX_SKEW

NAME = "shop-1-4711"
AWAY = Look(fault="Temporal cannot be used at 10.0.0.7:7233 (refused)")
FINE = Look(oldest=timedelta(0), waiting=0)
OLD = Look(oldest=timedelta(seconds=61), waiting=5)


@dataclass
class Memory:
    """What gates say and have forgotten, as a ledger would keep it; `away` while it cannot be used."""

    away: bool = False
    said: list[IntakeRecord] = field(default_factory=list)
    operators: list[IntakeRecord] = field(default_factory=list)
    forgotten: list[timedelta] = field(default_factory=list)

    async def set_intake(self, scope: str, *, paused: bool, reason: str, changed_by: str) -> IntakeRecord:
        """Keep what a gate says."""
        if self.away:
            raise LedgerUnavailable("away")
        now = datetime(2026, 1, 1, tzinfo=UTC)
        self.said.append(IntakeRecord(scope, paused, reason, changed_by, now, now))
        return self.said[-1]

    async def intake(self) -> list[IntakeRecord]:
        """What operators said."""
        if self.away:
            raise LedgerUnavailable("away")
        return self.operators

    async def forget_nonces(self, period: timedelta) -> int:
        """Note that it was asked for."""
        if self.away:
            raise LedgerUnavailable("away")
        self.forgotten.append(period)
        return 0


class Door:
    """A gate whose looks are scripted, with a clock of the test's."""

    def __init__(self, **settings: int) -> None:
        self.ledger = Memory()
        self.seen: deque[Look | Exception] = deque()
        self.now = 1000.0
        self.gate = Gate(
            self.ledger,  # type: ignore[arg-type]
            None,  # type: ignore[arg-type]
            Settings(**settings),  # type: ignore[arg-type]
            NAME,
            observe=self._observe,
            clock=lambda: self.now,
        )

    async def _observe(self) -> Look:
        seen = self.seen.popleft() if self.seen else FINE
        if isinstance(seen, Exception):
            raise seen
        return seen

    async def sees(self, looks: Iterable[Look]) -> None:
        """Let it look so often, and tell after each look."""
        for look in looks:
            self.seen.append(look)
            await self.gate.look()
            await self.gate.tell()

    @property
    def said(self) -> list[bool]:
        """What it said in the ledger: whether it is closed."""
        return [record.paused for record in self.ledger.said]


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> Door:
    """A door that is new."""
    monkeypatch.delenv("ORDERFLOW_INTAKE_BACKLOG_LIMIT", raising=False)
    return Door()


async def test_a_door_is_open_before_its_first_look(door: Door) -> None:
    """It has reached Temporal to get this far; what a start meets is told by the start."""
    assert door.gate.verdict() is None


async def test_a_door_closes_while_temporal_is_away_and_opens_again(door: Door) -> None:
    """One lost answer closes nothing."""
    await door.sees([AWAY] * (SILENT_LOOKS - 1))
    assert door.gate.verdict() is None
    await door.sees([AWAY])
    assert door.gate.verdict() is not None
    await door.sees([FINE] * (OPENING_LOOKS - 1))
    assert door.gate.verdict() is not None
    await door.sees([FINE])
    assert door.gate.verdict() is None


async def test_a_door_closes_at_once_on_a_task_that_waits_too_long(door: Door) -> None:
    """And says when to come back."""
    await door.sees([OLD])
    closed = door.gate.verdict()
    assert closed is not None
    assert closed.retry_after > 0


async def test_the_limit_is_a_setting_and_zero_is_none() -> None:
    """`ORDERFLOW_INTAKE_BACKLOG_LIMIT`."""
    for limit, closes in ((0, False), (61, False), (60, True)):
        door = Door(intake_backlog_limit=limit)
        await door.sees([OLD])
        assert (door.gate.verdict() is not None) is closes


async def test_senders_learn_no_address_and_operators_do(door: Door) -> None:
    """What stands in an answer to the world says nothing of the inside."""
    await door.sees([AWAY] * SILENT_LOOKS)
    closed = door.gate.verdict()
    assert closed is not None
    assert "10.0.0.7" not in closed.reason
    assert door.ledger.said[-1].reason == AWAY.fault
    door.now += TELL_EVERY.total_seconds()
    await door.sees([FINE])
    assert [record.reason for record in door.ledger.said] == ["", AWAY.fault, AWAY.fault]


async def test_a_door_tells_the_ledger_what_changed_and_nothing_twice(door: Door) -> None:
    """Under its own name, so that nothing of it looks like an operator's word."""
    await door.sees([FINE, FINE, AWAY, AWAY, AWAY, OLD, OLD, *[FINE] * OPENING_LOOKS, FINE])
    assert door.said == [False, True, True, False]
    assert {(record.scope, record.changed_by) for record in door.ledger.said} == {(NAME, NAME)}


async def test_a_door_that_does_not_change_still_shows_that_it_is_there(door: Door) -> None:
    """`seen_at` is what `status` goes by."""
    await door.sees([FINE])
    door.now += TELL_EVERY.total_seconds() - 0.1
    await door.sees([FINE])
    assert door.said == [False]
    door.now += 0.1
    await door.sees([FINE])
    assert door.said == [False, False]


async def test_a_ledger_that_was_away_hears_of_the_change_later(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    """The door knows its verdict meanwhile; the log says once that the ledger does not."""
    await door.sees([FINE])
    door.ledger.away = True
    await door.sees([OLD, OLD])
    assert caplog.text.count("does not hear of this door") == 1
    assert door.gate.verdict() is not None
    assert door.said == [False]
    door.ledger.away = False
    await door.gate.tell()
    assert door.said == [False, True]


async def test_what_operators_say_is_logged_once_and_no_verdict_of_the_door(
    door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    """The ledger keeps only who said something last; `receive` is what heeds it."""
    caplog.set_level("INFO")
    now = datetime(2026, 1, 1, tzinfo=UTC)
    door.ledger.operators = [IntakeRecord(ALL_DOORS, True, "stocktaking", "carol", now, now)]
    await door.sees([FINE, FINE])
    assert door.gate.verdict() is None
    later = now + timedelta(hours=1)
    door.ledger.operators = [IntakeRecord(ALL_DOORS, False, "", "oscar", later, later)]
    await door.sees([FINE, FINE])
    said = [line for line in caplog.messages if "intake" in line]
    assert [line.split(" at ")[0] for line in said] == ["carol paused intake", "oscar opened intake"]
    assert said[0].endswith("stocktaking")


async def test_old_nonces_are_forgotten_now_and_then(door: Door) -> None:
    """W: those that could no longer be accepted anyway."""
    await door.sees([FINE, FINE])
    door.now += FORGET_EVERY.total_seconds()
    await door.sees([FINE])
    assert door.ledger.forgotten == [NONCES_KEPT] * 2
    assert MAX_AGE + MAX_SKEW < NONCES_KEPT


async def test_the_watch_goes_on_after_an_error_that_nobody_expected(
    door: Door, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watch that ended would leave the door as it stands for ever; the log says what happened."""
    monkeypatch.setattr("orderflow.ingress.gate.LOOK_EVERY", timedelta(0))
    door.seen.extend([ValueError("a bug"), OLD])
    watching = asyncio.create_task(door.gate.watch())
    async with asyncio.timeout(5):
        while True not in door.said:
            await asyncio.sleep(0)
        while door.gate.verdict() is not None:
            await asyncio.sleep(0)
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching
    assert "a bug" in caplog.text
