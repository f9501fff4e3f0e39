"""The effect store: one act, whoever dies between two steps and whoever else is at work."""

import asyncio
from collections import deque
from collections.abc import Callable
from datetime import timedelta

import pytest

from orderflow.domain.effects import Busy, Done, EffectState, Unavailable, Unknown
from orderflow.domain.errors import ClaimLost, EffectBusy, EffectReversed, OutcomeUnknown, ProviderUnavailable
from orderflow.ledger import EffectLedger
from tests.support.bank import Bank, Killed, Told
from tests.support.ledger import (
    CHARGE,
    LONG,
    PATIENT,
    PENDING,
    LedgerDatabase,
    WatchedLedger,
    dies,
    perform,
    settle,
    undo,
)

pytestmark = pytest.mark.timeout(30)

DEATHS = ["before claim", "after claim", "before acting", "after acting", "before settle", "after settle"]

FIRST_ANSWERS = {
    "done": None,
    "lost reply": Told(Unknown(), acts=True),
    "accepted": Told(PENDING, acts=True),
    "timeout": Told(Unknown()),
    "unavailable": Told(Unavailable()),
    "busy": Told(Busy()),
    "bug": Told(RuntimeError(), acts=True),
}


def dying(ledger: EffectLedger, bank: Bank, death: str, **methods: str) -> WatchedLedger:
    """A ledger, or a bank, at which the process dies."""
    watched = WatchedLedger(ledger)
    when, where = death.split()
    if where == "acting":
        bank.told.appendleft(Told(Killed(), acts=when == "after"))
    else:
        hooks = watched.before if when == "before" else watched.after
        hooks[methods.get(where, where)] = dies
    return watched


@pytest.mark.parametrize("answer", FIRST_ANSWERS)
@pytest.mark.parametrize("death", DEATHS)
async def test_killed_between_any_two_steps_of_a_charge_there_is_one_charge(
    ledger: EffectLedger, death: str, answer: str
) -> None:
    """Retried by another worker, whatever the provider answered when the first one died (I05, T25)."""
    told = FIRST_ANSWERS[answer]
    bank = Bank(deque([told] if told else []))
    with pytest.raises(Killed):
        await perform(dying(ledger, bank, death), bank)
    assert bank.acts("charge") <= 1
    for _ in range(3):
        try:
            record = await perform(ledger, bank)
            break
        except (OutcomeUnknown, ProviderUnavailable, EffectBusy):
            continue
    else:
        pytest.fail("not done after three attempts")
    assert (record.state, record.captured_minor) == (EffectState.COMMITTED, 1000)
    assert bank.acts("charge") == 1


@pytest.mark.parametrize("answer", FIRST_ANSWERS)
@pytest.mark.parametrize("death", DEATHS)
async def test_killed_between_any_two_steps_of_a_refund_there_is_one_refund(
    ledger: EffectLedger, death: str, answer: str
) -> None:
    """The undo has a key of its own and is looked up before it is tried again (T07)."""
    bank = Bank()
    await perform(ledger, bank)
    bank.told.extend([told] if (told := FIRST_ANSWERS[answer]) else [])
    with pytest.raises(Killed):
        await undo(dying(ledger, bank, death, claim="claim_undo", settle="settle_undo"), bank)
    for _ in range(3):
        try:
            record = await undo(ledger, bank)
            break
        except (OutcomeUnknown, ProviderUnavailable, EffectBusy):
            continue
    else:
        pytest.fail("not undone after three attempts")
    assert (record.state, record.refunded_minor) == (EffectState.REVERSED, 1000)
    assert (bank.acts("charge"), bank.acts("refund"), bank.net()) == (1, 1, 0)


@pytest.mark.parametrize("death", DEATHS)
async def test_a_charge_that_died_anywhere_can_be_undone_and_never_comes_back(ledger: EffectLedger, death: str) -> None:
    """Whatever the dead attempt did, the refund balances it, and a late attempt is refused (T02, T05)."""
    bank = Bank()
    with pytest.raises(Killed):
        await perform(dying(ledger, bank, death), bank)
    bank.told.clear()
    record = await undo(ledger, bank)
    assert record.state in {EffectState.REVERSED, EffectState.VOIDED}
    assert bank.net() == 0
    with pytest.raises(EffectReversed):
        await perform(ledger, bank)
    assert bank.net() == 0


async def test_two_workers_make_one_call(database: LedgerDatabase) -> None:
    """The second waits while the first is at the provider, then gives the first one's record (I03)."""
    gate = asyncio.Event()
    bank = Bank(deque([Told(Done(reference="ch_1", amount_minor=1000), acts=True, gate=gate)]))
    ledger, other = await database.open(), WatchedLedger(await database.open())
    other.failed["claim"] = asyncio.Event()
    first = asyncio.create_task(perform(ledger, bank, lease=LONG))
    await bank.entered.wait()
    second = asyncio.create_task(perform(other, bank, lease=LONG, patience=PATIENT))
    await other.failed["claim"].wait()
    gate.set()
    assert await first == await second
    assert bank.calls == [("perform", CHARGE.key)]


async def test_many_stores_racing_on_one_key_make_one_call(ledger: EffectLedger) -> None:
    """All get the same record."""
    bank = Bank()
    racing = (perform(ledger, bank, lease=LONG, patience=PATIENT) for _ in range(30))
    records = await asyncio.gather(*racing)
    assert len(set(records)) == 1
    assert bank.calls == [("perform", CHARGE.key)]


@pytest.mark.parametrize("do", [perform, undo, lambda ledger, bank: settle(ledger, bank, void=True)])
async def test_beyond_patience_a_busy_effect_says_when_to_come_back(
    ledger: EffectLedger, do: Callable[[EffectLedger, Bank], object]
) -> None:
    """A delay, not an end: nobody is asked, and the rest of the lease is known."""
    await ledger.claim(CHARGE, holder="other", lease=timedelta(seconds=60))
    bank = Bank()
    with pytest.raises(EffectBusy) as caught:
        await do(ledger, bank)  # type: ignore[misc]  # each gives an awaitable of its own kind
    assert caught.value.retry_after is not None
    assert 0 < caught.value.retry_after <= 60
    assert bank.calls == []


async def test_a_late_holder_changes_nothing(ledger: EffectLedger) -> None:
    """Past its lease another adopted the charge; when the first wakes up it is told so (D06)."""
    gate = asyncio.Event()
    bank = Bank(deque([Told(Done(reference="late", amount_minor=1000), acts=True, gate=gate)]))
    late = asyncio.create_task(perform(ledger, bank))
    await bank.entered.wait()
    record = await perform(ledger, bank)
    gate.set()
    with pytest.raises(ClaimLost):
        await late
    assert await ledger.get(CHARGE.key) == record
    assert bank.acts("charge") == 1
