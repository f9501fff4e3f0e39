"""The one place that guarantees "once": claim, ask the provider, write down what came of it.

Three short steps, and no transaction is open during the second (D07). Whoever finds an effect that was claimed before
asks the provider what became of it before anything is sent again (I05), so a crash between any two steps costs a
lookup, never a second charge. What a provider's answer proves, and for how long, is in `recall.py`.
"""

from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from orderflow.domain.effects import (
    STANDING,
    Absent,
    Act,
    Busy,
    Done,
    EffectState,
    Found,
    Provider,
    Refused,
    Unavailable,
    Undone,
)
from orderflow.domain.errors import (
    AmountMismatch,
    CannotUndo,
    ClaimLost,
    Declined,
    EffectBusy,
    EffectReversed,
    OrderflowError,
    OutcomeUnknown,
    ProviderUnavailable,
)
from orderflow.domain.intents import Direction, idempotency_key
from orderflow.ledger import Claim, EffectLedger, EffectRecord
from orderflow.ledger.leases import Deadline, ask_while_held, claim_in_turn
from orderflow.ledger.recall import NO_PROOF, Recall, answered, as_taken_back, known_for, may_be_done_late


class EffectStore:
    """Does effects through a ledger, so that each is applied once.

    `holder` names who acts (for the record of attempts); `lease` is how long a claim outlives a holder that died;
    `patience` bounds the waiting inside one call: for another holder, and for a provider that answers *pending*,
    which is asked again every `poll_interval` seconds.
    """

    def __init__(self, ledger: EffectLedger, *, poll_interval: float = 0.5) -> None:
        self._ledger = ledger
        self._poll_interval = poll_interval

    async def perform(
        self,
        act: Act,
        provider: Provider,
        *,
        holder: str,
        lease: timedelta,
        patience: timedelta,
        claim_by: datetime | None = None,
        admit: Callable[[], None] | None = None,
        still_wanted: Callable[[], None] | None = None,
    ) -> EffectRecord:
        """Do `act` once and give its COMMITTED record, now or from an earlier attempt.

        `admit` is called before an effect that the ledger has never seen, and may refuse it by raising; what was
        claimed before is finished whatever the time (`charge_by`). `still_wanted` may do so before something is sent
        again that the provider proved not to have done.

        Raises:
            Declined, AmountMismatch, IntentConflict, EffectReversed, ChargeWindowClosed: for good.
            EffectBusy, ProviderUnavailable, OutcomeUnknown, ClaimLost, LedgerUnavailable: try again.
        """
        if admit is not None and await self._ledger.get(act.key) is None:
            admit()
        outcome = await self._under_claim(
            partial(self._ledger.claim, act, holder=holder, lease=lease, claim_by=claim_by),
            partial(self._perform, act, provider, still_wanted),
            self._ledger.settle,
            lease=lease,
            patience=patience,
        )
        if isinstance(outcome, EffectRecord):
            return _adopted(act, outcome)
        answer, record = outcome
        if isinstance(answer, Done):
            return _as_asked(act, record)
        raise Declined(answer.code) if isinstance(answer, Refused) else not_done(act, answer)

    async def undo(
        self, undo: Act, of: Act, provider: Provider, *, holder: str, lease: timedelta, patience: timedelta
    ) -> EffectRecord:
        """Take `of` back once, under `undo`'s own key (T07), and give the record of `of`.

        Nothing to undo is success: never seen (VOIDED now, so that a late perform is refused: T02), DECLINED, REVERSED.
        Of what was claimed and then VOIDED the provider is asked once, because a holder may have slept and acted since:
        VOIDED stays, unless something was taken back. Nobody is asked where no attempt can have acted.

        Raises:
            CannotUndo: the provider's definitive no; undoing again asks it again.
            AmountMismatch, IntentConflict: for good. More was given back than was taken, also when it was found so.
            EffectBusy, ProviderUnavailable, OutcomeUnknown, ClaimLost, LedgerUnavailable: try again.
        """
        if (never_sent := await self._never_sent(undo, of)) is not None:
            return never_sent
        outcome = await self._under_claim(
            partial(self._ledger.claim_undo, undo, of, holder=holder, lease=lease),
            partial(self._undo, undo, of, provider),
            partial(self._write_undo, of),
            lease=lease,
            patience=patience,
        )
        if isinstance(outcome, EffectRecord):
            return _as_taken(outcome)
        answer, record = outcome
        if isinstance(answer, Done):
            return _as_taken(record)
        if isinstance(answer, Refused):
            raise _cannot_undo(of, answer)
        raise not_done(undo, answer)

    async def settle(
        self, act: Act, provider: Provider, *, holder: str, lease: timedelta, patience: timedelta, void: bool
    ) -> EffectRecord | None:
        """Take the last look at `act` when its attempts are used up (I06, T25): nothing is sent.

        Gives the record when it was done or declined after all, `None` when it is proven that nothing was done;
        with `void`, nothing can be done any more from then on. A provider that cannot look it up proves nothing, unless
        each attempt ended with its word that it did not act.

        Raises:
            EffectReversed, IntentConflict: for good.
            OutcomeUnknown, EffectBusy, ClaimLost, LedgerUnavailable: ask again, or leave it to a person.
        """
        known = await self._ledger.get(act.key)
        if known is None and void:
            known = await self._ledger.void(act)
        if known is None or known.state is EffectState.VOIDED:
            return None
        outcome = await self._under_claim(
            partial(self._ledger.claim, act, holder=holder, lease=lease),
            partial(self._look, act, provider),
            partial(self._write_last, act, void),
            lease=lease,
            patience=patience,
        )
        if isinstance(outcome, EffectRecord):
            return _as_asked(act, outcome)
        answer, record = outcome
        if isinstance(answer, Absent):
            return None
        if isinstance(answer, Done | Refused):
            return _as_asked(act, record)
        raise not_done(act, answer) if isinstance(answer, Undone) else _unknown(act, answer)

    async def adopt(self, act: Act, done: Done, *, holder: str, lease: timedelta, patience: timedelta) -> EffectRecord:
        """Write down what a provider has `done` under a key that the ledger does not know, as after a restore.

        Nobody is asked and nothing is sent. Gives the record, also when somebody else wrote it down meanwhile.

        Raises:
            IntentConflict, EffectReversed: for good.
            EffectBusy, ClaimLost, LedgerUnavailable: try again.
        """

        async def known(_: Claim, __: Deadline) -> Found:
            return done

        outcome = await self._under_claim(
            partial(self._ledger.claim, act, holder=holder, lease=lease),
            known,
            self._ledger.settle,
            lease=lease,
            patience=patience,
        )
        return outcome if isinstance(outcome, EffectRecord) else outcome[1]

    async def _under_claim(
        self,
        claim: Callable[[], Coroutine[Any, Any, Claim | EffectRecord]],
        ask: Callable[[Claim, Deadline], Awaitable[Found]],
        write: Callable[[Claim, Found], Coroutine[Any, Any, EffectRecord]],
        *,
        lease: timedelta,
        patience: timedelta,
    ) -> tuple[Found, EffectRecord] | EffectRecord:
        """Claim, `ask` the provider, `write` the answer down; a record alone when there was nothing to ask."""
        deadline = Deadline(patience)
        claimed = await claim_in_turn(self._ledger, claim, deadline, self._poll_interval)
        if isinstance(claimed, EffectRecord):
            return claimed
        return await ask_while_held(
            self._ledger, claimed, lease, partial(ask, claimed, deadline), partial(write, claimed)
        )

    async def require_not_compensated(self, workflow_id: str) -> None:
        """Let nothing more be done for an order of which something was taken back, whatever a reset run replays.

        What its earlier steps did may be among it. Raises `EffectReversed`, `LedgerUnavailable`.
        """
        records = await self._ledger.effects(workflow_id)
        if back := [each.key for each in records if each.state in (EffectState.REVERSING, EffectState.REVERSED)]:
            raise EffectReversed(f"{back[0]} was taken back: nothing more is done for this order")

    async def standing(self, workflow_id: str) -> list[EffectRecord]:
        """What may stand outside for an order, its undos left out, the oldest first. Raises `LedgerUnavailable`."""
        records = await self._ledger.effects(workflow_id)
        attempts = await self._ledger.attempts(workflow_id)
        undos = {record.key: record.state for record in records}

        def may_stand(record: EffectRecord) -> bool:
            undo = undos.get(idempotency_key(workflow_id, record.step, Direction.UNDO))
            if record.state is EffectState.VOIDED and undo is EffectState.PENDING:
                return True
            return record.state in STANDING or (may_be_done_late(record, attempts) and undo is None)

        forward = [each for each in records if each.key == idempotency_key(workflow_id, each.step, Direction.DO)]
        return [record for record in forward if may_stand(record)]

    async def _perform(
        self,
        act: Act,
        provider: Provider,
        still_wanted: Callable[[], None] | None,
        claim: Claim,
        deadline: Deadline,
    ) -> Found:
        recall = Recall(act, provider, claim.record.age)
        found = Absent() if claim.fresh else await self._before_sending_again(recall, claim)
        if isinstance(found, Absent) and not claim.fresh and still_wanted is not None:
            still_wanted()
        answer = await answered(provider.perform(act)) if isinstance(found, Absent) else found
        return await recall.polled(answer, deadline, self._poll_interval)

    async def _undo(self, undo: Act, of: Act, provider: Provider, claim: Claim, deadline: Deadline) -> Found:
        recall = Recall(undo, provider, claim.record.age)
        standing = await self._ledger.get(of.key)
        if standing is None:
            raise ClaimLost(f"{of.key} vanished from the ledger")
        target = Recall(of, provider, known_for(standing))
        found = Absent() if claim.fresh else await self._before_sending_again(recall, claim)
        asked = await answered(provider.undo(undo, of)) if isinstance(found, Absent | Refused) else found
        answer = await recall.polled(asked, deadline, self._poll_interval)
        return await as_taken_back(answer, standing, target) if isinstance(answer, Done) else answer

    async def _look(self, act: Act, provider: Provider, claim: Claim, deadline: Deadline) -> Found:
        recall = Recall(act, provider, claim.record.age)
        found = await recall.look() or await self._told_by_attempts(claim)
        return await recall.polled(found, deadline, self._poll_interval)

    async def _before_sending_again(self, recall: Recall, claim: Claim) -> Found:
        """What became of it; `Absent` where sending it again cannot make it happen twice."""
        found = await recall.look()
        if found is None and recall.key_is_remembered:
            return Absent()
        return found or await self._told_by_attempts(claim)

    async def _told_by_attempts(self, claim: Claim) -> Found:
        """What is left to know when the provider cannot say: absent if no attempt before this one can have acted."""
        attempts = await self._ledger.attempts(claim.record.workflow_id)
        before = (each for each in attempts if each.key == claim.record.key and each.token < claim.record.token)
        return NO_PROOF if any(each.may_have_acted for each in before) else Absent()

    async def _never_sent(self, undo: Act, of: Act) -> EffectRecord | None:
        """The tombstone of `of`, if nobody who ever held it can have acted, nor can any more.

        An undo that was begun is taken to its end all the same: its provider may be at work on it.
        """
        known = await self._ledger.get(of.key)
        if known is None or known.state is not EffectState.VOIDED or known.intent_digest != of.intent_digest:
            return None
        begun = await self._ledger.get(undo.key)
        if begun is not None and begun.state is EffectState.PENDING:
            return None
        return None if may_be_done_late(known, await self._ledger.attempts(of.workflow_id)) else known

    async def _write_undo(self, of: Act, claim: Claim, answer: Found) -> EffectRecord:
        return await self._ledger.settle_undo(claim, of, answer)

    async def _write_last(self, act: Act, void: bool, claim: Claim, answer: Found) -> EffectRecord:
        if void and isinstance(answer, Absent):
            return await self._ledger.void(act, claim)
        return await self._ledger.settle(claim, answer)


