"""Bytes become an event: each step a function with a refusal of its own, in the order in which the door calls them."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final

from orderflow.domain.deliveries import MAX_EVENT_BYTES, MEDIA_TYPE, Cause, DeliveryRefused
from orderflow.domain.errors import InvalidEvent, InvalidJson
from orderflow.domain.events import TOKEN, OrderEvent, check_order, validate_event
from orderflow.domain.problems import summary
from orderflow.domain.strict_json import JsonValue, read_json

Headers = Sequence[tuple[bytes, bytes]]
"""As ASGI gives them: names in lower case, one pair for each line that was sent."""

BODY_WITHIN: Final = 10.0
"""Seconds that a sender has for the whole body: 64 KiB at the speed of a bad modem."""

_PARAMETER: Final = re.compile(rf'[ \t]*;[ \t]*(?:({TOKEN})=({TOKEN}|"(?:[^"\\\x00-\x08\x0a-\x1f\x7f]|\\[ -~])*"))?')
_TYPE: Final = re.compile(rf"[ \t]*({TOKEN}/{TOKEN})")


async def read_body(headers: Headers, chunks: AsyncIterator[bytes], within: float = BODY_WITHIN) -> bytes:
    """Read the body: at most `MAX_EVENT_BYTES`, for at most `within` seconds; no more of it is read then (W08)."""
    if any(int(length) > MAX_EVENT_BYTES for length in values(headers, b"content-length") if length.isdigit()):
        raise _too_large()
    body = bytearray()
    try:
        async with asyncio.timeout(within):
            async for chunk in chunks:
                body += chunk
                if len(body) > MAX_EVENT_BYTES:
                    raise _too_large()
    except TimeoutError:
        raise DeliveryRefused(
            Cause.BODY_TOO_SLOW, f"the body did not arrive within {within:.0f} s; send it again in one go"
        ) from None
    return bytes(body)


def require_cloudevent(headers: Headers) -> None:
    """Let only `application/cloudevents+json` pass, in UTF-8 and without a content encoding (W12, C03)."""
    given = [value.decode("latin-1") for value in values(headers, b"content-type")]
    if len(given) != 1 or not _is_cloudevent(given[0]):
        raise DeliveryRefused(
            Cause.UNSUPPORTED_MEDIA_TYPE,
            f"send one event in structured mode, with content-type: {MEDIA_TYPE} (no charset, or utf-8)",
        )
    if any(value.strip().lower() not in {b"", b"identity"} for value in values(headers, b"content-encoding")):
        raise DeliveryRefused(Cause.UNSUPPORTED_ENCODING, "send the body as it is, without a content-encoding")


def read_event(raw: bytes) -> OrderEvent:
    """Read the event that `raw` holds: strict JSON, its shape, the rules of an order, each its own refusal."""
    return _of_good_rules(_of_good_shape(_json(raw)))


def values(headers: Headers, name: bytes) -> Iterator[bytes]:
    """Give the value of each header line of that lower-case name."""
    return (value for key, value in headers if key == name)


def _json(raw: bytes) -> JsonValue:
    try:
        return read_json(raw, max_bytes=MAX_EVENT_BYTES)
    except InvalidJson as error:
        raise DeliveryRefused(Cause.INVALID_JSON, error.message, problems=error.problems) from None


def _of_good_shape(value: JsonValue) -> OrderEvent:
    try:
        return validate_event(value)
    except InvalidEvent as error:
        raise DeliveryRefused(Cause.INVALID_EVENT, summary(error.problems), problems=error.problems) from None


def _of_good_rules(event: OrderEvent) -> OrderEvent:
    try:
        check_order(event)
    except InvalidEvent as error:
        raise DeliveryRefused(Cause.INVALID_ORDER, summary(error.problems), problems=error.problems) from None
    return event


def _is_cloudevent(content_type: str) -> bool:
    if not (found := _TYPE.match(content_type)) or found[1].lower() != MEDIA_TYPE:
        return False
    charsets, at = [], found.end()
    while parameter := _PARAMETER.match(content_type, at):
        at = parameter.end()
        if (parameter[1] or "").lower() == "charset":
            charsets.append(parameter[2].strip('"').lower())
    return not content_type[at:].strip(" \t") and charsets in ([], ["utf-8"])


def _too_large() -> DeliveryRefused:
    return DeliveryRefused(
        Cause.BODY_TOO_LARGE, f"an event has at most {MAX_EVENT_BYTES} bytes; nothing of this one was kept"
    )
