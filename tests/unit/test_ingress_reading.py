"""Bytes become an event: each step of the door has a refusal of its own."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from orderflow.domain.deliveries import MAX_EVENT_BYTES, Cause, DeliveryRefused
from orderflow.ingress.reading import read_body, read_event, require_cloudevent
from tests.order_events import event

TYPE = (b"content-type", b"application/cloudevents+json")


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    """A body in parts."""
    for part in parts:
        yield part


async def test_a_body_of_exactly_the_limit_is_read_whole() -> None:
    """T43: the cap itself is still taken."""
    assert await read_body([], chunks(b"a" * (MAX_EVENT_BYTES - 1), b"b")) == b"a" * (MAX_EVENT_BYTES - 1) + b"b"


async def test_a_body_of_one_byte_more_is_not_read_to_its_end() -> None:
    """W08: bytes are counted as they come, whatever the headers say; reading stops at the cap."""
    read = []

    async def endless() -> AsyncIterator[bytes]:
        while True:
            read.append(1)
            yield b"x" * 1024

    with pytest.raises(DeliveryRefused) as refused:
        await read_body([(b"content-length", b"10")], endless())
    assert refused.value.cause is Cause.BODY_TOO_LARGE
    assert len(read) == MAX_EVENT_BYTES // 1024 + 1


async def test_a_length_beyond_the_limit_is_refused_before_a_byte_is_read() -> None:
    """W08: an honest sender of too much need not send it."""

    body = chunks(b"x")
    with pytest.raises(DeliveryRefused) as refused:
        await read_body([(b"content-length", b"65537")], body)
    assert refused.value.cause is Cause.BODY_TOO_LARGE
    assert await anext(body) == b"x"


async def test_a_body_that_drips_is_refused_when_its_time_is_over() -> None:
    """W08: a slow sender holds the door for seconds, not for ever."""

    async def dripping() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    with pytest.raises(DeliveryRefused) as refused:
        await read_body([], dripping(), within=0.01)
    assert refused.value.cause is Cause.BODY_TOO_SLOW


@pytest.mark.parametrize(
    "content_type",
    [
        "application/cloudevents+json",
        'Application/CloudEvents+JSON; Charset="UTF-8"',
        "application/cloudevents+json;charset=utf-8",
        "application/cloudevents+json ; profile=x ; charset=UTF-8",
        "application/cloudevents+json;",
        r'application/cloudevents+json; note="a \"quoted\"; charset=utf-16"',
    ],
)
def test_structured_mode_in_utf_8_passes_however_it_is_written(content_type: str) -> None:
    """W12: the type is compared without case, its parameters are parsed."""
    require_cloudevent([(b"content-type", content_type.encode())])


@pytest.mark.parametrize(
    "content_type",
    [
        "",
        "application/cloudevents-batch+json",
        "application/json",
        "text/plain",
        "application/cloudevents+jsonx",
        "application/cloudevents",
        "application/cloudevents+json; charset=utf-16",
        "application/cloudevents+json; charset=utf-8; charset=utf-8",
        "application/cloudevents+json; charset=",
        'application/cloudevents+json; charset="utf-8',
        "application/cloudevents+json, application/json",
        "application/cloudevents+json charset=utf-8",
        "application/cloudevents+json;charset = utf-8",
        "é/è",
    ],
)
def test_every_other_media_type_is_refused(content_type: str) -> None:
    """W12, C03: batches, binary mode, other charsets and what only looks like the type."""
    with pytest.raises(DeliveryRefused) as refused:
        require_cloudevent([(b"content-type", content_type.encode("latin-1"))])
    assert refused.value.cause is Cause.UNSUPPORTED_MEDIA_TYPE


@pytest.mark.parametrize("headers", [[], [TYPE, TYPE], [TYPE, (b"content-type", b"text/plain")]])
def test_a_missing_or_repeated_media_type_is_refused(headers: list[tuple[bytes, bytes]]) -> None:
    """W11, W12: nobody chooses between two."""
    with pytest.raises(DeliveryRefused) as refused:
        require_cloudevent(headers)
    assert refused.value.cause is Cause.UNSUPPORTED_MEDIA_TYPE


@pytest.mark.parametrize("encoding", [b"gzip", b"identity, gzip", b"br", b"x", b"\xe9"])
def test_a_content_encoding_is_refused(encoding: bytes) -> None:
    """W12: nothing is unpacked before it is counted, so nothing is unpacked at all."""
    with pytest.raises(DeliveryRefused) as refused:
        require_cloudevent([TYPE, (b"content-encoding", encoding)])
    assert refused.value.cause is Cause.UNSUPPORTED_ENCODING


def test_no_encoding_may_be_said_in_words() -> None:
    """W12: `identity` is what no encoding is called."""
    require_cloudevent([TYPE, (b"content-encoding", b"Identity")])


@pytest.mark.parametrize(
    ("raw", "cause", "path"),
    [
        (b"", Cause.INVALID_JSON, ""),
        (b"\xef\xbb\xbf{}", Cause.INVALID_JSON, ""),
        (b'{"id": 1, "id": 2}', Cause.INVALID_JSON, "$"),
        (b'{"id": NaN}', Cause.INVALID_JSON, "$.id"),
        (b"[]", Cause.INVALID_EVENT, "$"),
        (b"{}", Cause.INVALID_EVENT, "$.specversion"),
    ],
)
def test_each_kind_of_bad_body_has_its_own_refusal(raw: bytes, cause: Cause, path: str) -> None:
    """W09: JSON first, then the event's shape; the first fault's place is told."""
    with pytest.raises(DeliveryRefused) as refused:
        read_event(raw)
    assert (refused.value.cause, refused.value.problems[0].path) == (cause, path)


def test_an_order_that_breaks_a_rule_has_another_refusal_than_one_without_shape() -> None:
    """M02: a total that is not the sum is well formed, and wrong."""
    with pytest.raises(DeliveryRefused) as refused:
        read_event(json.dumps(event(data__total_minor=3400)).encode())
    assert refused.value.cause is Cause.INVALID_ORDER
    assert refused.value.problems[0].path == "$.data.total_minor"
