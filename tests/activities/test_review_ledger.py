"""Any ledger: what it keeps for people, and that what a person said is the end of an effect."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orderflow.domain.effects import Act, Done, EffectState
from orderflow.domain.errors import EffectBusy, EffectReversed
from orderflow.domain.operations import Operation, OperationClaims, Resolution
from orderflow.domain.orders import Said, Standing
from orderflow.ledger import Claim, EffectRecord
from orderflow.ledger.review import Ledger
from tests.support.bank import Bank
from tests.support.ledger import CHARGE, LONG, NO_TIME, REFUND, LedgerDatabase, charge, perform, refund, state_of, undo
from tests.support.ledger_states import DONE, REACH, claimed, committed, pending, reversing, undo_claimed
from tests.support.observing import eventually
from tests.support.postgres import Postgres

pytestmark = pytest.mark.timeout(60)

ORDER = "order-1"
STATES = pytest.mark.parametrize("state", list(REACH), ids=lambda state: state or "unseen")
OUTCOMES = pytest.mark.parametrize("outcome", list(Resolution))

ENDS_AS: dict[Resolution, dict[EffectState | None, EffectState | None]] = {
    Resolution.TAKEN_BACK: {state: state for state in REACH}
    | dict.fromkeys((EffectState.PENDING, EffectState.COMMITTED, EffectState.REVERSING), EffectState.REVERSED),
    Resolution.KEPT: {state: state for state in REACH}
    | dict.fromkeys((EffectState.PENDING, EffectState.REVERSING), EffectState.COMMITTED),
}
"""What a person's word makes of an effect in each state; what is settled stays as it is."""


@pytest.fixture
async def ledger(database: LedgerDatabase) -> Ledger:
    """A ledger with all that is kept for people."""
    opened: Ledger = await database.open()  # type: ignore[assignment]
    return opened


def standing(step: str = "charge", **changes: Any) -> Standing:
    """An effect of the order that could not be taken back."""
    given = {"amount_minor": 1000, "currency": "EUR", "error": "CannotUndo", "detail": "closed", **changes}
    return Standing(step=step, key=f"{ORDER}.{step}.do", **given)


def signed(jti: str = "j" * 16, operation: Operation = Operation.RESOLVE) -> OperationClaims:
    """What an operator signed about the charge: to have it tried again, or that it may stand."""
    told: dict[str, Any] = {"outcome": Resolution.KEPT, "evidence": "T-1"} if operation is Operation.RESOLVE else {}
    return OperationClaims(
        workflow_id=ORDER, effect=CHARGE.key, amount_minor=1000, currency="EUR", reason="checked", operator="carol",
        iat=1, expires_at=2, jti=jti, operation=operation, **told,
    )  # fmt: skip


async def queue(ledger: Ledger, *, closed: bool = False) -> list[str]:
    """The keys of the items in the queue."""
    return [item.key for item in await ledger.review_items(closed=closed, limit=100)]


async def test_an_item_holds_what_a_person_has_to_know(ledger: Ledger) -> None:
    """T45: whose it is, how much, why; aware times; open until it is closed."""
    await ledger.put_in_review(ORDER, "order", [standing()])
    item = await ledger.review_item(CHARGE.key)
    assert item is not None
    assert (item.workflow_id, item.step, item.opened_by) == (ORDER, "charge", "order")
    assert (item.amount_minor, item.currency, item.error, item.detail) == (1000, "EUR", "CannotUndo", "closed")
    assert (item.closed_at, item.closed_as) == (None, None)
    assert abs(item.opened_at - datetime.now(UTC)) < timedelta(minutes=1)
    assert await ledger.reviews_of(ORDER) == await ledger.review_items(closed=False, limit=9) == [item]
    assert await ledger.review_item("nothing") is None


async def test_the_queue_is_made_exactly_what_stands_and_says_what_changed(ledger: Ledger) -> None:
    """Opened, closed as undone, opened again; the same once more changes nothing, other orders stay as they are."""
    charge, stock = standing(), standing("reserve_inventory", amount_minor=None, currency=None)
    other = Standing(step="charge", key="order-2.charge.do", amount_minor=1, currency="EUR", error="OutcomeUnknown")
    assert await ledger.put_in_review("order-2", "order", [other]) == [other.key]
    expected: list[tuple[list[Standing], list[str]]] = [
        ([stock, charge], [stock.key, charge.key]),
        ([stock, charge], []),
        ([charge], [stock.key]),
        ([charge], []),
        ([], [charge.key]),
        ([stock], [stock.key]),
    ]
    for stands, changed in expected:
        assert await ledger.put_in_review(ORDER, "order", stands) == changed
        items = await ledger.reviews_of(ORDER)
        assert {item.key for item in items if item.closed_at is None} == {left.key for left in stands}
        assert {item.closed_as for item in items if item.closed_at is not None} <= {"undone"}
    assert set(await queue(ledger)) == {other.key, stock.key}
    assert set(await queue(ledger, closed=True)) == {other.key, stock.key, charge.key}


