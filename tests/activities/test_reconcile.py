"""What a reconciliation does about one order or one provider, with a ledger on each database and real providers."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from orderflow.contracts import OrderView
from orderflow.domain.effects import Absent, Act, Capabilities, EffectState, Found, Handle, Listed
from orderflow.domain.errors import LedgerUnavailable
from orderflow.domain.operations import Operation, OperationClaims, Resolution
from orderflow.domain.orders import Stage, Standing
from orderflow.domain.reconciliation import RESOLVED_BEFORE, Fate
from orderflow.ledger import Claim
from orderflow.providers.simulated import SimulatedProvider, SimulatedWorld
from orderflow.signing import operation_on
from tests.support.ledger import LedgerDatabase, WatchedLedger
from tests.support.reconciling import Known, Office, Truth, told

pytestmark = pytest.mark.timeout(60)

SOON = timedelta(seconds=0.2)


@pytest.fixture
def office(ledger: Any, tmp_path: Path) -> Office:
    """A ledger on each database, and a world of its own."""
    return Office(ledger, SimulatedWorld(tmp_path / "world.jsonl"))


async def test_an_order_with_nothing_to_undo_is_not_even_looked_at(office: Office) -> None:
    """T08: neither one that failed before any step, nor one whose books are closed."""
    office.order(Fate.FAILED, Stage.FAILED)
    done = office.order(Fate.FAILED, Stage.FAILED_COMPENSATED)
    await office.effect(done, "charge", Truth.UNDONE, Known.REVERSED)
    for _ in range(2):
        report = await office.reconcile()
        assert (report.findings, report.orders, report.counts) == ((), 0, {})
    assert office.orders.asked == []


async def test_a_completed_order_is_asked_about_once(office: Office) -> None:
    """Its ending is noted; from then on nobody has to ask Temporal."""
    order = office.order(Fate.COMPLETED, Stage.COMPLETED)
    await office.effect(order, "charge", Truth.DONE, Known.COMMITTED)
    assert (await office.reconcile()).counts == {"ended": 1}
    assert (await office.reconcile()).orders == 0
    assert await office.ledger.ending(order) == "completed"


async def test_what_a_failed_order_left_is_taken_back_in_reverse_order(office: Office) -> None:
    """The latest first, under the keys that the order itself would have used."""
    order = office.order(Fate.FAILED, Stage.FAILED_COMPENSATED)
    await office.effect(order, "reserve_inventory", Truth.DONE, Known.COMMITTED)
    await office.effect(order, "charge", Truth.DONE, Known.PENDING)
    report = await office.reconcile()
    assert told(report, order) == [("undone", "charge"), ("undone", "reserve_inventory")]
    undone = [line["key"] for line in office.world.log() if "of" in line and line["outcome"] == "done"]
    assert undone == [office.undo(order, "charge").key, office.undo(order, "reserve_inventory").key]
    assert await office.ledger.ending(order) == "failed_compensated"


async def test_a_step_that_its_definition_never_undoes_is_left_as_it_was_meant(office: Office) -> None:
    """That the provider could take it back does not mean that the order would have."""
    order = office.order(Fate.FAILED, Stage.FAILED)
    placed = office.orders.inputs[order]
    steps = tuple(step.model_copy(update={"compensation": None}) for step in placed.definition.steps)
    office.orders.inputs[order] = placed.model_copy(
        update={"definition": placed.definition.model_copy(update={"steps": steps})}
    )
    await office.effect(order, "reserve_inventory", Truth.DONE, Known.COMMITTED)
    assert (await office.reconcile()).counts == {"ended": 1}
    assert office.stands(order, "reserve_inventory")


async def test_a_failed_order_that_nobody_can_read_any_more_is_told_and_stops_no_other(office: Office) -> None:
    """One broken order is one finding with a sentence."""
    broken, other = (office.order(Fate.FAILED, Stage.FAILED_COMPENSATED) for _ in range(2))
    del office.orders.inputs[broken]
    for order in (broken, other):
        await office.effect(order, "charge", Truth.DONE, Known.COMMITTED)
    report = await office.reconcile()
    assert told(report, broken) == [("failed", "charge")]
    assert "cannot be read" in str([each.detail for each in report.findings if each.order == broken])
    assert told(report, other) == [("undone", "charge")]
    assert office.stands(broken, "charge")


async def test_an_undo_that_is_refused_for_good_goes_to_people_and_is_not_tried_again(office: Office) -> None:
    """I-4: the item says what the provider said; the next run leaves it there."""
    order = office.order(Fate.FAILED, Stage.FAILED_COMPENSATED)
    await office.effect(order, "charge", Truth.DONE, Known.COMMITTED)
    office.fault("decline", "refund", order)
    assert told(await office.reconcile(), order) == [("opened", "charge")]
    [item] = await office.ledger.reviews_of(order)
    assert (item.error, item.amount_minor, item.currency) == ("CannotUndo", 900, "EUR")
    asked = office.world.log()
    again = await office.reconcile()
    assert (told(again, order), again.changes) == ([("in_review", "charge")], 0)
    assert office.world.log() == asked


@pytest.mark.parametrize("fate", [Fate.TERMINATED, Fate.TIMED_OUT, Fate.VANISHED])
async def test_nothing_is_undone_of_an_order_that_was_cut_short(office: Office, fate: Fate) -> None:
    """T53, T45: what stands is put before people; what was never done never will be, unless the order comes again."""
    order = office.order(fate)
    await office.effect(order, "reserve_inventory", Truth.DONE, Known.PENDING)
    await office.effect(order, "charge", Truth.NEVER, Known.PENDING)
    await office.effect(order, "notify", Truth.DONE, Known.COMMITTED)
    report = await office.reconcile()
    voided = [] if fate is Fate.VANISHED else [("voided", "charge")]  # it may come again, and then be charged
    assert told(report, order) == [("opened", "reserve_inventory"), ("adopted", "reserve_inventory"), *voided]
    assert await office.in_review(order) == {"reserve_inventory": fate}
    assert office.stands(order, "reserve_inventory")
    again = await office.reconcile()
    assert (told(again, order), again.changes) == ([("in_review", "reserve_inventory")], 0)


@pytest.mark.parametrize("fate", [Fate.FAILED, Fate.TERMINATED])
@pytest.mark.parametrize("truth", [Truth.DONE, Truth.NEVER])
async def test_a_tombstone_whose_undo_was_begun_is_not_forgotten(office: Office, fate: Fate, truth: Truth) -> None:
    """T53, T25: its provider could not be asked whether a sleeper charged, and then its order was gone."""
    order = office.order(fate, Stage.FAILED_COMPENSATED if fate is Fate.FAILED else None)
    act, undo = office.act(order, "charge"), office.undo(order, "charge")
    await office.ledger.claim(act, holder="sleeper", lease=timedelta(0))
    claim = await office.ledger.claim(act, holder="last look", lease=SOON)
    assert isinstance(claim, Claim)
    await office.ledger.void(act, claim)
    await office.ledger.claim_undo(undo, act, holder="gone", lease=timedelta(0))
    await office.make_true(order, "charge", truth)
    report = await office.reconcile()
    if fate is Fate.TERMINATED:
        assert told(report, order) == [("opened", "charge")]
        assert (await office.reconcile()).changes == 0
        return
    undone = truth is Truth.DONE
    assert ("undone" if undone else "voided", "charge") in told(report, order)
    assert await office.state(order, "charge") == (EffectState.REVERSED if undone else EffectState.VOIDED)
    assert not office.stands(order, "charge")
    await office.reconcile()
    assert ((await office.reconcile()).changes, await office.in_review(order)) == (0, {})


async def test_an_order_that_temporal_forgot_after_its_end_is_no_orphan(office: Office) -> None:
    """T45: retention has passed; the ending that the ledger noted is what counts."""
    completed, failed = office.order(Fate.VANISHED), office.order(Fate.VANISHED)
    for order in (completed, failed):
        await office.effect(order, "reserve_inventory", Truth.DONE, Known.COMMITTED)
        await office.effect(order, "charge", Truth.DONE, Known.REVERSING)
    await office.ledger.end_order(completed, Stage.COMPLETED)
    await office.ledger.end_order(failed, Stage.FAILED_COMPENSATED)
    report = await office.reconcile()
    assert told(report, completed) == [("opened", "charge")]  # a completed order has taken nothing back
    assert told(report, failed) == [("undone", "charge")]
    assert await office.in_review(failed) == {}


async def test_items_of_an_order_that_runs_again_are_closed(office: Office) -> None:
    """T45: it was started again, and is responsible for what it had done before; there is nothing to decide."""
    order = office.order(Fate.VANISHED)
    await office.effect(order, "charge", Truth.DONE, Known.COMMITTED)
    await office.reconcile()
    office.become(order, Fate.OPEN, Stage.RUNNING)
    dry = await office.reconcile(dry_run=True)
    assert told(dry, order) == [("would_be_closed", "charge")]
    assert told(await office.reconcile(), order) == [("closed", "charge")]
    [item] = await office.ledger.reviews_of(order)
    assert item.closed_as == "superseded"


async def test_items_of_an_order_that_came_again_and_completed_are_closed(office: Office) -> None:
    """T45: nothing of it is unsettled any more, and nobody has to decide anything."""
    order = office.order(Fate.VANISHED)
    await office.effect(order, "charge", Truth.DONE, Known.COMMITTED)
    await office.reconcile()
    office.become(order, Fate.COMPLETED, Stage.COMPLETED)
    await office.ledger.end_order(order, Stage.COMPLETED)
    assert told(await office.reconcile(), order) == [("closed", "charge")]
    assert await office.in_review(order) == {}


async def test_what_was_taken_back_is_taken_back_in_the_books_too(office: Office) -> None:
    """Also of an order that nobody undoes anything of, and where no list tells of it: its provider is asked."""
    order = office.order(Fate.TERMINATED)
    await office.effect(order, "charge", Truth.UNDONE, Known.PENDING)
    before = office.acts(order, "charge", undone=True)
    report = await office.reconcile(providers={**office.providers, "payments": Silent(office.world, "payments")})
    assert (told(report, order), report.unlisted) == ([("undone", "charge")], ("payments",))
    assert (await office.state(order, "charge"), await office.in_review(order)) == (EffectState.REVERSED, {})
    assert office.acts(order, "charge", undone=True) == before


class Silent(SimulatedProvider):
    """A provider that cannot say what it did."""

    async def list(self, since: datetime) -> "list[Listed] | None":
        return None


async def test_another_amount_than_was_asked_for_stands_all_the_same(office: Office) -> None:
    """M03: the ledger learns what was really taken, and a person decides."""
    order = office.order(Fate.TERMINATED)
    act = office.act(order, "charge")
    await office.providers["payments"].perform(act.model_copy(update={"amount_minor": 800}))
    await office.make_known(order, "charge", Known.PENDING)
    assert told(await office.reconcile(), order) == [("opened", "charge"), ("adopted", "charge")]
    record = await office.ledger.get(act.key)
    assert record is not None
    assert (record.state, record.captured_minor) == (EffectState.COMMITTED, 800)


async def test_the_queue_gets_what_an_open_order_waits_for(office: Office) -> None:
    """As after a restore: the order's own word is taken, and operations on it go to its door."""
    order = office.order(Fate.OPEN, Stage.COMPENSATION_FAILED)
    await office.effect(order, "charge", Truth.DONE, Known.REVERSING)
    left = Standing(
        step="charge", key=office.act(order, "charge").key, amount_minor=900, currency="EUR", error="CannotUndo"
    )
    office.orders.views[order] = OrderView(order=order, run_id="r", stage=Stage.COMPENSATION_FAILED, standing=(left,))
    assert told(await office.reconcile(), order) == [("opened", "charge")]
    [item] = await office.ledger.reviews_of(order)
    assert (item.opened_by, item.error) == ("order", "CannotUndo")
    again = await office.reconcile()
    assert (told(again, order), again.changes) == ([("in_review", "charge")], 0)


