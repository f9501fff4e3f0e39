"""Keys that providers forget (I07): every combination of what a provider can, what it did, and how long ago.

Whatever an earlier attempt left in doubt, nothing is done twice outside, nothing is called absent or taken back without
proof, and what can be found out is found out.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta

import pytest

from orderflow.domain.effects import (
    Act,
    Busy,
    Capabilities,
    Done,
    EffectState,
    Found,
    Handle,
    Performed,
    Refused,
    Unavailable,
)
from orderflow.domain.errors import (
    AmountMismatch,
    CannotUndo,
    DeadlinePassed,
    EffectBusy,
    OrderflowError,
    OutcomeUnknown,
    ProviderUnavailable,
)
from orderflow.ledger import Claim, EffectLedger, EffectRecord
from tests.support.bank import Bank, Told
from tests.support.forgetful import ForgetfulProvider
from tests.support.ledger import CHARGE, LedgerDatabase, endings, perform, settle, state_of, undo

pytestmark = pytest.mark.timeout(60)

DAY = timedelta(hours=24)
NEVER = timedelta(0)
HORIZONS = (None, DAY, NEVER)
HANDLES = tuple(frozenset(chosen) for size in range(len(Handle) + 1) for chosen in itertools.combinations(Handle, size))
AGES = (timedelta(0), timedelta(hours=48))

NO_ANSWER, NEVER_CAME = "acted, and its answer was lost", "never reached"
REFUSED, UNAVAILABLE, BUSY = "refused", "said that it did not act", "was busy"
HAPPENED = (NO_ANSWER, NEVER_CAME, UNAVAILABLE, BUSY)
REFUSALS: dict[str, Performed] = {REFUSED: Refused(code="closed"), UNAVAILABLE: Unavailable(), BUSY: Busy()}


@dataclass(frozen=True)
class World:
    """What a provider declares, how long ago an effect was begun, and whether it still knows the key."""

    capabilities: Capabilities
    age: timedelta
    forgot: bool

    @property
    def by_reference(self) -> bool:
        return Handle.MERCHANT_REFERENCE in self.capabilities.lookup_by

    @property
    def key_is_kept(self) -> bool:
        return self.capabilities.key_horizon is None or self.age < self.capabilities.key_horizon

    @property
    def proves_absence(self) -> bool:
        return self.by_reference or (self.key_is_kept and Handle.KEY in self.capabilities.lookup_by)

    @property
    def finds_what_is_there(self) -> bool:
        return self.by_reference or (not self.forgot and Handle.KEY in self.capabilities.lookup_by)

    def pass_time(self, database: LedgerDatabase, provider: ForgetfulProvider) -> None:
        database.age(self.age)
        if self.forgot:
            provider.forget()


def worlds() -> Iterator[World]:
    """Every world in which no provider forgets more than it declared."""
    for horizon, handles, age in itertools.product(HORIZONS, HANDLES, AGES):
        capabilities = Capabilities(key_horizon=horizon, lookup_by=handles)
        may_forget = horizon is not None and age >= horizon
        for forgot in (True,) if horizon == NEVER else (False, True) if may_forget else (False,):
            yield World(capabilities, age, forgot)


def named(world: World) -> str:
    """The world in a word or four."""
    can = "+".join(sorted(world.capabilities.lookup_by)) or "blind"
    return f"{world.capabilities.key_horizon}-{can}-{world.age}-{'forgot' if world.forgot else 'knows'}"


each_world = pytest.mark.parametrize("world", list(worlds()), ids=named)


@dataclass
class Past:
    """What may have happened before, one after the other, in one world and one ledger."""

    database: LedgerDatabase
    ledger: EffectLedger
    world: World

    async def charging(self) -> AsyncIterator[tuple[str, ForgetfulProvider]]:
        """A first attempt to charge that left it at what happened."""
        for happened in HAPPENED:
            yield happened, await self._after(happened, perform, charged=False)

    async def refunding(self) -> AsyncIterator[tuple[str, ForgetfulProvider]]:
        """A charge, and a first attempt to give it back that left it at what happened."""
        for happened in (*HAPPENED, REFUSED):
            yield happened, await self._after(happened, undo, charged=True)

    async def _after(
        self, happened: str, attempt: Callable[..., Awaitable[EffectRecord]], *, charged: bool
    ) -> ForgetfulProvider:
        """The provider, well again, and as much later as the world says."""
        self.database.empty()
        provider = ForgetfulProvider(self.world.capabilities)
        if charged:
            await perform(self.ledger, provider)
        provider.arrives, provider.replies = happened != NEVER_CAME, happened != NO_ANSWER
        provider.refusal = REFUSALS.get(happened)
        with pytest.raises((OutcomeUnknown, ProviderUnavailable, EffectBusy, CannotUndo)):
            await attempt(self.ledger, provider)
        provider.arrives, provider.replies, provider.refusal, provider.sent = True, True, None, 0
        self.world.pass_time(self.database, provider)
        return provider


async def came_to(doing: Awaitable[EffectRecord | None]) -> EffectState | str | None:
    """The state of what it gave, the error that it raised, or `None` for a proof that nothing was done."""
    try:
        record = await doing
    except OrderflowError as error:
        return error.type.value
    return record.state if record else None


@each_world
async def test_what_may_have_been_sent_is_never_done_twice(
    database: LedgerDatabase, ledger: EffectLedger, world: World
) -> None:
    """I05, I07, T25: it is adopted, or sent again where that is safe, and otherwise nothing is sent, ever again."""
    async for happened, provider in Past(database, ledger, world).charging():
        ended = [await came_to(perform(ledger, provider)) for _ in range(3)]
        stood = happened == NO_ANSWER
        known = world.finds_what_is_there or world.key_is_kept if stood else world.proves_absence or world.key_is_kept
        known = known or happened == UNAVAILABLE
        assert ended == [EffectState.COMMITTED if known else "OutcomeUnknown"] * 3, happened
        assert len(provider.done) == (1 if stood or known else 0), happened
        assert known or provider.sent == 0, happened


@each_world
@pytest.mark.parametrize("void", [True, False])
async def test_the_last_look_calls_absent_only_what_is_proven(
    database: LedgerDatabase, ledger: EffectLedger, world: World, void: bool
) -> None:
    """I06, I07, T25: adopted, proven absent, or unknown; a provider that cannot look it up proves nothing."""
    async for happened, provider in Past(database, ledger, world).charging():
        ended = await came_to(settle(ledger, provider, void=void))
        if happened == NO_ANSWER:
            assert ended == (EffectState.COMMITTED if world.finds_what_is_there else "OutcomeUnknown")
        else:
            proven = world.proves_absence or happened == UNAVAILABLE
            assert ended == (None if proven else "OutcomeUnknown"), happened
            assert await state_of(ledger) == (EffectState.VOIDED if proven and void else EffectState.PENDING)
        assert (len(provider.done), provider.sent) == (happened == NO_ANSWER, 0)


@each_world
async def test_what_is_in_doubt_is_taken_back_or_stands(
    database: LedgerDatabase, ledger: EffectLedger, world: World
) -> None:
    """T02, I07: "nothing to take back" is believed only of a provider that would know of it."""
    async for happened, provider in Past(database, ledger, world).charging():
        ended = await came_to(undo(ledger, provider))
        again = await came_to(undo(ledger, provider))
        knows = world.key_is_kept or world.by_reference or (happened == NO_ANSWER and not world.forgot)
        assert ended == (EffectState.REVERSED if knows else "OutcomeUnknown"), happened
        assert again == ended
        assert ended != EffectState.REVERSED or provider.net_minor == 0, happened
        assert len(provider.back) <= len(provider.done) == (happened == NO_ANSWER)
        assert await came_to(perform(ledger, provider)) == "EffectReversed"
        assert len(provider.done) == (happened == NO_ANSWER)


@each_world
async def test_an_undo_that_may_have_been_sent_is_never_done_twice(
    database: LedgerDatabase, ledger: EffectLedger, world: World
) -> None:
    """I07, M04, T07: the undo's key is forgotten too; what an operator may retry is what surely did not happen."""
    async for happened, provider in Past(database, ledger, world).refunding():
        gave_back = len(provider.back) == 1
        ended = [await came_to(undo(ledger, provider)) for _ in range(2)]
        knows = world.by_reference or not world.forgot
        may_send = world.proves_absence or world.key_is_kept or happened in (UNAVAILABLE, REFUSED)
        done = (world.finds_what_is_there or world.key_is_kept) if gave_back else may_send and knows
        assert ended == [EffectState.REVERSED if done else "OutcomeUnknown"] * 2, happened
        assert provider.net_minor == (0 if gave_back or done else 1000), happened
        assert len(provider.back) == (gave_back or done), happened
        assert may_send or gave_back or provider.sent == 0, happened


