"""What a step means as an act: its idempotency key, its canonical intent, the money that moves."""

from orderflow.catalogue import StepKind
from orderflow.contracts import StepRequest, UndoRequest
from orderflow.domain.effects import Act
from orderflow.domain.intents import Direction, digest, idempotency_key
from orderflow.domain.strict_json import JsonValue
from orderflow.ledger import EffectRecord


def forward_act(kind: StepKind, request: StepRequest | UndoRequest) -> Act:
    """The act of a step: the same for every attempt, run and worker (I04)."""
    order = request.event.data
    intent, amount = kind.intent(order), kind.amount(order)
    return Act(
        key=idempotency_key(request.workflow_id, request.step, Direction.DO),
        workflow_id=request.workflow_id,
        step=request.step,
        provider=kind.provider,
        operation=kind.operation,
        intent=intent,
        intent_digest=digest(intent),
        amount_minor=amount.amount_minor if amount else None,
        currency=amount.currency if amount else None,
    )


def recorded_act(record: EffectRecord) -> Act:
    """The act that the ledger remembers; of its intent only the digest is known, which is what makes it the same."""
    return Act(
        key=record.key,
        workflow_id=record.workflow_id,
        step=record.step,
        provider=record.provider,
        operation=record.operation,
        intent={},
        intent_digest=record.intent_digest,
        amount_minor=record.amount_minor,
        currency=record.currency,
    )


def undo_act(kind: StepKind, of: Act) -> Act:
    """The act that takes `of` back, under a key of its own that is derived from the same step (T07, I10)."""
    key = idempotency_key(of.workflow_id, of.step, Direction.UNDO)
    intent: dict[str, JsonValue] = {"undo": of.key, "intent_digest": of.intent_digest}
    changes = {
        "key": key,
        "operation": kind.undo_operation,
        "intent": intent,
        "intent_digest": digest(intent),
    }
    return of.model_copy(update=changes)
