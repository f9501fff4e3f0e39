"""What comes in as bytes: framing, size, speed, media types, and JSON that is not ours."""

import asyncio
import time
from collections.abc import Iterable, Iterator
from typing import Final

import pytest

from tests.support.door import EVENTS, Door
from tests.support.senders import MEDIA_TYPE, as_bytes, without
from tests.support.street import Street

KIB: Final = 1024
CAP: Final = 64 * KIB
TOO_LARGE: Final = (413, "body-too-large")
MEDIA: Final = (415, "unsupported-media-type")
INVALID_JSON: Final = (400, "invalid-json")
SLOWEST: Final = 25.0
"""Seconds within which whoever dawdles has to be gone."""


def _padded(street: Street, size: int) -> bytes:
    """A valid event of just that many bytes: white space is part of JSON."""
    body = as_bytes(street.shop.placed())
    return body + b" " * (size - len(body))


async def test_an_event_of_64_kib_is_taken_and_one_byte_more_is_not(door: Door, street: Street) -> None:
    """W08, T43: the cap is counted in bytes, whether they come in one piece or in many."""
    fits, exceeds = _padded(street, CAP), _padded(street, CAP + 1)
    assert (await door.post(fits, street.shop)).told == (202, "new")
    assert (await door.post(exceeds, street.shop)).told == TOO_LARGE
    assert (await door.send(_pieces(fits, 7 * KIB), street.shop.headers(fits))).told == (200, "duplicate")
    assert (await door.send(_pieces(exceeds, 7 * KIB), street.shop.headers(exceeds))).told == TOO_LARGE


def _pieces(body: bytes, size: int) -> list[bytes]:
    return [body[at : at + size] for at in range(0, len(body), size)]


async def test_fifty_megabytes_in_chunks_are_refused_and_not_kept(door: Door, street: Street) -> None:
    """W08: reading ends at the cap, signed or not; memory grows by less than 5 MB."""
    before = door.memory
    flood = [b"x" * CAP] * (50 * KIB * KIB // CAP)
    assert (await door.send(flood, street.shop.headers(b"x"))).told == TOO_LARGE
    assert (await door.send(flood)).told == TOO_LARGE
    assert door.memory - before < 5 * KIB * KIB


LENGTHS: Final = {
    "negative": ["-1"],
    "not a number": ["ten"],
    "empty": [""],
    "with a plus": ["+10"],
    "hex": ["0x10"],
    "two that differ": ["10", "11"],
    "a list that differs": ["10, 11"],
    "digits of another script": ["\u0661\u0660"],
    "of 5000 digits": ["9" * 5000],
    "a fraction": ["10.0"],
}


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())
async def test_a_length_that_is_none_is_refused(door: Door, street: Street, lengths: list[str]) -> None:
    """W08: before anything else, and the door stays up."""
    body = as_bytes(street.shop.placed())
    headers = [*street.shop.headers(body), *(("content-length", length) for length in lengths)]
    said = await door.talk(door.head("POST", EVENTS, headers) + body)
    assert said.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 413 ")), said
    assert (await door.post(street.shop.placed(), street.shop)).status == 202


async def test_a_length_that_lies_gains_nothing(door: Door, street: Street) -> None:
    """W08: with less announced than sent the rest is no second request; with more, the door stops waiting."""
    body = as_bytes(street.shop.placed())
    short = [*street.shop.headers(body), ("content-length", "10")]
    said = await door.talk(door.head("POST", EVENTS, short) + body)
    assert said.startswith(b"HTTP/1.1 401 ")
    assert b" 202 " not in said


async def test_length_and_chunks_at_once_start_nothing_twice(door: Door, street: Street) -> None:
    """W08: a request with both framings is how requests are smuggled past a proxy."""
    body, smuggled = as_bytes(street.shop.placed()), as_bytes(street.shop.placed())
    inner = (
        door.head("POST", EVENTS, [*street.shop.headers(smuggled), ("content-length", str(len(smuggled)))]) + smuggled
    )
    chunked = f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n" + inner
    headers = [*street.shop.headers(body), ("transfer-encoding", "chunked"), ("content-length", str(len(chunked)))]
    said = await door.talk(door.head("POST", EVENTS, headers) + chunked)
    assert said.count(b"HTTP/1.1 2") <= 1
    assert (await door.post(smuggled, street.shop)).told == (202, "new")


def _drop_by_drop(body: bytes) -> Iterator[bytes]:
    for at in range(len(body)):
        yield body[at : at + 1]