@each_world
@pytest.mark.parametrize("by_hand", [300, 1000])
async def test_the_rest_is_given_back_and_believed_of_who_can_know(
    database: LedgerDatabase, ledger: EffectLedger, world: World, by_hand: int
) -> None:
    """M04: an operator refunded a part, or all; "already refunded" is success, unless the provider may mean nothing."""
    provider = ForgetfulProvider(world.capabilities)
    await perform(ledger, provider)
    provider.refund_by_hand(by_hand)
    world.pass_time(database, provider)
    ended = await came_to(undo(ledger, provider))
    knows = world.finds_what_is_there or world.key_is_kept
    assert ended == (EffectState.REVERSED if knows else "OutcomeUnknown")
    assert provider.net_minor == (0 if world.by_reference or not world.forgot else 1000 - by_hand)


@pytest.mark.parametrize("by", list(Handle))
async def test_a_charge_whose_key_was_forgotten_is_found_by_our_reference_or_by_nobody(
    database: LedgerDatabase, ledger: EffectLedger, by: Handle
) -> None:
    """I07: 48 hours later the provider forgot the key and holds the charge: adopted, or unknown; never a second one."""
    provider = ForgetfulProvider(Capabilities(lookup_by=frozenset({Handle.KEY, by})), replies=False)
    with pytest.raises(OutcomeUnknown):
        await perform(ledger, provider)
    provider.replies = True
    database.age(timedelta(hours=48))
    provider.forget()
    if by is Handle.MERCHANT_REFERENCE:
        record = await perform(ledger, provider)
        assert (record.state, record.reference) == (EffectState.COMMITTED, "by reference")
    else:
        for _ in range(3):
            with pytest.raises(OutcomeUnknown, match="unknown"):
                await perform(ledger, provider)
        assert (await endings(ledger))[1:] == ["unknown: the provider cannot tell any more"] * 3
    assert (len(provider.done), provider.sent) == (1, 1)


