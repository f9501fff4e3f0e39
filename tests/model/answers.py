"""What a call of the store may answer, seen from the bank's books and the reference.

Only what stays true whatever others do meanwhile is asked for: a call may have been stopped after its last step.
"""

import asyncio
from dataclasses import dataclass

from orderflow.domain.effects import UNDONE, Act, EffectState
from orderflow.domain.errors import (
    AmountMismatch,
    CannotUndo,
    Declined,
    EffectReversed,
    IntentConflict,
    TransientError,
)
from orderflow.ledger import EffectRecord
from tests.model.bank import Entry
from tests.model.calls import Call
from tests.support.bank import Killed

_S = EffectState


@dataclass(frozen=True)
class Asked:
    """A call, and the `operation` on the charge `act` that it was asked for: perform, undo, settle or void."""

    call: Call
    operation: str
    act: Act

    def false_answer(self) -> str | None:
        """What is wrong with the answer of a call that is over."""
        outcome = self.call.outcome()
        so = self._is_true_error(outcome) if isinstance(outcome, BaseException) else self._is_true(outcome)
        return None if so else f"{self.operation} {self.act.key} answered {outcome!r}; the bank: {self._charge}"

    def _is_true(self, record: EffectRecord | None) -> bool:
        charge, undoes = self._charge, self.operation == "undo"
        if record is None:
            done_since = self.operation == "settle" and self.call.looked_away
            return self.operation in {"settle", "void"} and (not charge.moved or done_since)
        match record.state:
            case _S.COMMITTED:
                return not undoes and charge.moved == [record.captured_minor] == [self.act.amount_minor]
            case _S.DECLINED:
                return self.operation != "perform" and charge.refused and not charge.moved
            case _S.VOIDED:
                return undoes and not charge.moved
            case _S.REVERSED:
                return undoes and charge.left == 0
            case _:
                return False

    def _is_true_error(self, error: BaseException) -> bool:
        charge, reference, undoes = self._charge, self.call.world.reference, self.operation == "undo"
        match error:
            case Declined():
                return self.operation == "perform" and charge.refused and not charge.moved
            case AmountMismatch():
                return not undoes and charge.moved not in ([], [self.act.amount_minor])
            case EffectReversed():
                taken_back = bool(charge.moved) and charge.left == 0
                return not undoes and (reference.state(self.act.key) in UNDONE or taken_back)
            case CannotUndo():
                return undoes and self.call.world.bank.undo_of(charge).was_refused
            case IntentConflict():
                return reference.rows[self.act.key].digest != self.act.intent_digest
            case _:
                return isinstance(error, TransientError | Killed | asyncio.CancelledError)

    @property
    def _charge(self) -> Entry:
        return self.call.world.bank.entry(self.act.key)
