"""Tombstones of what was claimed: a holder that slept wakes up after its absence was proven, and acts."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from orderflow.domain.effects import Absent, Capabilities, Done, EffectState, Found, Refused, Unavailable, Unknown
from orderflow.domain.errors import ClaimLost, EffectReversed, OutcomeUnknown, ProviderUnavailable
from orderflow.domain.operations import Resolution
from orderflow.ledger import EffectLedger, EffectRecord
from orderflow.ledger.effects import EffectStore
from orderflow.ledger.review import Ledger
from orderflow.providers.simulated import SimulatedWorld
from orderflow.providers.simulation.faults import Fault
from tests.support.bank import Bank, Told
from tests.support.ledger import (
    CHARGE,
    NO_TIME,
    PENDING,
    REFUND,
    LedgerDatabase,
    WatchedLedger,
    endings,
    perform,
    settle,
    state_of,
    undo,
)

pytestmark = pytest.mark.timeout(60)

ORDER = CHARGE.workflow_id
BEGUN = pytest.mark.parametrize("begun", [True, False], ids=["undo begun", "no undo yet"])


@pytest.fixture
async def ledger(database: LedgerDatabase) -> Ledger:
    """A ledger with all that is kept for people."""
    opened: Ledger = await database.open()  # type: ignore[assignment]
    return opened


async def voided_in_its_sleep(ledger: EffectLedger, bank: Bank) -> None:
    """Leave a tombstone, and a holder of whom nobody knows what becomes of it."""
    await ledger.claim(CHARGE, holder="sleeper", lease=NO_TIME)
    assert await settle(ledger, bank, void=True) is None
    bank.calls.clear()


@asynccontextmanager
async def sleeper(ledger: EffectLedger, world: SimulatedWorld) -> AsyncIterator[asyncio.Event]:
    """A worker has claimed the charge and not sent it, and its last look was taken. Set the event and it goes on."""
    asleep, wakes = asyncio.Event(), asyncio.Event()

    async def sleeps() -> None:
        asleep.set()
        await wakes.wait()

    watched = WatchedLedger(ledger)
    watched.after["claim"] = sleeps
    charging = asyncio.create_task(perform(watched, world.provider("payments")))
    await asleep.wait()
    assert await settle(ledger, world.provider("payments"), void=True) is None
    yield wakes
    with pytest.raises(ClaimLost):
        await charging


def sent(world: SimulatedWorld) -> list[tuple[object, object]]:
    """What the provider was asked to do, and what came of it."""
    return [(line["operation"], line["outcome"]) for line in world.log() if line["kind"] == "act"]


async def test_what_a_sleeper_did_after_the_last_look_is_taken_back(ledger: Ledger, world: SimulatedWorld) -> None:
    """T25, D06: its write is refused, its charge was made; the undo of the tombstone finds it, once."""
    async with sleeper(ledger, world) as wakes:
        wakes.set()
    assert (await state_of(ledger), world.net_charged(ORDER)) == (EffectState.VOIDED, 1000)
    assert [record.key for record in await EffectStore(ledger).standing(ORDER)] == [CHARGE.key]

    record = await undo(ledger, world.provider("payments"))
    assert (record.state, record.captured_minor, record.refunded_minor) == (EffectState.REVERSED, 1000, 1000)
    assert await undo(ledger, world.provider("payments")) == record
    assert sent(world) == [("charge", "done"), ("refund", "done")]
    assert await EffectStore(ledger).standing(ORDER) == []


async def test_a_sleeper_that_wakes_up_after_the_undo_is_refused_by_the_provider(
    ledger: Ledger, world: SimulatedWorld
) -> None:
    """T02: the undo of a tombstone takes nothing back and closes the key there; asked again, nobody is called."""
    async with sleeper(ledger, world) as wakes:
        record = await undo(ledger, world.provider("payments"))
        assert (record.state, record.refunded_minor) == (EffectState.VOIDED, None)
        assert await state_of(ledger, REFUND.key) == EffectState.COMMITTED
        wakes.set()
    assert (world.net_charged(ORDER), await state_of(ledger)) == (0, EffectState.VOIDED)
    assert await undo(ledger, world.provider("payments")) == record
    assert sent(world) == [("refund", "voided"), ("charge", "refused")]


async def test_an_undo_that_met_a_sleeper_on_its_way_takes_it_back(ledger: Ledger, world: SimulatedWorld) -> None:
    """The reply of the undo is lost, so it is looked up: the amount that it gave back is found, and written down."""
    async with sleeper(ledger, world) as wakes:
        wakes.set()
    world.add_fault(Fault(kind="lost_reply", operation="refund"))
    with pytest.raises(OutcomeUnknown):
        await undo(ledger, world.provider("payments"))
    assert await state_of(ledger) == EffectState.VOIDED
    record = await undo(ledger, world.provider("payments"))
    assert (record.state, record.refunded_minor, world.net_charged(ORDER)) == (EffectState.REVERSED, 1000, 0)


@pytest.mark.parametrize("answer", [Unavailable(), Absent()], ids=lambda answer: answer.answer)
async def test_nobody_is_asked_where_no_attempt_can_have_acted(ledger: Ledger, answer: Found) -> None:
    """I09: each attempt has ended, and by the provider's word without an act: there is nobody left to wake up."""
    for _ in range(2):
        claim = await ledger.claim(CHARGE, holder="one", lease=NO_TIME)
        assert not isinstance(claim, EffectRecord)
        await ledger.settle(claim, answer)
    bank = Bank()
    assert await settle(ledger, bank, void=True) is None
    before = await ledger.get(CHARGE.key)
    bank.calls.clear()
    assert await undo(ledger, bank) == before
    assert (bank.calls, await state_of(ledger, REFUND.key)) == ([], None)
    assert await EffectStore(ledger).standing(ORDER) == []


