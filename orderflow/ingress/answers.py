"""The one table from refusal to status, and how answers look on the wire (RFC 9457)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from starlette.responses import JSONResponse

from orderflow.domain.deliveries import TYPE_PREFIX, Cause, DeliveryRefused

PROBLEM: Final = "application/problem+json"

ALWAYS: Final = MappingProxyType({"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"})
"""Headers of every answer."""


@dataclass(frozen=True)
class Meaning:
    """What a refusal is on the wire: its status, its title, and whether the same event may be sent again later."""

    status: int
    title: str
    retry: bool = False
    challenge: str | None = None


MEANINGS: Final[Mapping[Cause, Meaning]] = MappingProxyType(
    {
        Cause.NOT_FOUND: Meaning(404, "Nothing is here"),
        Cause.METHOD_NOT_ALLOWED: Meaning(405, "This method is not taken here"),
        Cause.BODY_TOO_LARGE: Meaning(413, "The event is too large"),
        Cause.BODY_TOO_SLOW: Meaning(408, "The body came too slowly", retry=True),
        Cause.SIGNATURE_MISSING: Meaning(401, "The delivery is not signed", challenge="StandardWebhooks"),
        Cause.SIGNATURE_INVALID: Meaning(401, "No signature verifies", challenge="StandardWebhooks"),
        Cause.TIMESTAMP_OUTSIDE_WINDOW: Meaning(
            401, "The delivery was signed too long ago, or in the future", retry=True, challenge="StandardWebhooks"
        ),
        Cause.TOKEN_INVALID: Meaning(401, "No such token", challenge="Bearer"),
        Cause.RATE_LIMITED: Meaning(429, "Too many deliveries", retry=True),
        Cause.UNSUPPORTED_MEDIA_TYPE: Meaning(415, "Not a structured CloudEvent"),
        Cause.UNSUPPORTED_ENCODING: Meaning(415, "The body is encoded"),
        Cause.INVALID_JSON: Meaning(400, "Not strict JSON"),
        Cause.INVALID_EVENT: Meaning(400, "Not an order event"),
        Cause.INVALID_ORDER: Meaning(422, "The order contradicts itself"),
        Cause.SOURCE_NOT_PERMITTED: Meaning(403, "Not from this source"),
        Cause.TYPE_NOT_PERMITTED: Meaning(403, "Not of this type"),
        Cause.CURRENCY_NOT_PERMITTED: Meaning(403, "Not in this currency"),
        Cause.AMOUNT_NOT_PERMITTED: Meaning(403, "Not of this amount"),
        Cause.INTAKE_PAUSED: Meaning(503, "No new events are taken now", retry=True),
        Cause.REPLAYED: Meaning(409, "This delivery came before"),
        Cause.CONFLICT: Meaning(409, "This event came before with another content"),
        Cause.UNAVAILABLE: Meaning(503, "The service is away", retry=True),
    }
)


def problem(error: DeliveryRefused, headers: Mapping[str, str] = MappingProxyType({})) -> JSONResponse:
    """Give the problem document that says why a request is refused, with the headers that belong to it."""
    meaning = MEANINGS[error.cause]
    content: dict[str, Any] = {
        "type": TYPE_PREFIX + error.cause,
        "title": meaning.title,
        "status": meaning.status,
        "detail": error.message,
    }
    if error.problems:
        content["problems"] = [{"path": each.path, "message": each.message} for each in error.problems]
    sent = {**ALWAYS, **headers}
    if meaning.challenge is not None:
        sent["WWW-Authenticate"] = meaning.challenge
    if error.retry_after is not None:
        sent["Retry-After"] = str(math.ceil(error.retry_after))
    return JSONResponse(content, meaning.status, sent, media_type=PROBLEM)


def answer(content: Mapping[str, Any], status: int = 200) -> JSONResponse:
    """Give an answer that is no refusal."""
    return JSONResponse(content, status, ALWAYS)