@pytest.mark.timeout(90)
async def test_who_dawdles_is_shown_out(door: Door, street: Street) -> None:
    """W08: a byte of the head or of the body each second, a body that never comes, a connection that says nothing."""
    body = as_bytes(street.shop.placed())
    head = door.head("POST", EVENTS, [*street.shop.headers(body), ("content-length", str(len(body)))])
    slow: list[tuple[bytes, Iterable[bytes], str]] = [
        (head[:20], _drop_by_drop(head[20:] + body), "head"),
        (head, _drop_by_drop(body), "body"),
        (head + body[:-1], (), "missing end"),
        (b"", (), "silence"),
    ]
    began = time.monotonic()
    said = await asyncio.gather(*(door.talk(first, more, pause=1.0) for first, more, _ in slow))
    assert time.monotonic() - began < SLOWEST
    for answer, (_, _, what) in zip(said, slow, strict=True):
        assert not answer or answer.startswith(b"HTTP/1.1 408 "), what
    assert b"body-too-slow" in said[1]
    assert b"body-too-slow" in said[2]


RIGHT_TYPES: Final = [
    "application/cloudevents+json",
    'Application/CloudEvents+JSON; Charset="UTF-8"',
    "application/cloudevents+json;charset=utf-8",
    "application/cloudevents+json ; charset=UTF-8",
    "application/cloudevents+json; profile=x; charset=utf-8",
]

WRONG_TYPES: Final = [
    "application/cloudevents-batch+json",
    "application/json",
    "text/plain",
    "application/cloudevents+jsonx",
    "application/cloudevents",
    "application/cloudevents+xml",
    "application/cloudevents+json; charset=utf-16",
    "application/cloudevents+json; charset=latin-1",
    "application/cloudevents+json; charset=utf-8; charset=utf-16",
    "application/cloudevents+json, application/json",
    "application/cloudevents+json; charset",
    "",
    "*/*",
    ";",
    b"application/cloudevents+json\xe9",
]


@pytest.mark.parametrize("media_type", RIGHT_TYPES)
async def test_structured_mode_is_taken_however_it_is_written(door: Door, street: Street, media_type: str) -> None:
    """W12: compared without case, parameters parsed."""
    assert (await door.post(street.shop.placed(), street.shop, media_type=media_type)).told == (202, "new")


@pytest.mark.parametrize("media_type", [*WRONG_TYPES, None], ids=repr)
async def test_every_other_media_type_is_refused(door: Door, street: Street, media_type: str | bytes | None) -> None:
    """W12: batches, other formats and charsets, none at all."""
    assert (await door.post(street.shop.placed(), street.shop, media_type=media_type)).told == MEDIA


async def test_two_media_types_are_none(door: Door, street: Street) -> None:
    """W12: in either order."""
    body = as_bytes(street.shop.placed())
    for types in ([MEDIA_TYPE, "text/plain"], ["text/plain", MEDIA_TYPE]):
        headers = [*without(street.shop.headers(body), "content-type"), *(("content-type", each) for each in types)]
        assert (await door.send(body, headers)).status in (400, 415)


@pytest.mark.parametrize("coding", ["gzip", "br", "GZIP", "identity, gzip", "x"])
async def test_an_encoded_body_is_refused(door: Door, street: Street, coding: str) -> None:
    """Issue 4: no content encodings, so no bombs either."""
    body = as_bytes(street.shop.placed())
    headers = [*street.shop.headers(body), ("content-encoding", coding)]
    assert (await door.send(body, headers)).told == (415, "unsupported-encoding")


@pytest.mark.parametrize(
    "raw",
    [
        b"\xef\xbb\xbf%b",
        b"%b\xff",
        "{}".encode("utf-16"),
        b"",
        b" ",
        b"null",
        b'"text"',
        b"{",
        b"%b%b",
        b"{'id': 1}",
        b"{} // no",
    ],
    ids=repr,
)
async def test_what_is_not_one_json_object_in_utf_8_is_refused(door: Door, street: Street, raw: bytes) -> None:
    """W13: a byte order mark too, and everything that only nearly is an event."""
    body = raw.replace(b"%b", as_bytes(street.shop.placed()))
    is_json = raw in {b"null", b'"text"'}
    assert (await door.post(body, street.shop)).told == ((400, "invalid-event") if is_json else INVALID_JSON)


def _with(body: bytes, old: bytes, new: bytes) -> bytes:
    assert body.count(old) == 1, body
    return body.replace(old, new)


DUPLICATES: Final = {
    "an amount": (b'"total_minor": 3399', b'"total_minor": 3399, "total_minor": 1'),
    "an amount, the same": (b'"total_minor": 3399', b'"total_minor": 3399, "total_minor": 3399'),
    "an id": (b'"specversion"', b'"id": "other", "specversion"'),
    "an id that is escaped": (b'"specversion"', rb'"\u0069d": "other", "specversion"'),
    "one in an item": (b'"sku": "tea-green"', b'"sku": "tea-green", "sku": "tea-black"'),
    "one in the customer": (b'"customer": {', b'"customer": {"id": "other", '),
    "data itself": (b'"specversion"', b'"data": {}, "specversion"'),
}