@pytest.mark.parametrize("looked_at", [True, False], ids=["by the last look", "by the undo"])
async def test_nobody_is_asked_for_what_was_never_claimed(ledger: Ledger, looked_at: bool) -> None:
    """T08: a tombstone of what was never seen, whoever wrote it."""
    bank = Bank()
    if looked_at:
        assert await settle(ledger, bank, void=True) is None
    assert (await undo(ledger, bank)).state == EffectState.VOIDED
    assert (bank.calls, await state_of(ledger, REFUND.key)) == ([], None)
    assert await EffectStore(ledger).standing(ORDER) == []


@pytest.mark.parametrize("answer", [None, Unknown(), PENDING], ids=["open", "unknown", "pending"])
async def test_the_provider_is_asked_once_where_an_attempt_may_have_acted(ledger: Ledger, answer: Found | None) -> None:
    """T25: one that did not end, or did not end in an answer. Nothing taken back is no reversal."""
    claim = await ledger.claim(CHARGE, holder="one", lease=NO_TIME)
    assert not isinstance(claim, EffectRecord)
    if answer:
        await ledger.settle(claim, answer)
    bank = Bank()
    assert await settle(ledger, bank, void=True) is None
    bank.calls.clear()
    for _ in range(2):
        assert (await undo(ledger, bank)).state == EffectState.VOIDED
    assert bank.calls == [("undo", REFUND.key)]


async def test_what_has_no_amount_and_was_taken_back_is_reversed(ledger: Ledger) -> None:
    """A release gives back no money; only an amount of 0 says that there was nothing (M04)."""
    bank = Bank(deque([Told(Done(reference="rel_1"))]))
    await voided_in_its_sleep(ledger, bank)
    assert (await undo(ledger, bank)).state == EffectState.REVERSED