async def test_what_people_decided_is_not_brought_up_again(office: Office) -> None:
    """Kept means kept, for what stands and for what the ledger never knew."""
    known, unknown = office.order(Fate.TERMINATED), office.order(Fate.VANISHED)
    await office.effect(known, "charge", Truth.DONE, Known.COMMITTED)
    await office.effect(known, "reserve_inventory", Truth.DONE, Known.COMMITTED)
    await office.effect(unknown, "charge", Truth.DONE, Known.NOTHING)
    await office.reconcile()
    assert await office.in_review(unknown) == {"charge": "unknown_to_the_ledger"}
    for order in (known, unknown):
        key, undo_key = office.act(order, "charge").key, office.undo(order, "charge").key
        await office.ledger.resolve(key, undo_key, Resolution.KEPT)
    report = await office.reconcile()
    assert (report.changes, told(report, known), told(report, unknown)) == (0, [("in_review", "reserve_inventory")], [])


@pytest.mark.parametrize("known", [Known.NOTHING, Known.COMMITTED, Known.REVERSING])
@pytest.mark.parametrize("told_by", ["history", "operations"])
async def test_what_people_resolved_is_not_taken_back_on_top_of_that(
    office: Office, known: Known, told_by: str
) -> None:
    """I-1: a ledger that was restored, or pruned, shows a charge that somebody has given back by hand."""
    order = office.order(Fate.FAILED, Stage.FAILED_COMPENSATED)
    await office.effect(order, "charge", Truth.DONE, known)
    key = office.act(order, "charge").key
    if told_by == "history":
        office.orders.resolutions[order] = [key]
    else:
        await office.ledger.book_operation(_resolution(order, key), "a.b.c")
    for _ in "ab":
        await office.reconcile()
        assert (office.acts(order, "charge", undone=True), await office.in_review(order)) == (
            [],
            {"charge": RESOLVED_BEFORE},
        )