@pytest.mark.parametrize(
    "change", [{"error": "OutcomeUnknown"}, {"detail": None}, {"amount_minor": 999}, {"currency": "USD"}]
)
async def test_an_item_that_stands_for_another_reason_changes_and_keeps_its_place(
    ledger: Ledger, change: dict[str, Any]
) -> None:
    """What an operator signs names the amount, so the queue has to show the one that stands now."""
    await ledger.put_in_review(ORDER, "order", [standing()])
    before = await ledger.review_item(CHARGE.key)
    for changed in ([CHARGE.key], []):
        assert await ledger.put_in_review(ORDER, "order", [standing(**change)]) == changed
    after = await ledger.review_item(CHARGE.key)
    assert before is not None
    assert after is not None
    assert after.opened_at == before.opened_at
    assert {name: getattr(after, name) for name in change} == change


async def test_what_people_said_so_far_changes_no_item(ledger: Ledger) -> None:
    """A first word of two is the order's, not the queue's."""
    await ledger.put_in_review(ORDER, "order", [standing()])
    said = standing().with_said(Said(operator="carol", outcome="kept", jti="j" * 16))
    assert await ledger.put_in_review(ORDER, "order", [said]) == []


async def test_an_item_goes_to_the_door_of_who_opened_it_last(ledger: Ledger) -> None:
    """T53: what reconciliation found of a run that vanished is the order's again once it runs anew."""
    assert await ledger.put_in_review(ORDER, "reconcile", [standing()]) == [CHARGE.key]
    assert await ledger.put_in_review(ORDER, "order", [standing()]) == [CHARGE.key]
    assert [item.opened_by for item in await ledger.reviews_of(ORDER)] == ["order"]


async def test_the_queue_is_read_oldest_first_and_bounded(database: LedgerDatabase, ledger: Ledger) -> None:
    """Closed ones come with the latest on top."""
    for number in range(3):
        left = Standing(step="charge", key=f"order-{number}.charge.do", amount_minor=1, currency="EUR", error="x")
        await ledger.put_in_review(f"order-{number}", "order", [left])
        opened = (await ledger.reviews_of(f"order-{number}"))[0].opened_at
        while datetime.now(UTC) - opened < timedelta(milliseconds=2):
            await asyncio.sleep(0.001)
    await ledger.put_in_review("order-1", "order", [])
    first, last = "order-0.charge.do", "order-2.charge.do"
    assert await queue(ledger) == [first, last]
    assert [item.key for item in await ledger.review_items(closed=False, limit=1)] == [first]
    assert await queue(ledger, closed=True) == [last, "order-1.charge.do", first]


async def test_an_operation_is_kept_once(ledger: Ledger) -> None:
    """By its `jti`: what was accepted first stays, as it was signed, whatever comes after."""
    await ledger.book_operation(signed(), "a.b.c")
    await ledger.book_operation(signed(operation=Operation.RETRY), "d.e.f")
    await ledger.book_operation(signed("k" * 16, Operation.RETRY), "g.h.i")
    first, second = await ledger.operations(CHARGE.key)
    assert (first.jti, first.key, first.workflow_id, first.operator) == ("j" * 16, CHARGE.key, ORDER, "carol")
    assert (first.operation, first.outcome, first.token) == ("resolve", "kept", "a.b.c")
    assert (second.operation, second.outcome, second.token) == ("retry", None, "g.h.i")
    assert first.accepted_at <= second.accepted_at
    assert await ledger.operations("nothing") == []


async def unsettled(ledger: Ledger, limit: int = 100) -> list[str]:
    """Every key that is unsettled, read page by page."""
    keys: list[str] = []
    after = ""
    while (page := await ledger.unsettled(after, limit)).last is not None:
        assert len(page.orders) <= limit
        keys += page.orders
        after = page.last
    return keys


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8])
async def test_unsettled_effects_come_page_by_page_in_the_order_of_their_keys(ledger: Ledger, limit: int) -> None:
    """Each once, whatever the size of a page; keys compare byte by byte on both databases."""
    orders = ["order-a", "order-B", "order-10", "order-9", "order_1", "order.1", "order-1"]
    for order in orders:
        await ledger.claim(charge(order), holder="x", lease=NO_TIME)
    assert await unsettled(ledger, limit) == sorted(charge(order).key for order in orders)


