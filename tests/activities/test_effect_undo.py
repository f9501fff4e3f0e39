"""The way back, and the last look at an effect whose attempts are used up."""

import json
from collections import deque
from collections.abc import AsyncIterator
from datetime import timedelta

import httpx2
import pytest

from orderflow.domain.effects import Busy, Done, EffectState, Found, Refused, Unavailable, Undone, Unknown
from orderflow.domain.errors import CannotUndo, Declined, EffectReversed, OrderflowError, OutcomeUnknown
from orderflow.ledger import EffectLedger
from orderflow.providers.http import HttpProvider, Timeouts
from tests.support.bank import Bank, Told
from tests.support.ledger import (
    CHARGE,
    NO_TIME,
    PATIENT,
    PENDING,
    REFUND,
    endings,
    perform,
    settle,
    state_of,
    undo,
)

pytestmark = pytest.mark.timeout(30)

NOT_DONE = [Told(answer) for answer in (Refused(code="no_funds"), PENDING, Busy(), Unavailable(), Unknown())]

VOID = pytest.mark.parametrize("void", [True, False])


async def test_an_undo_that_comes_first_leaves_a_tombstone(ledger: EffectLedger) -> None:
    """Nobody is asked, and a late perform is refused before the provider (T02)."""
    bank = Bank()
    assert (await undo(ledger, bank)).state == EffectState.VOIDED
    with pytest.raises(EffectReversed):
        await perform(ledger, bank)
    assert bank.calls == []


@pytest.mark.parametrize("answer", [None, *NOT_DONE], ids=lambda told: told.answer.answer if told else "done")
async def test_from_the_start_of_an_undo_the_charge_is_never_adopted(ledger: EffectLedger, answer: Told | None) -> None:
    """A reset of a compensated order does not find "its" charge, however the undo went."""
    bank = Bank()
    await perform(ledger, bank)
    if answer:
        bank.told.append(answer)
        with pytest.raises(OrderflowError):
            await undo(ledger, bank)
    else:
        await undo(ledger, bank)
    with pytest.raises(EffectReversed):
        await perform(ledger, bank)
    assert bank.acts("charge") == 1


async def test_an_undo_done_is_done(ledger: EffectLedger) -> None:
    """Asked again it gives the record and calls nobody (T07)."""
    bank = Bank()
    await perform(ledger, bank)
    record = await undo(ledger, bank)
    assert (record.key, record.state, record.refunded_minor) == (CHARGE.key, EffectState.REVERSED, 1000)
    calls = list(bank.calls)
    assert await undo(ledger, bank) == record
    assert bank.calls == calls


async def test_a_refused_undo_can_be_tried_again(ledger: EffectLedger) -> None:
    """Also when the provider remembers its no: it is asked, not only looked up (T06)."""
    bank = Bank()
    await perform(ledger, bank)
    bank.told.append(Told(Refused(code="account_closed")))
    with pytest.raises(CannotUndo, match=CHARGE.key) as caught:
        await undo(ledger, bank)
    assert caught.value.detail == "account_closed"
    bank.finds.append(Refused(code="account_closed"))
    assert (await undo(ledger, bank)).state == EffectState.REVERSED
    assert bank.acts("refund") == 1


async def test_a_refund_that_stays_pending_is_never_booked_as_done(ledger: EffectLedger) -> None:
    """Accepted and not settled within the patience: unknown, and the next attempt asks before anything is sent."""
    bank = Bank()
    await perform(ledger, bank)
    bank.told.append(Told(PENDING))
    bank.finds.extend([PENDING] * 10_000)
    for _ in range(2):
        with pytest.raises(OutcomeUnknown, match="pending"):
            await undo(ledger, bank, patience=timedelta(milliseconds=20))
    refund = await ledger.get(REFUND.key)
    assert refund is not None
    assert (await state_of(ledger), refund.state, refund.reference) == ("reversing", EffectState.PENDING, "ch_1")
    assert [method for method, key in bank.calls if key == REFUND.key].count("undo") == 1


async def test_a_refund_with_a_success_flag_and_an_error_text_is_not_booked(ledger: EffectLedger) -> None:
    """M04: 200 and "ok" and an error are no success; what the provider says when it is looked up counts."""
    told = iter(
        [
            (200, {"answer": "done", "reference": "ch_1", "amount_minor": 1000}),
            (200, {"answer": "done", "reference": "re_1", "amount_minor": 1000, "ok": True, "error": "not refunded"}),
            (404, {"answer": "absent"}),
            (200, {"answer": "done", "reference": "re_2", "amount_minor": 1000}),
        ]
    )
    asked = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        status, body = next(told)
        asked.append(request.url.path)
        return httpx2.Response(status, content=_arriving(json.dumps(body).encode()))

    client = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
    payments = HttpProvider(client, "http://psp.test", "payments", Timeouts())
    await perform(ledger, payments)
    with pytest.raises(OutcomeUnknown):
        await undo(ledger, payments)
    assert await state_of(ledger) == EffectState.REVERSING
    assert (await undo(ledger, payments)).state == EffectState.REVERSED
    assert asked == ["/payments/acts", "/payments/undo", "/payments/lookup", "/payments/undo"]


