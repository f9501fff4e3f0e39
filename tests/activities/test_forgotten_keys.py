"""Simulated providers that forget keys, in process and over HTTP alike: what they did stands and is found again."""

from datetime import UTC, datetime, timedelta

import pytest

from orderflow.domain.effects import (
    Absent,
    Capabilities,
    Done,
    EffectState,
    Handle,
    Pending,
    Performed,
    Provider,
    Refused,
    Undone,
    Unknown,
)
from orderflow.domain.errors import OutcomeUnknown
from orderflow.ledger import EffectLedger
from orderflow.providers.http import HttpProvider
from orderflow.providers.simulated import SIMULATED, SimulatedWorld
from tests.support.ledger import LedgerDatabase, charge, perform
from tests.support.providers import Backend, act, do, within

REFERENCE = Handle.MERCHANT_REFERENCE


async def found(backend: Backend, asked_for: Performed, operation: str, order: str) -> None:
    """Nothing is known by the key, and what was done is found by our reference."""
    asked = act(operation, order)
    assert await within(backend.of(asked).lookup(asked)) == Absent()
    assert await within(backend.of(asked).lookup(asked, REFERENCE)) == asked_for


@pytest.mark.parametrize("operation", ["reserve", "charge", "notify", "ship"])
async def test_who_forgot_a_key_acts_again_under_it(backend: Backend, order: str, operation: str) -> None:
    """I07: that is what the ledger has to prevent; the first act stands, under our reference and in the list."""
    before = datetime.now(UTC)
    asked = act(operation, order)
    done = await do(backend, asked)
    backend.fault("forget_keys", operation, order)

    await found(backend, done, operation, order)
    again = await do(backend, asked)

    assert isinstance(again, Done)
    assert again != done
    assert backend.outcomes(asked) == ["done", "done"]
    assert await within(backend.of(asked).lookup(asked, REFERENCE)) == again
    listed = await within(backend.of(asked).list(before)) or []
    assert [row.reference for row in listed if row.key == asked.key] == [
        answer.reference for answer in (done, again) if isinstance(answer, Done)
    ]


async def test_only_the_keys_that_were_meant_are_forgotten(backend: Backend, order: str) -> None:
    """Those of one operation and order, and only what was done so far."""
    mine, other, reserved = act("charge", order), act("charge", f"{order}-other"), act("reserve", order)
    answers = [await do(backend, asked) for asked in (mine, other, reserved)]
    backend.fault("forget_keys", "charge", order)

    assert await within(backend.of(mine).lookup(mine)) == Absent()
    assert [await do(backend, asked) for asked in (other, reserved)] == answers[1:]
    again = await do(backend, mine)
    assert await do(backend, mine) == again


async def test_our_reference_finds_what_the_key_finds(backend: Backend, order: str) -> None:
    """Whatever became of it, and nothing of what was never asked for."""
    charge, refund = act("charge", order), act("refund", order)
    assert await within(backend.of(charge).lookup(charge, REFERENCE)) == Absent()
    backend.fault("decline", "charge", order)
    assert await do(backend, charge) == Refused(code="card_declined")
    for asked in (charge, act("charge", order, step="second")):
        assert await within(backend.of(asked).lookup(asked, REFERENCE)) == await within(backend.of(asked).lookup(asked))
    assert await within(backend.of(refund).lookup(refund, REFERENCE)) == Absent()


async def test_a_pending_charge_settles_by_our_reference_too(backend: Backend, order: str) -> None:
    """It takes money once, when it settles."""
    backend.fault("pending", "charge", order, times=1)
    asked = act("charge", order)
    assert isinstance(await do(backend, asked), Pending)
    backend.fault("forget_keys", "charge", order)

    looked = [await within(backend.of(asked).lookup(asked, REFERENCE)) for _ in range(3)]

    assert [answer.answer for answer in looked] == ["pending", "done", "done"]
    assert backend.world.net_charged(order) == 10_00


