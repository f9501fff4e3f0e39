"""Safe events: what may be told about an order to logs, metrics and people, and nothing else.

A safe event holds names, codes, amounts and opaque ids; never a customer, an address or a provider's free text.
"""

from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel, ConfigDict


class Told(StrEnum):
    """What a safe event tells."""

    STAGE_CHANGED = "stage_changed"
    STEP_CHANGED = "step_changed"
    REQUEST_OPENED = "request_opened"
    DECISION_ACCEPTED = "decision_accepted"
    DECISION_REFUSED = "decision_refused"
    OPERATION_ACCEPTED = "operation_accepted"
    CANCELLATION_RECORDED = "cancellation_recorded"


class SafeEvent(BaseModel):
    """One entry of an order's audit trail, at workflow time."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    at: datetime
    told: Told
    subject: str
    """The stage, step, door or approver's decision that it is about."""
    detail: str | None = None