def _resolution(order: str, key: str) -> OperationClaims:
    left = Standing(step="charge", key=key, amount_minor=900, currency="EUR", error="CannotUndo")
    now = datetime.now(UTC)
    return operation_on(
        left, order, Operation.RESOLVE, "carol", now, reason="r", outcome=Resolution.TAKEN_BACK, evidence="e"
    )


async def test_a_charge_that_stays_pending_goes_to_people_after_a_day(office: Office) -> None:
    """Issue 3: polled, then queued; until then it is only postponed."""
    order = office.order(Fate.TERMINATED)
    office.fault("pending", "charge", order, times=1000)
    await office.effect(order, "charge", Truth.DONE, Known.PENDING)
    await office.reconcile()
    assert await office.in_review(order) == {}
    await office.reconcile(later=timedelta(days=2))
    assert await office.in_review(order) == {"charge": "OutcomeUnknown"}


async def test_an_item_that_was_closed_during_a_run_stays_closed(office: Office) -> None:
    """Issue 3: whoever decided meanwhile knew more than this run had read."""
    order = office.order(Fate.TERMINATED)
    await office.effect(order, "charge", Truth.DONE, Known.COMMITTED)
    await office.reconcile()
    seen = await office.ledger.reviews_of(order)
    act = office.act(order, "charge")
    await office.ledger.resolve(act.key, office.undo(order, "charge").key, Resolution.KEPT)
    changed = await office.ledger.put_in_review(order, "reconcile", [seen[0].standing], seen=seen)
    assert (changed, await office.in_review(order)) == ([], {})


