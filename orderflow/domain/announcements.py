"""What others are told when an order has finished: one CloudEvent for an order and its final stage, no personal data.

It is an effect of its own, once for each subscriber, and its key is derived from the announcement's own Workflow ID: so
it never belongs to what the order itself did, and nobody takes it back.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from orderflow.domain.durations import LONGEST, Duration
from orderflow.domain.effects import Act
from orderflow.domain.intents import Direction, digest, idempotency_key
from orderflow.domain.operations import AcceptedOperation
from orderflow.domain.orders import FINAL, Reason, Stage, Standing
from orderflow.domain.steps import RetryPolicy
from orderflow.domain.strict_json import JsonValue

EVENT_TYPE: Final = "dev.orderflow.order.finished.v1"
SOURCE: Final = "/orderflow"
"""The CloudEvent's source, unless the subscribers file says another."""

WEBHOOK: Final = "webhook"
"""The provider that the ledger's rows of announcements name."""

_TOLD_WITHIN: Final = Duration("PT30S")
_HEARTBEAT: Final = Duration("PT10S")
_LONGEST_WISH: Final = Duration("PT5M")
_OPERATION: Final = "announce"
_STEP: Final = "announce_"
_ID: Final = re.compile(rf"announce-([0-9a-f]{{32}})-({'|'.join(sorted(FINAL))})")


@dataclass(frozen=True)
class Patience:
    """How one subscriber is told, as the policy of an activity."""

    retry: RetryPolicy
    start_to_close: Duration
    schedule_to_close: Duration
    heartbeat: Duration


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Announcement(_Message):
    """That an order has finished: what, how and when (`at`, aware UTC); `source` is who says so, as a CloudEvent's."""

    order: str
    event_source: str
    event_id: str
    stage: Stage
    reason: Reason | None = None
    definition: str
    at: datetime
    source: str = SOURCE

    @property
    def id(self) -> str:
        """Its own id, that of its workflow, its `webhook-id` and its CloudEvent's `id`."""
        return announcement_id(self.order, self.stage)

    def as_event(self) -> dict[str, JsonValue]:
        """The CloudEvent: the same for every subscriber and on every attempt."""
        return {
            "specversion": "1.0",
            "id": self.id,
            "source": self.source,
            "type": EVENT_TYPE,
            "subject": self.order,
            "time": self.at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "datacontenttype": "application/json",
            "data": {
                "order": self.order,
                "event_source": self.event_source,
                "event_id": self.event_id,
                "stage": self.stage.value,
                "reason": None if self.reason is None else self.reason.value,
                "definition": self.definition,
            },
        }


class Subscription(_Message):
    """That a subscriber hears of one announcement, and how patiently it is told."""

    name: str
    retry: RetryPolicy


class AnnouncingState(BaseModel):
    """What is left of one announcement: `to_tell` are subscribers on their way, `standing` waits for people."""

    model_config = ConfigDict(extra="forbid", strict=True)

    to_tell: list[str]
    standing: list[Standing] = Field(default_factory=list)
    operations: list[AcceptedOperation] = Field(default_factory=list)
    operated: list[str] = Field(default_factory=list)


class AnnounceRequest(_Message):
    """To the workflow `AnnounceWorkflow`: what to tell, and whom; `carried` is its own state from the run before."""

    announcement: Announcement
    subscriptions: tuple[Subscription, ...]
    carried: AnnouncingState | None = None


class Telling(_Message):
    """To the activity `announce`: what to tell whom."""

    announcement: Announcement
    subscription: Subscription


class Heard(_Message):
    """From `announce`: that there is nothing left to tell; `refused` is the code of a subscriber's definitive no."""

    refused: str | None = None


def as_patiently(retry: RetryPolicy) -> Patience:
    """Give what so many attempts take; a receiver may ask for longer pauses than ours."""
    needed = retry.time_needed(_TOLD_WITHIN) + _LONGEST_WISH.timedelta * retry.attempts
    return Patience(retry, _TOLD_WITHIN, Duration.of(min(needed, LONGEST)), _HEARTBEAT)


def announcement_id(order: str, stage: Stage) -> str:
    """Give the Workflow ID of what tells that `order` finished in `stage`: an order that is reset may have several."""
    return f"announce-{order.removeprefix('order-')}-{stage}"


def announced_order(workflow_id: str) -> str | None:
    """The order of an announcement's Workflow ID; `None` for any other id."""
    found = _ID.fullmatch(workflow_id)
    return f"order-{found[1]}" if found else None


def is_announcement(workflow_id: str) -> bool:
    """Whether effects under this Workflow ID are announcements."""
    return announced_order(workflow_id) is not None


def telling_step(subscriber: str) -> str:
    """The step of the effect that tells one subscriber."""
    return _STEP + subscriber


def told_by(step: str) -> str:
    """The subscriber that such a step tells."""
    return step.removeprefix(_STEP)


def telling_key(announcement: str, subscriber: str) -> str:
    """The key of the effect that tells one subscriber of one announcement."""
    return idempotency_key(announcement, telling_step(subscriber), Direction.DO)


def telling_act(announcement: Announcement, subscriber: str) -> Act:
    """The act of telling one subscriber.

    Its digest leaves out when and why: an order that comes to the same end once more means the same announcement.
    """
    meant: dict[str, JsonValue] = {"type": EVENT_TYPE, "order": announcement.order, "stage": announcement.stage.value}
    return Act(
        key=telling_key(announcement.id, subscriber),
        workflow_id=announcement.id,
        step=telling_step(subscriber),
        provider=WEBHOOK,
        operation=_OPERATION,
        intent=announcement.as_event(),
        intent_digest=digest(meant),
    )
