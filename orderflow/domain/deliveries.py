"""Deliveries of events to the door: why one may be refused. Statuses and words for the wire are the door's own."""

from enum import StrEnum
from typing import Final

from orderflow.domain.errors import OrderflowError, Problem

MAX_EVENT_BYTES: Final = 65_536
"""Of one event; the order's history holds it several times, and Temporal takes 2 MB of one value (T43)."""

MEDIA_TYPE: Final = "application/cloudevents+json"
"""What an event is sent as: structured mode."""


TYPE_PREFIX: Final = "urn:orderflow:problem:"
"""What precedes a cause in the `type` of a problem document, for those who write one and those who read it."""


class Cause(StrEnum):
    """Why a request is refused, in the order in which the door looks: a stable code that senders can rely on."""

    NOT_FOUND = "not-found"
    METHOD_NOT_ALLOWED = "method-not-allowed"
    BODY_TOO_LARGE = "body-too-large"
    BODY_TOO_SLOW = "body-too-slow"
    SIGNATURE_MISSING = "signature-missing"
    SIGNATURE_INVALID = "signature-invalid"
    TIMESTAMP_OUTSIDE_WINDOW = "timestamp-outside-window"
    TOKEN_INVALID = "token-invalid"  # noqa: S105 - a code, no secret
    RATE_LIMITED = "rate-limited"
    UNSUPPORTED_MEDIA_TYPE = "unsupported-media-type"
    UNSUPPORTED_ENCODING = "unsupported-encoding"
    INVALID_JSON = "invalid-json"
    INVALID_EVENT = "invalid-event"
    INVALID_ORDER = "invalid-order"
    SOURCE_NOT_PERMITTED = "source-not-permitted"
    TYPE_NOT_PERMITTED = "type-not-permitted"
    CURRENCY_NOT_PERMITTED = "currency-not-permitted"
    AMOUNT_NOT_PERMITTED = "amount-not-permitted"
    INTAKE_PAUSED = "intake-paused"
    REPLAYED = "replayed"
    CONFLICT = "conflict"
    UNAVAILABLE = "unavailable"


class DeliveryRefused(OrderflowError):
    """A request is not taken. `problems` list what is wrong with the event; `retry_after` is in seconds."""

    def __init__(
        self, cause: Cause, message: str, *, problems: tuple[Problem, ...] = (), retry_after: float | None = None
    ) -> None:
        super().__init__(message, retry_after=retry_after)
        self.cause = cause
        self.problems = problems