@STATES
@pytest.mark.parametrize("ending", [None, "failed", "terminated", "completed"])
async def test_what_may_stand_is_unsettled_until_its_order_completed(
    ledger: Ledger, state: EffectState | None, ending: str | None
) -> None:
    """T53: open effects always, committed ones unless the order completed; never an undo's own row."""
    await REACH[state](ledger)
    if ending:
        await ledger.end_order(ORDER, ending)
    open_ones = {EffectState.PENDING, EffectState.REVERSING}
    expected = state in open_ones or (state is EffectState.COMMITTED and ending != "completed")
    assert await unsettled(ledger) == ([CHARGE.key] if expected else [])


async def test_the_latest_word_on_how_an_order_ended_counts(ledger: Ledger) -> None:
    """An order that is reset can end anew; said twice, it ended when it was said first."""
    await committed(ledger)
    for stage, left in (("terminated", [CHARGE.key]), ("completed", []), ("completed", []), ("failed", [CHARGE.key])):
        await ledger.end_order(ORDER, stage)
        assert await unsettled(ledger) == left


@STATES
@OUTCOMES
async def test_a_persons_word_ends_an_effect_in_every_state(
    ledger: Ledger, state: EffectState | None, outcome: Resolution
) -> None:
    """What was open is settled and off the queue; said again, it changes nothing; it is unsettled no more."""
    await REACH[state](ledger)
    await ledger.put_in_review(ORDER, "order", [standing()])
    record = await ledger.resolve(CHARGE.key, REFUND.key, outcome)
    assert (record.state if record else None) == ENDS_AS[outcome][state]
    item = await ledger.review_item(CHARGE.key)
    assert item is not None
    assert (item.closed_as, await queue(ledger), await unsettled(ledger)) == (outcome.value, [], [])
    again = await ledger.resolve(CHARGE.key, REFUND.key, outcome)
    assert (again.state if again else None) == ENDS_AS[outcome][state]
    assert await ledger.review_item(CHARGE.key) == item
    if record and state in {EffectState.PENDING, EffectState.COMMITTED} and outcome is Resolution.TAKEN_BACK:
        assert (record.captured_minor, record.refunded_minor) == (1000, 1000)
    if record and outcome is Resolution.KEPT and record.state is EffectState.COMMITTED:
        assert (record.captured_minor, record.refunded_minor) == (1000, None)


@STATES
@OUTCOMES
async def test_no_late_undo_acts_after_a_persons_word(
    ledger: Ledger, state: EffectState | None, outcome: Resolution
) -> None:
    """Neither one that was begun nor the first one, as by a run that is reset: nothing is sent, nothing moves."""
    await REACH[state](ledger)
    await ledger.resolve(CHARGE.key, REFUND.key, outcome)
    before, bank = await ledger.get(CHARGE.key), Bank()
    if before is not None and before.state is EffectState.COMMITTED:
        with pytest.raises(EffectReversed, match="settled by a person"):
            await undo(ledger, bank)
        assert await ledger.get(CHARGE.key) == before
    else:
        record = await undo(ledger, bank)
        assert record.state is (before.state if before else EffectState.VOIDED)
    assert bank.calls == []


@STATES
@OUTCOMES
async def test_no_late_perform_acts_after_a_persons_word(
    ledger: Ledger, state: EffectState | None, outcome: Resolution
) -> None:
    """What is over is refused or adopted; only what nobody ever began can begin."""
    await REACH[state](ledger)
    await ledger.resolve(CHARGE.key, REFUND.key, outcome)
    now = ENDS_AS[outcome][state]
    if now in {EffectState.REVERSED, EffectState.VOIDED}:
        with pytest.raises(EffectReversed):
            await ledger.claim(CHARGE, holder="late", lease=LONG)
    else:
        found = await ledger.claim(CHARGE, holder="late", lease=LONG)
        assert isinstance(found, Claim) is (now is None)
        assert isinstance(found, Claim) or found.state is now
    assert await state_of(ledger) is (now or EffectState.PENDING)


