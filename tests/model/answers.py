"""What a call of the store may answer, seen from the bank's books and the reference."""

import asyncio

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
from tests.model.calls import Call
from tests.support.bank import Killed

_S = EffectState


def agrees(call: Call, operation: str, act: Act, outcome: EffectRecord | BaseException | None) -> bool:
    """Whether what `operation` on the charge `act` came to is true; only what stays true whatever others do meanwhile."""
    charge, state = call.world.bank.entry(act.key), call.world.reference.state(act.key)
    match outcome:
        case EffectRecord(state=_S.COMMITTED, captured_minor=captured):
            return operation != "undo" and charge.moved == [captured] == [act.amount_minor]
        case EffectRecord(state=_S.DECLINED):
            return operation != "perform" and charge.refused and not charge.moved
        case EffectRecord(state=_S.VOIDED):
            return operation == "undo" and not charge.moved
        case EffectRecord(state=_S.REVERSED):
            return operation == "undo" and charge.left == 0
        case None:
            return operation in {"settle", "void"} and (not charge.moved or (operation == "settle" and call.looked_away))
        case Declined():
            return operation == "perform" and charge.refused and not charge.moved
        case AmountMismatch():
            return operation != "undo" and charge.moved not in ([], [act.amount_minor])
        case EffectReversed():
            return operation != "undo" and (state in UNDONE or (charge.left == 0 and bool(charge.moved)))
        case CannotUndo():
            return operation == "undo" and call.world.bank.entry(act.key.removesuffix("do") + "undo").was_refused
        case IntentConflict():
            return call.world.reference.rows[act.key].digest != act.intent_digest
        case TransientError() | Killed() | asyncio.CancelledError():
            return True
        case _:
            return False