@pytest.mark.parametrize("by_hand", [0, 3_00])
async def test_a_charge_without_a_key_is_refunded_once(backend: Backend, order: str, by_hand: int) -> None:
    """The refund finds it by our reference; its own key may be forgotten too, and it is found again (M04)."""
    charge, refund = act("charge", order), act("refund", order)
    await do(backend, charge)
    backend.fault("forget_keys", "charge", order)
    if by_hand:
        backend.world.refund_by_hand(order, by_hand)

    done = await do(backend, refund)
    backend.fault("forget_keys", "refund", order)

    assert isinstance(done, Done)
    assert done.amount_minor == 10_00 - by_hand
    assert backend.world.net_charged(order) == 0
    await found(backend, done, "refund", order)
    assert isinstance(await within(backend.of(charge).lookup(charge, REFERENCE)), Undone)
    again = await do(backend, refund)
    assert isinstance(again, Done)
    assert again.amount_minor == 0


async def test_a_reservation_without_a_key_still_holds_its_stock(backend: Backend, order: str) -> None:
    """And is released whole."""
    await do(backend, act("reserve", order, quantity=7))
    backend.fault("forget_keys", "reserve", order)
    held = backend.world.stock(f"sku-{order}"), backend.world.reserved(order)
    await do(backend, act("release", order))
    assert held == (993, {f"sku-{order}": 7})
    assert (backend.world.stock(f"sku-{order}"), backend.world.reserved(order)) == (1000, {})


async def test_a_new_process_has_forgotten_the_same(world: SimulatedWorld, order: str) -> None:
    """Forgetting stands in the log, like everything else."""
    here = Backend(world, {"payments": world.provider("payments")})
    done = await do(here, act("charge", order))
    here.fault("forget_keys", "charge", order)
    restarted = SimulatedWorld(world.path)
    await found(Backend(restarted, {"payments": restarted.provider("payments")}), done, "charge", order)


@pytest.mark.parametrize("blind_to", list(Handle))
async def test_a_simulated_provider_says_only_what_it_is_declared_to_say(
    world: SimulatedWorld, order: str, blind_to: Handle
) -> None:
    """So a test of a provider that cannot look up is one, whatever stands in the log."""
    payments = world.provider("payments", Capabilities(lookup_by=frozenset(Handle) - {blind_to}))
    asked = act("charge", order)
    done = await payments.perform(asked)
    answers = {by: await payments.lookup(asked, by) for by in Handle}
    assert answers.pop(blind_to) == Unknown(detail=f"no lookup by {blind_to}")
    assert list(answers.values()) == [done]


def declared(backend: Backend, capabilities: Capabilities) -> Provider:
    """The payments of `backend`, declared anew."""
    payments = backend.providers["payments"]
    if not isinstance(payments, HttpProvider):
        return backend.world.provider("payments", capabilities)
    payments._capabilities = capabilities
    return payments


@pytest.mark.parametrize("by_reference", [True, False])
async def test_after_48_hours_a_lost_charge_is_adopted_or_unknown(
    backend: Backend, database: LedgerDatabase, ledger: EffectLedger, order: str, by_reference: bool
) -> None:
    """I07, the whole way: the provider forgot the key and holds the charge; there is never a second one."""
    payments = declared(backend, SIMULATED if by_reference else Capabilities())
    backend.fault("lost_reply", "charge", order)
    with pytest.raises(OutcomeUnknown):
        await perform(ledger, payments, charge(order))
    database.age(timedelta(hours=48))
    backend.fault("forget_keys", "charge", order)

    if by_reference:
        record = await perform(ledger, payments, charge(order))
        assert (record.state, record.captured_minor) == (EffectState.COMMITTED, 1000)
        assert record.reference == backend.lines(charge(order))[0]["reference"]
    else:
        with pytest.raises(OutcomeUnknown):
            await perform(ledger, payments, charge(order))
    assert backend.outcomes(charge(order)) == ["done"]
    assert backend.world.net_charged(order) == 1000


async def test_a_pending_charge_of_a_provider_that_cannot_be_asked_is_not_waited_for(
    world: SimulatedWorld, ledger: EffectLedger, order: str
) -> None:
    """Never booked as done, nor waited for in vain: each attempt sends the same key again, and one act comes of it."""
    payments = world.provider("payments", Capabilities(lookup_by=frozenset()))
    backend = Backend(world, {"payments": payments})
    backend.fault("pending", "charge", order)
    for _ in range(3):
        with pytest.raises(OutcomeUnknown, match="pending"):
            await within(perform(ledger, payments, charge(order), patience=timedelta(hours=1)))
    assert backend.outcomes(charge(order)) == ["pending", "replayed", "replayed"]
    assert backend.lines(charge(order), "lookup") == []