async def test_a_tombstone_stays_one_while_its_undo_is_claimed(ledger: Ledger) -> None:
    """T07: two undoers at once are one, and no forward claim is let in meanwhile (T02)."""
    await voided_in_its_sleep(ledger, Bank())
    before = await ledger.get(CHARGE.key)
    assert not isinstance(await ledger.claim_undo(REFUND, CHARGE, holder="one", lease=NO_TIME), EffectRecord)
    assert await ledger.get(CHARGE.key) == before
    with pytest.raises(EffectReversed):
        await ledger.claim(CHARGE, holder="two", lease=NO_TIME)


async def test_a_provider_that_cannot_be_asked_leaves_the_tombstone_open(
    ledger: Ledger, database: LedgerDatabase
) -> None:
    """T53: what a sleeper did may stand: it is unsettled and not forgotten until somebody knows."""
    bank = Bank(deque([Told(Unavailable()), Told(Refused(code="closed"))]))
    await voided_in_its_sleep(ledger, bank)
    await ledger.end_order(ORDER, "terminated")
    assert not (await ledger.unsettled("", 9)).orders
    with pytest.raises(ProviderUnavailable):
        await undo(ledger, bank)
    assert (await state_of(ledger), await state_of(ledger, REFUND.key)) == (EffectState.VOIDED, EffectState.PENDING)
    assert [*(await ledger.unsettled("", 9)).orders] == [CHARGE.key]
    [order] = await ledger.forget(timedelta(0), None, 9)
    assert (order.still_open, await state_of(ledger)) == (1, EffectState.VOIDED)

    bank.told.clear()
    assert (await undo(ledger, bank)).state == EffectState.VOIDED
    assert not (await ledger.unsettled("", 9)).orders
    await ledger.forget(timedelta(0), None, 9)
    assert await ledger.effects(ORDER) == []


@BEGUN
@pytest.mark.parametrize(
    ("outcome", "state"), [(Resolution.TAKEN_BACK, EffectState.REVERSED), (Resolution.KEPT, EffectState.VOIDED)]
)
async def test_no_undo_of_a_tombstone_acts_after_a_persons_word(
    ledger: Ledger, begun: bool, outcome: Resolution, state: EffectState
) -> None:
    """A person looked where the provider could not be asked; said twice it changes nothing."""
    bank = Bank(deque([Told(Unavailable())]))
    await voided_in_its_sleep(ledger, bank)
    if begun:
        with pytest.raises(ProviderUnavailable):
            await undo(ledger, bank)
    bank.calls.clear()
    record = await ledger.resolve(CHARGE.key, REFUND.key, outcome)
    assert record is not None
    assert record.state == state
    assert await ledger.resolve(CHARGE.key, REFUND.key, outcome) == record
    assert await state_of(ledger, REFUND.key) == EffectState.VOIDED
    if outcome is Resolution.TAKEN_BACK:
        assert await undo(ledger, bank) == record
    else:
        with pytest.raises(EffectReversed):
            await undo(ledger, bank)
    assert not (await ledger.unsettled("", 9)).orders
    assert (bank.calls, await EffectStore(ledger).standing(ORDER)) == ([], [])


@pytest.mark.parametrize(("passed", "is_believed"), [(2, True), (22, False)])
async def test_nothing_to_take_back_is_believed_for_as_long_as_a_late_key_is_remembered(
    ledger: Ledger, database: LedgerDatabase, passed: int, is_believed: bool
) -> None:
    """I07: what a sleeper did is younger than the tombstone, so the provider's memory counts from there (hours)."""
    bank = Bank(capabilities=Capabilities(key_horizon=timedelta(hours=24)))
    await ledger.claim(CHARGE, holder="sleeper", lease=NO_TIME)
    database.age(timedelta(hours=20))
    assert await settle(ledger, bank, void=True) is None
    database.age(timedelta(hours=passed))
    if is_believed:
        assert (await undo(ledger, bank)).state == EffectState.VOIDED
    else:
        with pytest.raises(OutcomeUnknown):
            await undo(ledger, bank)
    assert (await endings(ledger))[-1] == ("done" if is_believed else "unknown: the provider cannot tell any more")