@OUTCOMES
@pytest.mark.parametrize("held", ["effect", "undo"])
async def test_what_somebody_is_at_work_on_is_resolved_by_nobody(
    ledger: Ledger, held: str, outcome: Resolution
) -> None:
    """A live lease: the person is told to wait for what is left of it; the item stays in the queue."""
    if held == "undo":
        await committed(ledger)
    claim = await (claimed(ledger) if held == "effect" else undo_claimed(ledger))
    await ledger.put_in_review(ORDER, "order", [standing()])
    before = await ledger.effects(ORDER)
    with pytest.raises(EffectBusy, match=claim.record.key) as refused:
        await ledger.resolve(CHARGE.key, REFUND.key, outcome)
    assert refused.value.retry_after is not None
    assert 0 < refused.value.retry_after <= LONG.total_seconds()
    assert (await ledger.effects(ORDER), await queue(ledger)) == (before, [CHARGE.key])


async def test_a_resolution_waits_for_a_claim_and_yields_to_it(postgres: Postgres) -> None:
    """T02: whoever claims while a person's word is written down has it; nothing of the word is kept (D03)."""
    postgres.emptied()
    database = LedgerDatabase(postgres.url())
    ledger: Ledger = await database.open()  # type: ignore[assignment]
    await pending(ledger)
    await ledger.put_in_review(ORDER, "order", [standing()])
    with postgres.connect() as other:
        other.execute("BEGIN")
        until = int(time.time() * 1000) + 60_000
        other.execute("UPDATE effects SET token = token + 1, lease_until = %s", (until,))
        resolving = asyncio.ensure_future(ledger.resolve(CHARGE.key, REFUND.key, Resolution.TAKEN_BACK))

        async def it_waits() -> bool:
            return postgres.run("SELECT 1 FROM pg_locks WHERE NOT granted") != []

        await eventually(it_waits)
        other.execute("COMMIT")
    with pytest.raises(EffectBusy):
        await resolving
    assert (await state_of(ledger), await queue(ledger)) == (EffectState.PENDING, [CHARGE.key])
    await database.aclose()


@OUTCOMES
async def test_a_late_holder_cannot_write_over_a_persons_word(ledger: Ledger, outcome: Resolution) -> None:
    """D06: a claim whose lease was over when the person decided is lost, the undo's as much as the effect's."""
    late = await claimed(ledger, NO_TIME)
    await ledger.resolve(CHARGE.key, REFUND.key, outcome)
    after = await ledger.effects(ORDER)
    with pytest.raises(Exception, match="claimed by another"):
        await ledger.settle(late, DONE)
    assert await ledger.effects(ORDER) == after


async def test_a_late_holder_of_an_undo_cannot_write_over_a_persons_word(ledger: Ledger) -> None:
    """D06: the same for the way back; the effect stays what the person said."""
    await reversing(ledger)
    record = await ledger.get(REFUND.key)
    assert record is not None
    kept = await ledger.resolve(CHARGE.key, REFUND.key, Resolution.KEPT)
    with pytest.raises(Exception, match="claimed by another"):
        await ledger.settle_undo(Claim(record, "late", fresh=False), CHARGE, DONE)
    assert await ledger.get(CHARGE.key) == kept


async def test_what_was_really_captured_is_what_is_kept(ledger: Ledger) -> None:
    """M04: a person's word ends the undo and says nothing about the amount that the provider took."""
    await ledger.settle(await claimed(ledger), Done(reference="ch_1", amount_minor=800))
    await undo_claimed(ledger, NO_TIME)
    record = await ledger.resolve(CHARGE.key, REFUND.key, Resolution.KEPT)
    assert record is not None
    assert (record.state, record.captured_minor, record.reference) == (EffectState.COMMITTED, 800, "ch_1")
    assert await state_of(ledger, REFUND.key) is EffectState.VOIDED


async def test_an_effect_that_the_ledger_does_not_know_is_taken_off_the_queue(ledger: Ledger) -> None:
    """T45: as after a restore, when reconciliation found a charge at the provider alone."""
    await ledger.put_in_review(ORDER, "reconcile", [standing()])
    assert await ledger.resolve(CHARGE.key, REFUND.key, Resolution.TAKEN_BACK) is None
    assert await queue(ledger) == []
    assert await ledger.effects(ORDER) == []


async def test_one_resolution_touches_no_other_order(ledger: Ledger) -> None:
    """I10: equal steps of two orders share neither effect, undo nor item."""
    acts: list[tuple[Act, Act]] = [(charge(order), refund(order)) for order in ("order-1", "order-2")]
    for act, _ in acts:
        await perform(ledger, Bank(), act)
    (one, back), (two, _) = acts
    await ledger.resolve(one.key, back.key, Resolution.TAKEN_BACK)
    other = await ledger.effects("order-2")
    assert [(record.key, record.state) for record in other] == [(two.key, EffectState.COMMITTED)]
    assert isinstance(other[0], EffectRecord)