async def _arriving(content: bytes) -> AsyncIterator[bytes]:
    yield content


@pytest.mark.parametrize(("by_hand", "refunded"), [(300, 700), (1000, 0)])
async def test_a_refund_gives_back_what_remains(ledger: EffectLedger, by_hand: int, refunded: int) -> None:
    """An operator refunded part or all by hand before: the rest, and "already refunded" is success (M04)."""
    bank = Bank()
    await perform(ledger, bank)
    bank.refunded_by_hand(CHARGE, by_hand)
    record = await undo(ledger, bank)
    assert (record.state, record.refunded_minor, bank.net()) == (EffectState.REVERSED, refunded, 0)


async def test_a_declined_charge_needs_no_refund(ledger: EffectLedger) -> None:
    """Nothing to undo is success (T08)."""
    bank = Bank(deque([Told(Refused(code="no_funds"))]))
    with pytest.raises(Declined):
        await perform(ledger, bank)
    assert (await undo(ledger, bank)).state == EffectState.DECLINED
    assert bank.acts("refund") == 0


async def test_a_charge_that_the_provider_took_back_is_not_done_again(ledger: EffectLedger) -> None:
    """Found undone at the provider: refused, and the undo finds nothing left."""
    bank = Bank(deque([Told(Unknown(), acts=True)]))
    with pytest.raises(OutcomeUnknown):
        await perform(ledger, bank)
    bank.refunded_by_hand(CHARGE, 1000)
    with pytest.raises(EffectReversed):
        await perform(ledger, bank)
    record = await undo(ledger, bank)
    assert (record.state, record.refunded_minor, bank.net()) == (EffectState.REVERSED, 0, 0)


@VOID
async def test_the_last_look_at_what_was_never_claimed_finds_nothing(ledger: EffectLedger, void: bool) -> None:
    """With `void` it can never be done from then on."""
    bank = Bank()
    assert await settle(ledger, bank, void=void) is None
    assert await settle(ledger, bank, void=void) is None
    assert (await state_of(ledger), bank.calls) == (EffectState.VOIDED if void else None, [])


@VOID
async def test_the_last_look_adopts_what_was_done(ledger: EffectLedger, void: bool) -> None:
    """Never "failed" with a charge standing (I06, T25)."""
    bank = Bank(deque([Told(Unknown(), acts=True)]))
    with pytest.raises(OutcomeUnknown):
        await perform(ledger, bank)
    for _ in range(2):
        record = await settle(ledger, bank, void=void)
        assert record is not None
        assert record.state == EffectState.COMMITTED
    assert bank.calls == [("perform", CHARGE.key), ("lookup", CHARGE.key)]


@VOID
async def test_the_last_look_proves_absence(ledger: EffectLedger, void: bool) -> None:
    """Only with that proof is it not charged; with `void` it stays so."""
    bank = Bank(deque([Told(Unknown())]))
    with pytest.raises(OutcomeUnknown):
        await perform(ledger, bank)
    assert await settle(ledger, bank, void=void) is None
    assert await state_of(ledger) == (EffectState.VOIDED if void else EffectState.PENDING)
    assert (await endings(ledger))[-1] == "absent"


@VOID
async def test_the_last_look_finds_a_no(ledger: EffectLedger, void: bool) -> None:
    """Declined after all."""
    await ledger.claim(CHARGE, holder="dead", lease=NO_TIME)
    record = await settle(ledger, Bank(finds=deque([Refused(code="no_funds")])), void=void)
    assert record is not None
    assert (record.state, record.decline_code) == (EffectState.DECLINED, "no_funds")


@VOID
@pytest.mark.parametrize("found", [PENDING, Busy(), Unavailable(), Unknown(), RuntimeError()], ids=repr)
async def test_the_last_look_never_guesses(ledger: EffectLedger, void: bool, found: Found | BaseException) -> None:
    """What a lookup cannot say stays unknown, PENDING, and nothing is sent."""
    await ledger.claim(CHARGE, holder="dead", lease=NO_TIME)
    bank = Bank(finds=deque([found]))
    with pytest.raises(OutcomeUnknown):
        await settle(ledger, bank, void=void)
    assert await state_of(ledger) == EffectState.PENDING
    assert bank.calls == [("lookup", CHARGE.key)]


@VOID
async def test_the_last_look_polls_what_is_pending(ledger: EffectLedger, void: bool) -> None:
    """Within its patience."""
    await ledger.claim(CHARGE, holder="dead", lease=NO_TIME)
    bank = Bank(finds=deque([PENDING, PENDING, Done(reference="ch_1")]))
    record = await settle(ledger, bank, void=void, patience=PATIENT)
    assert record is not None
    assert record.state == EffectState.COMMITTED


@VOID
async def test_the_last_look_does_not_adopt_what_was_taken_back(ledger: EffectLedger, void: bool) -> None:
    """Undone at the provider, or here."""
    await ledger.claim(CHARGE, holder="dead", lease=NO_TIME)
    bank = Bank(finds=deque([Undone()]))
    with pytest.raises(EffectReversed):
        await settle(ledger, bank, void=void)
    await undo(ledger, bank)
    with pytest.raises(EffectReversed):
        await settle(ledger, bank, void=void)
