"""Any ledger: what each write does in each state of an effect."""

from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from orderflow.domain.effects import TRANSITIONS, UNDONE, EffectState, Refused
from orderflow.domain.errors import EffectReversed, IntentConflict, OrderflowError
from orderflow.ledger import Claim, EffectLedger, EffectRecord
from tests.support.ledger import CHARGE, LONG, NO_TIME, REFUND, LedgerDatabase, charge, state_of
from tests.support.ledger_states import DONE, OPEN_ANSWERS, REACH, pending

pytestmark = pytest.mark.timeout(60)

STATES = pytest.mark.parametrize("state", list(REACH), ids=lambda state: state or "unseen")


def stale(record: EffectRecord) -> Claim:
    """The newest claim there ever was, as a holder that woke up late still has it."""
    return Claim(record, "late", fresh=False)


async def every_write(ledger: EffectLedger) -> list[Callable[[], Awaitable[object]]]:
    """Everything that can be asked of a ledger for the charge, as it stands now."""
    record = await ledger.get(CHARGE.key)
    undo_record = await ledger.get(REFUND.key)
    answers = [DONE, Refused(code="no"), *OPEN_ANSWERS]
    writes: list[Callable[[], Awaitable[object]]] = [
        partial(ledger.claim, CHARGE, holder="two", lease=NO_TIME),
        partial(ledger.claim_undo, REFUND, CHARGE, holder="two", lease=NO_TIME),
        partial(ledger.void, CHARGE),
    ]
    if record:
        claim = stale(record)
        writes += [partial(ledger.void, CHARGE, claim), partial(ledger.renew, claim, NO_TIME)]
        writes += [partial(ledger.settle, claim, answer) for answer in answers]
    if undo_record:
        undo = stale(undo_record)
        writes += [partial(ledger.settle_undo, undo, CHARGE, answer) for answer in answers]
    return writes


@STATES
async def test_no_write_takes_an_effect_to_a_state_that_may_not_follow(
    database: LedgerDatabase, ledger: EffectLedger, state: EffectState | None
) -> None:
    """Every write from every state either changes nothing or follows the table (the database holds it too)."""
    tried, more = 0, True
    while more:
        database.empty()
        await REACH[state](ledger)
        assert await state_of(ledger) == state
        writes = await every_write(ledger)
        try:
            await writes[tried]()
        except OrderflowError:
            assert await state_of(ledger) == state
        after = await state_of(ledger)
        assert after == state or after in TRANSITIONS[state]
        assert (state, after) != (EffectState.REVERSING, EffectState.COMMITTED), "only a person's word does that"
        tried += 1
        more = tried < len(writes)


@STATES
async def test_a_claim_depends_on_the_state_alone(ledger: EffectLedger, state: EffectState | None) -> None:
    """Open effects are claimed, settled ones are given back, undone ones are refused for ever (T02)."""
    await REACH[state](ledger)
    if state in UNDONE:
        with pytest.raises(EffectReversed, match=CHARGE.key):
            await ledger.claim(CHARGE, holder="two", lease=LONG)
        return
    outcome = await ledger.claim(CHARGE, holder="two", lease=LONG)
    if isinstance(outcome, Claim):
        assert state in {None, EffectState.PENDING}
        assert outcome.fresh is (state is None)
        assert outcome.record.token == (1 if state is None else 2)
    else:
        assert outcome.state == state


@STATES
async def test_same_key_with_other_amount_is_a_conflict(ledger: EffectLedger, state: EffectState | None) -> None:
    """Whatever state the first intent is in, another one never takes its key (I01)."""
    await REACH[state](ledger)
    other = charge(amount_minor=1001)
    if state is None:
        await pending(ledger)
    before = await ledger.get(CHARGE.key)
    with pytest.raises(IntentConflict):
        await ledger.claim(other, holder="two", lease=LONG)
    with pytest.raises(IntentConflict):
        await ledger.claim_undo(REFUND, other, holder="two", lease=LONG)
    assert await ledger.get(CHARGE.key) == before


@pytest.mark.parametrize("state", [None, EffectState.VOIDED, EffectState.DECLINED, EffectState.REVERSED])
async def test_nothing_to_undo_claims_nothing(ledger: EffectLedger, state: EffectState | None) -> None:
    """What was never done, or is taken back, gives its record; what was never seen gets its tombstone (T08)."""
    await REACH[state](ledger)
    attempts = await ledger.attempts("order-1")
    outcome = await ledger.claim_undo(REFUND, CHARGE, holder="two", lease=LONG)
    assert isinstance(outcome, EffectRecord)
    assert (outcome.key, outcome.state) == (CHARGE.key, state or EffectState.VOIDED)
    assert await ledger.attempts("order-1") == attempts


@STATES
async def test_a_tombstone_covers_only_what_was_never_seen(ledger: EffectLedger, state: EffectState | None) -> None:
    """Without a claim an existing row stays as it is."""
    await REACH[state](ledger)
    before = await ledger.get(CHARGE.key)
    record = await ledger.void(CHARGE)
    assert record.state == (state or EffectState.VOIDED)
    assert before in (None, record)