@pytest.mark.parametrize(("hours", "sent"), [(21, 2), (22, 1)])
async def test_the_last_tenth_of_a_horizon_does_not_count(
    database: LedgerDatabase, ledger: EffectLedger, hours: int, sent: int
) -> None:
    """I07: what is on its way, and clocks that differ, have 2.4 of 24 hours."""
    provider = ForgetfulProvider(Capabilities(), arrives=False)
    with pytest.raises(OutcomeUnknown):
        await perform(ledger, provider)
    database.age(timedelta(hours=hours))
    with pytest.raises(OutcomeUnknown):
        await perform(ledger, provider)
    assert provider.sent == sent


async def test_an_age_is_told_by_the_clock_that_wrote_the_row(database: LedgerDatabase, ledger: EffectLedger) -> None:
    """I07: hosts' clocks differ, so the database computes it, in whatever way a record is read."""
    await perform(ledger, ForgetfulProvider(Capabilities()))
    database.age(timedelta(hours=5))
    [listed] = await ledger.effects("order-1")
    claimed = await ledger.claim(CHARGE, holder="two", lease=timedelta(0))
    voided = await ledger.void(CHARGE)
    for record in (listed, claimed, voided, await ledger.get(CHARGE.key)):
        assert isinstance(record, EffectRecord)
        assert timedelta(hours=5) <= record.age < timedelta(hours=5, minutes=1)


