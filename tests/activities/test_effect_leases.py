"""Claims: renewed while the provider works, given back and written down however often the holder is cancelled."""

import asyncio
from collections import deque
from datetime import timedelta

import pytest

from orderflow.domain.effects import Done, EffectState, Unknown
from orderflow.domain.errors import ClaimLost, LedgerUnavailable
from orderflow.ledger import Claim, EffectLedger, EffectRecord, leases
from tests.support.bank import Bank, Told
from tests.support.ledger import LONG, NO_TIME, WatchedLedger, endings, perform, undo

pytestmark = pytest.mark.timeout(30)

FOR_EVER = timedelta(days=1)


async def test_a_lease_is_renewed_while_the_provider_works(ledger: EffectLedger) -> None:
    """A slow provider does not cost the claim."""
    gate = asyncio.Event()
    watched = WatchedLedger(ledger)

    async def enough() -> None:
        if watched.count["renew"] == 2:
            gate.set()

    watched.after["renew"] = enough
    bank = Bank(deque([Told(Done(reference="ch_1"), acts=True, gate=gate)]))
    await perform(watched, bank, lease=timedelta(milliseconds=150))
    assert watched.count["renew"] >= 2


async def test_renewing_goes_on_through_an_outage_and_ends_with_the_claim() -> None:
    """A ledger that is away for a moment is tried again; a claim that is lost is not."""
    failures = [LedgerUnavailable("away"), LedgerUnavailable("away"), ClaimLost("gone")]

    class Failing:
        async def renew(self, claim: Claim, lease: timedelta) -> None:
            raise failures.pop(0)

    await leases._renew(Failing(), None, NO_TIME)  # type: ignore[arg-type]  # renewing needs no more
    assert failures == []


async def cancel(task: asyncio.Task[EffectRecord]) -> None:
    """Cancel and see it end so."""
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("acts", [True, False])
async def test_cancelled_at_the_provider_the_undo_need_not_wait(ledger: EffectLedger, acts: bool) -> None:
    """The lease is given back, the outcome noted as unknown, and the undo balances what was done (T02)."""
    bank = Bank(deque([Told(Unknown(), acts=acts, gate=asyncio.Event())]))
    task = asyncio.create_task(perform(ledger, bank, lease=FOR_EVER))
    await bank.entered.wait()
    await cancel(task)
    assert await endings(ledger) == ["unknown: cancelled"]
    assert (await undo(ledger, bank)).state == EffectState.REVERSED
    assert bank.net() == 0


async def test_a_cancelled_undo_is_given_back_too(ledger: EffectLedger) -> None:
    """The next one looks first and refunds once."""
    bank = Bank()
    await perform(ledger, bank)
    bank.entered.clear()
    bank.told.append(Told(Unknown(), acts=True, gate=asyncio.Event()))
    task = asyncio.create_task(undo(ledger, bank, lease=FOR_EVER))
    await bank.entered.wait()
    await cancel(task)
    assert (await undo(ledger, bank)).state == EffectState.REVERSED
    assert bank.acts("refund") == 1


@pytest.mark.parametrize("method", ["before claim", "after claim", "before settle", "after settle"])
async def test_cancelled_in_the_ledger_every_step_is_finished(ledger: EffectLedger, method: str) -> None:
    """However often: a claim is given back, a result is written, and then the cancellation is seen."""
    reached, gate = asyncio.Event(), asyncio.Event()
    watched = WatchedLedger(ledger)

    async def stop() -> None:
        reached.set()
        await gate.wait()

    when, where = method.split()
    (watched.before if when == "before" else watched.after)[where] = stop
    bank = Bank()
    task = asyncio.create_task(perform(watched, bank, lease=FOR_EVER))
    await reached.wait()
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    assert not task.done()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await endings(ledger) == (["absent"] if where == "claim" else ["done"])
    assert (await perform(ledger, bank)).state == EffectState.COMMITTED
    assert bank.acts("charge") == 1


async def test_a_cancellation_is_seen_also_when_the_ledger_is_away(ledger: EffectLedger) -> None:
    """It is never turned into another error."""

    async def away() -> None:
        raise LedgerUnavailable("away")

    watched = WatchedLedger(ledger)
    watched.before["settle"] = away
    bank = Bank(deque([Told(Unknown(), gate=asyncio.Event())]))
    task = asyncio.create_task(perform(watched, bank, lease=LONG))
    await bank.entered.wait()
    await cancel(task)


async def test_a_result_that_could_not_be_written_is_found_again(ledger: EffectLedger) -> None:
    """The ledger went away after the charge: try again, adopt it (I05)."""

    async def away() -> None:
        raise LedgerUnavailable("away")

    watched = WatchedLedger(ledger)
    watched.before["settle"] = away
    bank = Bank()
    with pytest.raises(LedgerUnavailable):
        await perform(watched, bank)
    assert (await perform(ledger, bank)).state == EffectState.COMMITTED
    assert bank.acts("charge") == 1
