"""Taking back at a provider, in process and over HTTP alike: what stands goes back once; the rest never happens."""

import asyncio

import pytest

from orderflow.domain.effects import Absent, Act, Busy, Done, Refused, Undone
from orderflow.domain.errors import InvalidInput
from tests.support.providers import UNDO_OF, Backend, act, do, seen, within


@pytest.mark.parametrize("operation", list(UNDO_OF))
async def test_undo_of_what_was_never_seen_voids_it_for_ever(backend: Backend, order: str, operation: str) -> None:
    """The tombstone comes first; a late forward act finds it and is refused (T02)."""
    forward, undo = act(UNDO_OF[operation], order), act(operation, order)

    assert await within(backend.of(forward).lookup(forward)) == Absent()
    undone = await within(backend.of(undo).undo(undo, forward))
    late = await do(backend, forward)

    assert isinstance(undone, Done)
    assert undone.amount_minor == 0
    assert late == Refused(code="voided")
    assert isinstance(await within(backend.of(forward).lookup(forward)), Undone)
    assert backend.outcomes(forward) == ["refused"]
    assert backend.outcomes(undo) == ["voided"]


@pytest.mark.parametrize("state", ["pending", "started"])
async def test_undo_of_what_is_not_settled_stops_it(backend: Backend, order: str, state: str) -> None:
    """A charge that is accepted or still running when its undo arrives never takes money (T02)."""
    charge, refund = act("charge", order), act("refund", order)
    backend.fault("pending" if state == "pending" else "delay", "charge", order, **_slow(state))
    call = asyncio.create_task(do(backend, charge))
    await seen(lambda: state in backend.outcomes(charge))
    if state == "started":
        assert await within(backend.of(charge).lookup(charge)) == Busy()  # not absent: it can still act
        assert await do(backend, charge) == Busy()
        call.cancel()  # whoever asked is gone; what was asked for goes on

    undone = await within(backend.of(refund).undo(refund, charge))
    await asyncio.gather(call, return_exceptions=True)

    assert isinstance(undone, Done)
    assert undone.amount_minor == 0
    if state == "started":
        await seen(lambda: "refused" in backend.outcomes(charge))
    assert "done" not in backend.outcomes(charge)
    assert backend.world.net_charged(order) == 0
    assert isinstance(await within(backend.of(charge).lookup(charge)), Undone)


def _slow(state: str) -> dict[str, object]:
    return {"times": 5} if state == "pending" else {"milliseconds": 1000}


async def test_refund_gives_back_what_an_operator_left(backend: Backend, order: str) -> None:
    """Of 10 the operator refunded 3 by hand: the refund is 7, and repeating it is still 7 (M04)."""
    charge, refund = act("charge", order), act("refund", order)
    await do(backend, charge)
    backend.world.refund_by_hand(order, 3_00)

    first, second = await do(backend, refund), await do(backend, refund)

    assert isinstance(first, Done)
    assert first.amount_minor == 7_00
    assert second == first
    assert backend.world.net_charged(order) == 0
    assert await within(backend.of(charge).lookup(charge)) == Undone(
        reference=_reference(backend, charge), amount_minor=10_00
    )


async def test_refund_of_what_was_refunded_by_hand_in_full_succeeds(backend: Backend, order: str) -> None:
    """Already refunded is success with nothing given back, and the charge is not adopted again (M04)."""
    charge, refund = act("charge", order), act("refund", order)
    await do(backend, charge)
    backend.world.refund_by_hand(order, 10_00)

    answer = await do(backend, refund)

    assert isinstance(answer, Done)
    assert answer.amount_minor == 0
    assert backend.outcomes(refund) == ["already_undone"]
    assert await do(backend, charge) == Refused(code="undone")
    with pytest.raises(InvalidInput, match="left to refund"):
        backend.world.refund_by_hand(order, 1)


def _reference(backend: Backend, asked: Act) -> str:
    return str(backend.lines(asked)[0]["reference"])


async def test_an_undo_that_was_declined_can_be_asked_for_again(backend: Backend, order: str) -> None:
    """A refused refund leaves the charge standing; an operator's retry under the same key gives it back."""
    charge, refund = act("charge", order), act("refund", order)
    await do(backend, charge)
    backend.fault("decline", "refund", order, code="bank_closed")

    assert await do(backend, refund) == Refused(code="bank_closed")
    assert backend.world.net_charged(order) == 10_00
    assert await within(backend.of(refund).lookup(refund)) == Absent()
    assert isinstance(await do(backend, refund), Done)
    assert backend.world.net_charged(order) == 0


async def test_release_returns_what_the_reservation_held(backend: Backend, order: str) -> None:
    """Stock is exact after reserve and after release."""
    sku = f"sku-{order}"
    reserve, release = act("reserve", order, quantity=7), act("release", order)

    await do(backend, reserve)
    during = backend.world.stock(sku), backend.world.reserved(order)
    await within(backend.of(release).undo(release, reserve))

    assert during == (993, {sku: 7})
    assert (backend.world.stock(sku), backend.world.reserved(order)) == (1000, {})
    assert backend.lines(release)[0]["items"] == {sku: 7}
