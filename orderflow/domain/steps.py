"""The model of one step of a definition: what it does, after what, how patiently, and how it is undone."""

import re
from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from orderflow.domain.durations import Duration
from orderflow.domain.intents import STEP_ID

NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_LABEL = re.compile(r"[a-z][a-z0-9_-]{0,63}")


def _matching(pattern: re.Pattern[str], sentence: str) -> AfterValidator:
    def check(text: str) -> str:
        if not pattern.fullmatch(text):
            raise ValueError(sentence)
        return text

    return AfterValidator(check)


StepId = Annotated[str, _matching(STEP_ID, "must be 1 to 40 of a-z, 0-9 and _, a letter first")]
"""The id of a step: it becomes part of idempotency keys."""
Name = Annotated[str, _matching(NAME, "must be 1 to 64 of a-z, 0-9 and _, a letter first")]
"""A name in the catalogue, such as `charge_payment`."""
Label = Annotated[str, _matching(_LABEL, "must be 1 to 64 of a-z, 0-9, _ and -, a letter first")]
"""A name that people give: of a role, of a definition."""

INLINE_ACTIVITIES = frozenset({"validate_order"})
"""What runs as a recorded check inside the workflow's admission: no activity, so no attempts, timeouts or undo."""

DEFAULT_ROUTE = "default"
"""The key in `routes` for every decision that has no route of its own."""


class Policy(BaseModel):
    """What every part of a definition has in common: frozen, strict, and no field that is not known."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class OnFailure(StrEnum):
    """What a step that failed for good means for the order."""

    COMPENSATE = "compensate"
    CONTINUE = "continue"


class Route(StrEnum):
    """Where the decision of a check sends the order."""

    PROCEED = "proceed"
    DECLINE = "decline"
    MANUAL_REVIEW = "manual_review"


class RetryPolicy(Policy):
    """Finite attempts with growing pauses between them (T22). `non_retryable` names types of `ErrorType` (T18)."""

    attempts: int = Field(ge=1, le=100)
    initial_interval: Duration
    backoff: int = Field(ge=1, le=10)
    maximum_interval: Duration
    non_retryable: tuple[str, ...] = ()

    def pause_after(self, attempt: int) -> timedelta:
        """How long to wait between this attempt, counted from 1, and the next."""
        pause = self.initial_interval.timedelta
        for _ in range(attempt - 1):
            pause = min(pause * self.backoff, self.maximum_interval.timedelta)
        return pause

    def time_needed(self, start_to_close: Duration) -> timedelta:
        """How long it takes when every attempt uses all of `start_to_close`, the pauses between included (T23)."""
        pauses = (self.pause_after(attempt) for attempt in range(1, self.attempts))
        return sum(pauses, start_to_close.timedelta * self.attempts)


class Compensation(Policy):
    """The activity that takes a step back, with a patience of its own."""

    activity: Name
    retry: RetryPolicy
    start_to_close: Duration
    schedule_to_close: Duration
    heartbeat: Duration | None = None


class ApprovalPolicy(Policy):
    """Who must say yes, and until when; both times count from the opening of the request.

    A decision must arrive within `expires_in`; the effect must be claimed for the first time within `charge_within`.
    """

    role: Label
    expires_in: Duration
    charge_within: Duration
    approvers: int = Field(default=1, ge=1, le=5)
    requester_may_approve: bool = False


class Step(Policy):
    """One step. The activity timeouts and `retry` are required unless the activity runs inline.

    `deadline` counts from when the last step that it waits for was done: past it, an effect that was never claimed is
    not done any more, and the order goes on.
    `routes` maps the decisions of a check to routes; `review` is how a person decides for `manual_review`.
    """

    id: StepId
    activity: Name
    depends_on: tuple[StepId, ...] = ()
    retry: RetryPolicy | None = None
    start_to_close: Duration | None = None
    schedule_to_close: Duration | None = None
    heartbeat: Duration | None = None
    compensation: Compensation | None = None
    approval: ApprovalPolicy | None = None
    deadline: Duration | None = None
    on_failure: OnFailure = OnFailure.COMPENSATE
    routes: Mapping[str, Route] | None = None
    review: ApprovalPolicy | None = None