def _adopted(act: Act, record: EffectRecord) -> EffectRecord:
    if record.state is EffectState.DECLINED:
        raise Declined(record.decline_code or "declined")
    return _as_asked(act, record)


def _as_asked(act: Act, record: EffectRecord) -> EffectRecord:
    asked, moved = act.amount_minor, record.captured_minor
    if asked is not None and moved is not None and moved != asked:
        raise AmountMismatch(asked, moved)
    return record


def _as_taken(record: EffectRecord) -> EffectRecord:
    """Refuse that more came back than was taken; less is right, when somebody else gave back the rest (M04)."""
    taken, back = record.captured_minor, record.refunded_minor
    if taken is not None and back is not None and back > max(taken, record.amount_minor or 0):
        raise AmountMismatch(taken, back)
    return record


def not_done(act: Act, answer: Found) -> OrderflowError:
    """What to raise for an answer that is neither done nor refused."""
    match answer:
        case Busy(retry_after=seconds):
            return EffectBusy(f"{act.provider} is at work on {act.key}", retry_after=seconds)
        case Unavailable(retry_after=seconds):
            return ProviderUnavailable(f"{act.provider} is not available for {act.key}", retry_after=seconds)
        case Undone():
            return EffectReversed(f"{act.provider} says that {act.key} was taken back")
        case _:
            return _unknown(act, answer)


def _cannot_undo(of: Act, answer: Refused) -> CannotUndo:
    error = CannotUndo(f"{of.provider} refuses to take {of.key} back: {answer.code}")
    error.detail = answer.code
    return error


def _unknown(act: Act, answer: Found) -> OutcomeUnknown:
    seconds = answer.retry_after if isinstance(answer, Busy | Unavailable) else None
    return OutcomeUnknown(
        f"what became of {act.key} at {act.provider} is not known: {answer.answer}",
        retry_after=seconds,
        answer=answer.answer,
    )