async def test_what_the_ledger_denies_goes_to_people_until_it_is_true(office: Office) -> None:
    """A charge that landed after its tombstone stands, whatever the ledger swears."""
    order = office.order(Fate.FAILED, Stage.FAILED)
    await office.effect(order, "charge", Truth.DONE, Known.VOIDED)
    assert told(await office.reconcile(), order) == [("opened", "charge")]
    assert await office.in_review(order) == {"charge": "contradicts_the_ledger"}
    act = office.act(order, "charge")
    await office.providers["payments"].undo(office.undo(order, "charge"), act)
    assert told(await office.reconcile(), order) == [("closed", "charge")]


async def test_keys_of_others_are_counted_and_left_alone(office: Office) -> None:
    """A provider's account may serve somebody else too."""
    act = office.act(office.order(Fate.OPEN), "charge")
    for key in ("their-payment-17", "invoice-17.charge.do"):
        await office.providers["payments"].perform(act.model_copy(update={"key": key}))
    report = await office.reconcile()
    assert (report.foreign, report.findings) == (2, ())


async def test_an_item_tells_what_was_tried_until_it_is_closed(office: Office) -> None:
    """An operator's retry was refused: the next run does not write over that."""
    order = office.order(Fate.TERMINATED)
    await office.effect(order, "charge", Truth.DONE, Known.COMMITTED)
    await office.reconcile()
    [item] = await office.ledger.reviews_of(order)
    refused = item.standing.model_copy(update={"error": "CannotUndo", "detail": "closed_account"})
    await office.ledger.put_in_review(order, "reconcile", [refused])
    again = await office.reconcile()
    assert (told(again, order), again.changes) == ([("in_review", "charge")], 0)
    assert await office.in_review(order) == {"charge": "CannotUndo"}


