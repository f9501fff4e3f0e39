"""The words and messages that this release knows: what a redacted value may keep, and what it has to stay."""

import json
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from orderflow import contracts
from orderflow.domain import announcements, approvals, audit, events, operations, orders, reconciliation
from orderflow.domain.errors import ErrorType

_MODULES: Final = (announcements, approvals, audit, contracts, events, operations, orders)
MODELS: Final = tuple(
    {
        kind.__name__: kind
        for module in _MODULES
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, BaseModel) and kind is not BaseModel
    }.values()
)
_REQUIRED: Final = {
    model: {name for name, field in model.model_fields.items() if field.is_required()} for model in MODELS
}
_OF_CORE: Final = frozenset(
    {
        "seq",
        "attempt",
        "activity_id",
        "activity_type",
        "complete_time",
        "seconds",
        "nanos",
        "backoff",
        "original_schedule_time",
        "activation_index",
        "deprecated",
        "approval",
    }
)
MEMBERS: Final = frozenset(name for model in MODELS for name in model.model_fields) | _OF_CORE
WORDS: Final = (
    {word.value for kind in (orders.Stage, orders.Reason, orders.StepState, ErrorType) for word in kind}
    | {word.value for kind in (approvals.Decision, approvals.Refusal, audit.Told) for word in kind}
    | {word.value for kind in (operations.Operation, operations.Resolution, reconciliation.What) for word in kind}
    | {contracts.APPROVE_SIGNAL, contracts.DECIDE_UPDATE, contracts.OPERATE_UPDATE, "signal", "update"}
    | {"timeout", "cancelled", "worker", "dev.orderflow.order.placed.v1", "1.0"}
)


def kinds(value: Any) -> tuple[bool, ...]:
    """Which of our messages `value` is."""
    if not isinstance(value, dict):
        return ()
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return tuple(required <= value.keys() and _is(model, text) for model, required in _REQUIRED.items())


def _is(model: type[BaseModel], text: str) -> bool:
    try:
        model.model_validate_json(text)
    except (ValidationError, ValueError):
        return False
    return True