@pytest.mark.parametrize(("old", "new"), DUPLICATES.values(), ids=DUPLICATES.keys())
async def test_a_key_that_comes_twice_is_refused(door: Door, street: Street, old: bytes, new: bytes) -> None:
    """W14: at any depth, after unescaping."""
    body = _with(as_bytes(street.shop.placed()), old, new)
    assert (await door.post(body, street.shop)).told == INVALID_JSON


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "Infinity", "1e999", "-1e999", "1E400"])
@pytest.mark.parametrize(
    "place", [b'"total_minor": 3399', b'"quantity": 2', b'"order_id": "1001"', b'"specversion": "1.0"']
)
async def test_a_number_beyond_numbers_is_refused(door: Door, street: Street, number: str, place: bytes) -> None:
    """W15: wherever it stands."""
    name = place.partition(b":")[0]
    body = _with(as_bytes(street.shop.placed()), place, name + b": " + number.encode())
    assert (await door.post(body, street.shop)).told == INVALID_JSON


@pytest.mark.parametrize("depth", [33, 900, 2000, 20_000])
@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")], ids=["arrays", "objects"])
async def test_deep_nesting_is_refused(door: Door, street: Street, depth: int, opening: bytes, closing: bytes) -> None:
    """W16: alone, unclosed, and inside an event that is fine otherwise; the cap of 64 KiB may come first."""
    deep = opening * depth + b"1" + closing * depth
    event = _with(as_bytes(street.shop.placed()), b'"requested_by": "dana"', b'"requested_by": ' + deep)
    for body in (deep, opening * depth, event):
        expected = TOO_LARGE if len(body) > CAP else INVALID_JSON
        assert (await door.post(body, street.shop)).told == expected


@pytest.mark.parametrize("number", ["9" * 5000, str(2**63), str(2**53), str(10**30), "-" + "9" * 5000])
async def test_a_huge_number_is_refused(door: Door, street: Street, number: str) -> None:
    """W17: as an amount, as a quantity, and as a member that nobody knows."""
    body = as_bytes(street.shop.placed())
    for old in (b'"total_minor": 3399', b'"quantity": 2', b'"specversion": "1.0"'):
        huge = _with(body, old, old.partition(b":")[0] + b": " + number.encode())
        assert (await door.post(huge, street.shop)).told == INVALID_JSON


@pytest.mark.parametrize(
    "place",
    [b'"1001"', b'"mug-blue"', b'"/shop"', b'"specversion"', b'"tea-green"', b'"dev.orderflow.order.placed.v1"'],
)
@pytest.mark.parametrize("lone", [rb"\ud800", rb"\udfff", rb"\ud83d\ud83d", rb"\udf75\ud83c"])
async def test_a_lone_surrogate_is_refused_and_poisons_nothing(
    door: Door, street: Street, place: bytes, lone: bytes
) -> None:
    """W18: in values and in keys; the next good order works."""
    body = _with(as_bytes(street.shop.placed()), place, place[:-1] + lone + b'"')
    assert (await door.post(body, street.shop)).told == INVALID_JSON
    assert (await door.post(street.shop.placed(), street.shop)).told == (202, "new")


async def test_a_lone_surrogate_as_identity_is_refused(door: Door, street: Street) -> None:
    """W18: in id and source, which are hashed."""
    for name in ("id", "source"):
        body = as_bytes(street.shop.placed(**{name: "MARK"})).replace(b"MARK", rb"\ud800")
        assert (await door.post(body, street.shop)).told == INVALID_JSON


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("GET", EVENTS, 405),
        ("PUT", EVENTS, 405),
        ("DELETE", "/v1/orders/order-" + "0" * 32, 405),
        ("POST", "/readyz", 405),
        ("TRACE", EVENTS, 405),
        ("OPTIONS", EVENTS, 405),
        ("POST", "/", 404),
        ("POST", "/v1/events/", 404),
        ("POST", "//v1/events", 404),
        ("POST", "/v1/EVENTS", 404),
        ("POST", "/v1/events%00", 404),
        ("POST", "/v1/event%73", 404),
        ("POST", "/v1%2fevents", 404),
        ("GET", "/v1/../.env", 404),
        ("GET", "/v1/orders", 404),
        ("GET", "/docs", 404),
    ],
)
async def test_other_methods_and_paths_are_refused(
    door: Door, street: Street, method: str, target: str, status: int
) -> None:
    """W09, DESIGN 8: first of all, as a problem document, and 405 says what is taken."""
    body = as_bytes(street.shop.placed())
    headers = street.shop.headers(body) if method in {"POST", "PUT"} else []
    answer = await door.send(body if headers else b"", headers, method=method, target=target)
    assert answer.told == (status, {404: "not-found", 405: "method-not-allowed"}[status])
    assert ("allow" in answer.headers) is (status == 405)