async def test_what_an_open_order_put_before_people_is_its_own(office: Office) -> None:
    """While it carries out an operation it is in another stage; its item is not taken away meanwhile."""
    order = office.order(Fate.OPEN, Stage.COMPENSATING)
    await office.effect(order, "charge", Truth.DONE, Known.REVERSING)
    key = office.act(order, "charge").key
    left = Standing(step="charge", key=key, amount_minor=900, currency="EUR", error="CannotUndo")
    await office.ledger.put_in_review(order, "order", [left])
    assert (await office.reconcile()).findings == ()
    assert await office.in_review(order) == {"charge": "CannotUndo"}


async def test_a_provider_that_raises_is_out(office: Office) -> None:
    """The protocol forbids it; one package that does all the same must not end the whole run."""
    order, other = office.order(Fate.VANISHED), office.order(Fate.TERMINATED)
    await office.effect(order, "charge", Truth.DONE, Known.PENDING)
    await office.effect(other, "reserve_inventory", Truth.DONE, Known.PENDING)
    report = await office.reconcile(providers={**office.providers, "payments": Raising()})
    assert (told(report, order), report.unlisted) == ([("postponed", "charge")], ("payments",))
    assert ("opened", "reserve_inventory") in told(report, other)


async def test_a_provider_that_cannot_look_up_proves_nothing(office: Office) -> None:
    """I07: what may have been done stays unknown, for a person after a day; a dry run knows that too."""
    mute = office.world.provider("payments", Capabilities(lookup_by=frozenset(), lists=False))
    providers = {**office.providers, "payments": mute}
    order = office.order(Fate.TERMINATED)
    await office.effect(order, "charge", Truth.NEVER, Known.PENDING)
    for dry_run in (True, False):
        report = await office.reconcile(providers=providers, dry_run=dry_run)
        assert (told(report, order), report.unlisted) == ([("postponed", "charge")], ("payments",))
    tomorrow = await office.reconcile(providers=providers, later=timedelta(hours=25))
    assert told(tomorrow, order) == [("opened", "charge")]
    assert [line for line in office.world.log() if line["kind"] == "lookup"] == []


class Raising(SimulatedProvider):
    """A provider that breaks the rules of the protocol."""

    def __init__(self) -> None:
        self.name = "payments"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities()

    async def lookup(self, act: Act, by: Handle = Handle.KEY) -> Found:
        raise KeyError("status")

    async def list(self, since: datetime) -> "list[Listed] | None":
        raise ValueError("no such page")


@pytest.mark.parametrize("fault", ["hang", "unavailable", "lost_reply"])
async def test_an_outage_only_postpones(office: Office, fault: str) -> None:
    """I06: nobody is bothered with twenty unknowns; the next run, with the provider back, settles them all."""
    orders = [office.order(Fate.TERMINATED) for _ in range(20)]
    for order in orders:
        await office.effect(order, "charge", Truth.DONE, Known.PENDING)
    office.fault(fault, "lookup", times=25)
    out = await office.reconcile(within=SOON)
    assert out.counts == {"ended": 20, "postponed": 20}
    await mend(office)
    settled = await office.reconcile()
    assert settled.counts == {"adopted": 20, "opened": 20}


