"""The life of an order: stages, reason codes, what became of each step, and which transition is legal."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType

from pydantic import BaseModel, ConfigDict, Field

from orderflow.domain.strict_json import JsonValue


class Stage(StrEnum):
    """Where an order stands: a gerund while it runs, a participle when it is final."""

    RUNNING = "running"
    AWAITING_APPROVAL = "awaiting_approval"
    MANUAL_REVIEW = "manual_review"
    COMPENSATING = "compensating"
    COMPLETED = "completed"
    FAILED = "failed"
    FAILED_COMPENSATED = "failed_compensated"
    COMPENSATION_FAILED = "compensation_failed"


class Reason(StrEnum):
    """Why an order did not complete."""

    INVALID_INPUT = "invalid_input"
    IDENTITY_MISMATCH = "identity_mismatch"
    DEFINITION_MISMATCH = "definition_mismatch"
    INVALID_ORDER = "invalid_order"
    APPROVAL_REJECTED = "approval_rejected"
    APPROVAL_EXPIRED = "approval_expired"
    APPROVAL_REFUSED = "approval_refused"
    RISK_DECLINED = "risk_declined"
    DECLINED = "declined"
    AMOUNT_MISMATCH = "amount_mismatch"
    RETRIES_EXHAUSTED = "retries_exhausted"
    OUTCOME_UNKNOWN = "outcome_unknown"
    INTENT_CONFLICT = "intent_conflict"
    EFFECT_REVERSED = "effect_reversed"
    STEP_FAILED = "step_failed"
    CANCELLED = "cancelled"


TRANSITIONS: Mapping[Stage, frozenset[Stage]] = MappingProxyType(
    {
        Stage.RUNNING: frozenset(
            {
                Stage.AWAITING_APPROVAL,
                Stage.MANUAL_REVIEW,
                Stage.COMPENSATING,
                Stage.COMPLETED,
                Stage.FAILED,
            }
        ),
        Stage.AWAITING_APPROVAL: frozenset(
            {Stage.RUNNING, Stage.AWAITING_APPROVAL, Stage.MANUAL_REVIEW, Stage.COMPENSATING, Stage.FAILED}
        ),
        Stage.MANUAL_REVIEW: frozenset(
            {Stage.RUNNING, Stage.AWAITING_APPROVAL, Stage.MANUAL_REVIEW, Stage.COMPENSATING, Stage.FAILED}
        ),
        Stage.COMPENSATING: frozenset({Stage.FAILED, Stage.FAILED_COMPENSATED, Stage.COMPENSATION_FAILED}),
        Stage.COMPENSATION_FAILED: frozenset({Stage.COMPENSATING, Stage.FAILED_COMPENSATED}),
        Stage.COMPLETED: frozenset(),
        Stage.FAILED: frozenset(),
        Stage.FAILED_COMPENSATED: frozenset(),
    }
)
"""Which stage may follow which."""

FINAL = frozenset(stage for stage, followers in TRANSITIONS.items() if not followers)
"""Stages that nothing follows."""


def check_transition(before: Stage, after: Stage) -> None:
    """Raise `ValueError` unless `after` may follow `before`: an illegal one is a bug, never a business fault."""
    if after not in TRANSITIONS[before]:
        raise ValueError(f"an order cannot go from {before} to {after}")


class StepState(StrEnum):
    """What became of a step."""

    WAITING = "waiting"
    RUNNING = "running"
    IN_REVIEW = "in_review"
    DONE = "done"
    SKIPPED = "skipped"
    FAILED = "failed"
    UNDONE = "undone"
    STANDING = "standing"


SETTLED = frozenset({StepState.DONE, StepState.SKIPPED})
"""States of a step after which the steps that depend on it may run."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class StepRecord(_Model):
    """One step of one order: its state, the provider's reference, and why it failed or was skipped.

    `error` is an `ErrorType` or `timeout`/`cancelled`; `detail` a short code, never a provider's free text (T46).
    """

    step: str
    activity: str
    state: StepState = StepState.WAITING
    reference: str | None = None
    decision: str | None = None
    amount_minor: int | None = None
    done_at: datetime | None = None
    error: str | None = None
    detail: str | None = None


class Said(_Model):
    """One operator's word on how an effect that stands was settled outside; `jti` is that of the signed operation."""

    operator: str
    outcome: str
    jti: str


class Standing(_Model):
    """An effect left standing by a compensation that failed: what a person has to put right (I-4).

    `said` is what operators said so far, where it takes more than one.
    """

    step: str
    key: str
    amount_minor: int | None
    currency: str | None
    error: str
    detail: str | None = None
    said: tuple[Said, ...] = ()

    def with_said(self, said: Said) -> "Standing":
        """This effect with one more word on it; a person's latest word is what counts."""
        others = tuple(other for other in self.said if other.operator != said.operator)
        return self.model_copy(update={"said": (*others, said)})


class Outcome(_Model):
    """How an order ended: the same in the result, in the failure's details, and in the query `view`."""

    order: str = Field(description="the Workflow ID")
    stage: Stage
    reason: Reason | None = None
    detail: str | None = None
    steps: tuple[StepRecord, ...] = ()
    standing: tuple[Standing, ...] = ()
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, JsonValue]:
        """This outcome as plain JSON."""
        dumped: dict[str, JsonValue] = self.model_dump(mode="json")
        return dumped