async def test_a_takeover_tells_how_old_the_first_claim_is(database: LedgerDatabase, ledger: EffectLedger) -> None:
    """I07: the horizon is counted from the first claim, not from the newest one."""
    for age in (timedelta(0), timedelta(hours=5), timedelta(hours=10)):
        claim = await ledger.claim(CHARGE, holder="one", lease=timedelta(0))
        assert isinstance(claim, Claim)
        assert age <= claim.record.age < age + timedelta(minutes=1)
        database.age(timedelta(hours=5))


async def test_a_lookup_that_outlives_the_horizon_proves_nothing(
    database: LedgerDatabase, ledger: EffectLedger
) -> None:
    """I07: the time between looking and sending again counts too."""
    provider = SlowLookup(Capabilities(key_horizon=timedelta(seconds=10)), arrives=False)
    with pytest.raises(OutcomeUnknown):
        await perform(ledger, provider)
    database.age(timedelta(seconds=8, milliseconds=700))
    with pytest.raises(OutcomeUnknown):
        await perform(ledger, provider)
    assert provider.sent == 1


class SlowLookup(ForgetfulProvider):
    """A provider that takes its time to say that it knows nothing."""

    async def lookup(self, act: Act, by: Handle = Handle.KEY) -> Found:
        await asyncio.sleep(0.4)
        return await super().lookup(act, by)


@pytest.mark.parametrize("error", [RuntimeError("card 4242"), ProviderUnavailable("card 4242"), DeadlinePassed("x")])
async def test_what_a_provider_raises_is_no_word_of_it(ledger: EffectLedger, error: Exception) -> None:
    """I06: not even an error of ours: it may have acted, so a provider that cannot look up is not asked again."""
    bank = Bank(deque([Told(error, acts=True)]), capabilities=Capabilities(timedelta(0), frozenset()))
    for _ in range(2):
        with pytest.raises(OutcomeUnknown):
            await perform(ledger, bank)
    assert bank.calls == [("perform", CHARGE.key)]
    assert (await endings(ledger))[0] == f"unknown: the provider raised {type(error).__name__}"


async def test_a_refund_of_more_than_was_taken_is_no_success(ledger: EffectLedger) -> None:
    """M04: it is recorded as it is, and a person has to look, also when it is only found again."""
    bank = Bank()
    await perform(ledger, bank)
    bank.told.append(Told(Done(reference="re_1", amount_minor=1500)))
    for _ in range(2):
        with pytest.raises(AmountMismatch, match="1500"):
            await undo(ledger, bank)
    record = await ledger.get(CHARGE.key)
    assert record is not None
    assert (record.state, record.captured_minor, record.refunded_minor) == (EffectState.REVERSED, 1000, 1500)


@pytest.mark.parametrize("given", [0, 999])
async def test_a_refund_of_less_is_believed_when_the_state_says_so(ledger: EffectLedger, given: int) -> None:
    """M04: "already refunded" is success if nothing stands, whatever one answer says; the next look finds out."""
    bank = Bank()
    await perform(ledger, bank)
    bank.told.append(Told(Done(reference="re_1", amount_minor=given)))
    with pytest.raises(OutcomeUnknown):
        await undo(ledger, bank)
    assert (await endings(ledger))[-1] == "unknown: less was given back than stood"
    assert await state_of(ledger) == EffectState.REVERSING
    bank.refunded_by_hand(CHARGE, 1000)
    assert (await undo(ledger, bank)).state == EffectState.REVERSED