async def mend(office: Office) -> None:
    """Ask until the payment provider answers again."""
    nobody = office.act(office.order(Fate.OPEN), "charge")
    found: Found | None = None
    while not isinstance(found, Absent):
        with suppress(TimeoutError):
            found = await asyncio.wait_for(office.providers["payments"].lookup(nobody), 0.05)


async def test_a_provider_that_is_out_is_not_asked_a_thousand_times(office: Office) -> None:
    """Each question that nobody answers takes its whole time: after a few the rest is left for the next run."""
    for _ in range(40):
        await office.effect(office.order(Fate.TERMINATED), "charge", Truth.DONE, Known.PENDING)
    office.fault("hang", "lookup", times=100)
    assert (await office.reconcile(within=SOON)).counts["postponed"] == 40
    assert len([line for line in office.world.log() if line["kind"] == "lookup"]) <= 10


async def test_what_a_provider_does_not_know_for_a_day_goes_to_people(office: Office) -> None:
    """I06: it answers, and cannot say: somebody has to ask there by other means. It may still say so later."""
    order = office.order(Fate.TERMINATED)
    await office.effect(order, "charge", Truth.DONE, Known.PENDING)
    office.fault("lost_reply", "lookup")
    assert told(await office.reconcile(later=timedelta(hours=23)), order) == [("postponed", "charge")]
    office.fault("lost_reply", "lookup")
    assert told(await office.reconcile(later=timedelta(hours=25)), order) == [("opened", "charge")]
    assert await office.in_review(order) == {"charge": "OutcomeUnknown"}
    office.fault("lost_reply", "lookup")
    again = await office.reconcile(later=timedelta(hours=25))
    assert (told(again, order), again.changes) == ([("in_review", "charge")], 0)


async def test_a_row_that_cannot_be_read_stops_its_own_order_only(office: Office, database: LedgerDatabase) -> None:
    """W18: it is named, and everything else is settled."""
    broken, other = (office.order(Fate.FAILED, Stage.FAILED_COMPENSATED) for _ in range(2))
    for order in (broken, other):
        await office.effect(order, "charge", Truth.DONE, Known.COMMITTED)
        await office.effect(order, "reserve_inventory", Truth.DONE, Known.COMMITTED)
    await office.make_known(broken, "notify", Known.DECLINED)
    notify = office.act(broken, "notify").key
    database.run(f"UPDATE effects SET updated_at = 9000000000000000000 WHERE key = '{notify}'")
    report = await office.reconcile()
    assert [each.what for each in report.findings if each.order == broken] == ["failed"]
    assert notify in str([each.detail for each in report.findings if each.order == broken])
    assert told(report, other) == [("undone", "reserve_inventory"), ("undone", "charge")]


@pytest.mark.parametrize("method", ["reviews_of", "claim"])
async def test_without_the_ledger_the_attempt_ends(office: Office, method: str) -> None:
    """Nothing can be known of any order then: Temporal tries again, from the start."""

    async def fails() -> None:
        raise LedgerUnavailable("gone")

    watched = WatchedLedger(office.ledger)
    watched.before[method] = fails
    await office.effect(office.order(Fate.TERMINATED), "charge", Truth.DONE, Known.PENDING)
    with pytest.raises(LedgerUnavailable):
        await office.reconcile(ledger=watched)


async def test_two_reconciliations_at_once_take_back_once(office: Office) -> None:
    """Whoever starts one by another id than the usual gets the same: claims keep them apart."""
    orders = [office.order(Fate.FAILED, Stage.FAILED_COMPENSATED) for _ in range(10)]
    for order in orders:
        await office.effect(order, "charge", Truth.DONE, Known.COMMITTED)
    await asyncio.gather(*(office.reconcile() for _ in range(3)))
    undone = [line for line in office.world.log() if "of" in line and line["outcome"] == "done"]
    assert len(undone) == 10
    assert {await office.state(order, "charge") for order in orders} == {EffectState.REVERSED}
