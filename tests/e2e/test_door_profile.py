"""What an order event is, seen from outside: the CloudEvents profile, identity, fingerprint, and money."""

import json
import uuid
from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.order_events import ABSENT
from tests.support.door import Door
from tests.support.senders import as_bytes
from tests.support.street import Street

NEW: Final = (202, "new")
DUPLICATE: Final = (200, "duplicate")
INVALID_EVENT: Final = (400, "invalid-event")
INVALID_JSON: Final = (400, "invalid-json")
CONFLICT: Final = (409, "conflict")


async def _refused_at(door: Door, street: Street, path: str, **changes: object) -> None:
    answer = await door.post(street.anyone.placed(**changes), street.anyone)
    assert answer.told == INVALID_EVENT, changes
    assert path in [problem["path"] for problem in answer.json["problems"]], answer.json


@pytest.mark.parametrize("fraction", ["", ".5", ".12", ".1234567", ".123456789"])
async def test_a_time_may_have_a_fraction_of_up_to_nine_digits(door: Door, street: Street, fraction: str) -> None:
    """C01: and the text stays as it is, so another spelling of the same instant is another content."""
    event = street.shop.placed(time=f"2026-01-31T12:00:00{fraction}Z")
    assert (await door.post(event, street.shop)).told == NEW
    respelt = {**event, "time": f"2026-01-31T12:00:00{fraction or '.0'}+00:00"}
    assert (await door.post(respelt, street.shop)).told == CONFLICT


NO_TIMES: Final = [
    "2026-01-31T12:00:00.Z",
    "2026-01-31T12:00:00.1234567890Z",
    "2026-01-31 12:00:00Z",
    "2026-01-31x12:00:00Z",
    "2026-01-31t12:00:00Z",
    "20260131T120000Z",
    "2026-W05-6T12:00:00Z",
    "2026-031T12:00:00Z",
    "2026-01-31T12:00:00,5Z",
    "2026-01-31T12:00Z",
    "2026-01-31T12Z",
    "2026-01-31T12:00:00+00",
    "2026-01-31T12:00:00+0000",
    "2026-01-31T12:00:00+00:00:00",
    "2026-01-31T12:00:00 +00:00",
    "2026-01-31T12:00:00",
    "2026-01-31",
    "2026-01-31T12:00:00+24:00",
    "2026-01-31T12:00:00+00:60",
    "2026-13-01T12:00:00Z",
    "2026-02-30T12:00:00Z",
    "2026-01-31T24:00:01Z",
    "2026-01-31T12:61:00Z",
    "0000-00-00T00:00:00Z",
    "٢٠٢٦-01-31T12:00:00Z",
    "2026-01-31T12:00:00Z\n",
    " 2026-01-31T12:00:00Z",
    "",
    "now",
]


@pytest.mark.parametrize("time", [*NO_TIMES, 1769860800, True, [], {}], ids=repr)
async def test_what_is_no_rfc_3339_time_is_refused(door: Door, street: Street, time: object) -> None:
    """C02: whatever `datetime.fromisoformat` would make of it on this Python."""
    await _refused_at(door, street, "$.time", time=time)


@pytest.mark.parametrize("time", ["2024-01-01T00:00:00+05:30", "2024-02-29T23:59:59-12:00", "2026-01-31T12:00:00Z"])
async def test_a_time_with_an_offset_is_fine(door: Door, street: Street, time: str) -> None:
    """C02: any offset that there is."""
    assert (await door.post(street.shop.placed(time=time), street.shop)).told == NEW


@pytest.mark.parametrize("media_type", ["application/json", "application/cloudevents+json"])
async def test_attributes_in_headers_are_never_used(door: Door, street: Street, media_type: str) -> None:
    """C03: binary mode is refused, and in structured mode `ce-` headers say nothing."""
    event = street.shop.placed()
    names = ["specversion", "id", "source", "type", "time"]
    if media_type == "application/json":
        binary = [(f"ce-{name}", event[name]) for name in names]
        body = as_bytes(event["data"])
        answer = await door.send(body, [*binary, *street.shop.headers(body, media_type=media_type)])
        assert answer.told == (415, "unsupported-media-type")
        return
    for missing in names[:4]:
        body = as_bytes({name: value for name, value in event.items() if name != missing})
        headers = [(f"ce-{missing}", event[missing]), *street.shop.headers(body)]
        assert (await door.send(body, headers)).told == INVALID_EVENT
    body = as_bytes(event)
    answer = await door.send(body, [("ce-id", "other"), ("ce-source", "/other"), *street.shop.headers(body)])
    assert answer.told == NEW
    assert (await door.post(event, street.shop)).order == answer.order


PAIRS: Final = [
    [("/a", "b::c"), ("/a::b", "c")],
    [("ab", "c"), ("a", "bc")],
    [("/a", "b|c"), ("/a|b", "c")],
    [("/a", '","b'), ('/a",', "b")],
    [("/a", "\\u0000b"), ("/a\\u0000", "b")],
    [("/a", "b%00"), ("/a%00", "b")],
    [("/a/b", "c"), ("/a", "b/c")],
    [("/a", '["/a","b"]'), ("/a", '/a","b')],
]


@pytest.mark.parametrize("pairs", PAIRS, ids=str)
async def test_no_two_identities_share_an_order(door: Door, street: Street, pairs: list[tuple[str, str]]) -> None:
    """C04: the pair of source and id, however one reads when written behind the other."""
    salt, orders = uuid.uuid4().hex, []
    valid = [(source, event_id) for source, event_id in pairs if not set('|"\\ ') & set(source)]
    for source, event_id in valid:
        event = street.anyone.placed(source=source, id=f"{event_id}{salt}")
        answer = await door.post(event, street.anyone)
        assert answer.told == NEW
        orders.append(answer.order)
    assert len(set(orders)) == len(valid) > 0
    for source, event_id in set(pairs) - set(valid):
        await _refused_at(door, street, "$.source", source=source, id=event_id)


@pytest.mark.parametrize(
    "event_id", ["A-1", "🍵", "x" * 200, "x" * 256, "'; --", "a b", "0", "null", "<b>", "..", "%2e"]
)
async def test_an_id_is_any_text_of_reasonable_length(door: Door, street: Street, event_id: str) -> None:
    """C05: the order's own name stays printable, whatever the id is."""
    answer = await door.post(street.anyone.placed(id=event_id), street.anyone)
    assert answer.told == NEW
    assert answer.order.isascii()
    assert (await door.order(answer.order, street.anyone)).status == 200


@pytest.mark.parametrize(
    "event_id", ["", "   ", "\u2003", "x" * 257, "x" * 10_000, "a\nb", "a\x00b", "\x1b[2J", "a\u0085b"]
)
async def test_an_id_that_is_none_is_refused(door: Door, street: Street, event_id: str) -> None:
    """C05: empty, blank, with controls, or 10 KB long."""
    await _refused_at(door, street, "$.id", id=event_id)


@pytest.mark.parametrize(
    "source",
    ["/orders", "urn:uuid:6e8bc430-9c3a-11d9-9669-0800200c9a66", "https://ex.com/a?b#c", "//host/x", "a", "?q", "#f"],
)
async def test_a_source_is_a_uri_reference(door: Door, street: Street, source: str) -> None:
    """C06: of any form that RFC 3986 has."""
    assert (await door.post(street.anyone.placed(source=source), street.anyone)).told == NEW


@pytest.mark.parametrize(
    "source",
    [
        "",
        "a b",
        "http://[::1",
        "%zz",
        "http://exa<mple",
        "/a\nb",
        "/a\n",
        "/é",
        "http://a:b:c",
        "/" + "a" * 1024,
        "[",
        "\\",
    ],
)
async def test_a_source_that_is_no_uri_reference_is_refused(door: Door, street: Street, source: str) -> None:
    """C06: what lenient parsers let pass."""
    await _refused_at(door, street, "$.source", source=source)


async def test_a_slash_makes_another_source(door: Door, street: Street) -> None:
    """C06: identity is the exact text, nothing is normalised."""
    event_id, sources = uuid.uuid4().hex, ["/orders", "/orders/", "/Orders", "/%6Frders", "/./orders"]
    events = [street.anyone.placed(source=source, id=event_id) for source in sources]
    answers = [await door.post(event, street.anyone) for event in events]
    assert [answer.told for answer in answers] == [NEW] * len(sources)
    assert len({answer.order for answer in answers}) == len(sources)


DATA: Final[dict[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    "both members": lambda event: {**event, "data_base64": "e30="},
    "only base64": lambda event: {"data_base64": "e30=", **{k: v for k, v in event.items() if k != "data"}},
    "base64 that is null": lambda event: {**event, "data_base64": None},
    "null": lambda event: {**event, "data": None},
    "none": lambda event: {k: v for k, v in event.items() if k != "data"},
    "a string with JSON inside": lambda event: {**event, "data": json.dumps(event["data"])},
    "an array": lambda event: {**event, "data": [event["data"]]},
    "an empty object": lambda event: {**event, "data": {}},
    "a number": lambda event: {**event, "data": 1},
    "true": lambda event: {**event, "data": True},
}


@pytest.mark.parametrize("change", DATA.values(), ids=DATA.keys())
async def test_data_is_one_json_object(door: Door, street: Street, change: Callable[[Any], Any]) -> None:
    """C07: nothing else, and nothing beside it."""
    assert (await door.post(change(street.shop.placed()), street.shop)).told == INVALID_EVENT


@pytest.mark.parametrize("content", ["application/json", "Application/JSON; charset=utf-8", ABSENT, None])
async def test_the_type_of_data_may_be_left_out(door: Door, street: Street, content: object) -> None:
    """C07: or be JSON, with parameters."""
    assert (await door.post(street.shop.placed(datacontenttype=content), street.shop)).told == NEW


@pytest.mark.parametrize(
    "content", ["text/xml", "application/xml", "application/jsonx", "", "json", 1, "application/json;"]
)
async def test_data_of_another_type_is_refused(door: Door, street: Street, content: object) -> None:
    """C07: JSON it says it is, or nothing."""
    await _refused_at(door, street, "$.datacontenttype", datacontenttype=content)


@pytest.mark.parametrize(
    "name",
    ["traceparent", "partitionkey", "Time", "ID", "__proto__", "Source", "data_Base64", "dataschema", "x_y", "a b", ""],
)
async def test_a_member_that_nobody_knows_is_refused_by_name(door: Door, street: Street, name: str) -> None:
    """C08: at the top and within; nothing is dropped in silence."""
    event = street.shop.placed()
    for value in ({**event, name: "x"}, {**event, "data": {**event["data"], name: "x"}}):
        answer = await door.post(value, street.shop)
        assert answer.told == INVALID_EVENT
        assert any(name in problem["path"] for problem in answer.json["problems"]), answer.json


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("specversion", "0.3"),
        ("specversion", "1"),
        ("specversion", 1),
        ("type", "other"),
        ("type", "dev.orderflow.order.placed.v2"),
    ],
    ids=repr,
)
async def test_another_version_or_type_is_refused(door: Door, street: Street, name: str, value: object) -> None:
    """Issue 4: this door knows one type of event."""
    answer = await door.post(street.shop.placed(**{name: value}), street.shop)
    assert answer.status in (400, 403)


async def test_order_and_spacing_of_members_are_no_content(door: Door, street: Street) -> None:
    """I11: the fingerprint is over what is said, not over how it was written."""
    event = street.shop.placed(data__note="🍵 日本 \u00e9")
    first = await door.post(event, street.shop)
    spellings = [
        json.dumps(event, indent=3),
        json.dumps(event, separators=(",", ":"), ensure_ascii=False),
        json.dumps(event, sort_keys=True),
        json.dumps(dict(reversed(event.items())), ensure_ascii=True),
        json.dumps({**event, "subject": None}),
    ]
    told = [await door.post(text.encode(), street.shop) for text in spellings]
    assert [(answer.told, answer.order) for answer in told] == [(DUPLICATE, first.order)] * len(spellings)


@pytest.mark.parametrize("spelling", ["3399.0", "3399.00", "33.99e2", "3399e0", "-0", "0x0d47", "03399", "+3399"])
async def test_a_number_has_one_spelling(door: Door, street: Street, spelling: str) -> None:
    """I11: anything but plain digits is refused, so no two fingerprints are of one order."""
    body = as_bytes(street.shop.placed()).replace(b'"total_minor": 3399', b'"total_minor": ' + spelling.encode())
    assert (await door.post(body, street.shop)).told == INVALID_JSON


async def test_the_two_forms_of_a_letter_are_two_ids(door: Door, street: Street) -> None:
    """I12: identity is exact code points; nothing is folded, here nor in the database."""
    salt = uuid.uuid4().hex
    ids = [f"{letter}-{salt}" for letter in ("\u00e9", "e\u0301", "E\u0301", "\u00c9", "e")]
    answers = [await door.post(street.shop.placed(id=event_id), street.shop) for event_id in ids]
    assert [answer.told for answer in answers] == [NEW] * len(ids)
    assert len({answer.order for answer in answers}) == len(ids)


@pytest.mark.parametrize("name", ["id", "source", "type", "specversion"])
@pytest.mark.parametrize("value", [ABSENT, None], ids=["absent", "null"])
async def test_nothing_that_is_missing_is_made_up(door: Door, street: Street, name: str, value: object) -> None:
    """I13: no id, no source, no event."""
    before = await street.events()
    await _refused_at(door, street, f"$.{name}", **{name: value})
    assert await street.events() == before


@pytest.mark.parametrize("currency", ["XXX", "usd", "US", "USDT", "", "978", "EUR ", "BTC", None, 978], ids=repr)
async def test_a_currency_that_is_none_is_refused(door: Door, street: Street, currency: object) -> None:
    """M01: an active ISO 4217 code in capitals."""
    await _refused_at(door, street, "$.data.currency", data__currency=currency)


@pytest.mark.parametrize("amount", ["true", '"100"', "100.0", "1e2", "-5", "null", "100.5", "[]", "{}"])
@pytest.mark.parametrize("name", ["total_minor", "unit_price_minor", "quantity"])
async def test_an_amount_is_not_made_of_something_else(door: Door, street: Street, amount: str, name: str) -> None:
    """M02: nothing is coerced, whichever amount it is."""
    one = street.shop.placed(
        data__items=[{"sku": "tea", "quantity": 100, "unit_price_minor": 100}], data__total_minor=100
    )
    body = as_bytes(one).replace(f'"{name}": 100'.encode(), f'"{name}": {amount}'.encode())
    answer = await door.post(body, street.shop)
    assert answer.told in (INVALID_JSON, INVALID_EVENT)
    assert answer.status == 400


@pytest.mark.parametrize(
    ("total", "items"), [(0, []), (0, [0]), (3398, [3399]), (3400, [3399]), (2**53 - 1, [2**53 - 1, 1]), (1, [0])]
)
async def test_a_total_that_is_nothing_or_wrong_is_refused(
    door: Door, street: Street, total: int, items: list[int]
) -> None:
    """M02: 0 too, and a sum that is not that of the items."""
    lines = [{"sku": "tea", "quantity": 1, "unit_price_minor": price} for price in items]
    answer = await door.post(street.shop.placed(data__items=lines, data__total_minor=total), street.shop)
    assert answer.told == ((422, "invalid-order") if lines else INVALID_EVENT)


@pytest.mark.parametrize(
    ("sender", "changes", "cause"),
    [
        ("market", {"source": "/shop"}, "source-not-permitted"),
        ("market", {"source": "/market/"}, "source-not-permitted"),
        ("market", {"source": "/market%2F.."}, "source-not-permitted"),
        ("market", {"data__currency": "USD"}, "currency-not-permitted"),
        ("market", {"data__items__0__unit_price_minor": 2051, "data__total_minor": 5001}, "amount-not-permitted"),
        ("kiosk", {"source": "/shop"}, "source-not-permitted"),
    ],
)
async def test_a_caller_may_order_only_what_is_theirs_to_order(
    door: Door, street: Street, sender: str, changes: dict[str, object], cause: str
) -> None:
    """DESIGN 8: a good signature is not a permission; source, currency and amount are."""
    caller = street.caller(sender)
    assert (await door.post(caller.placed(**changes), caller)).told == (403, cause)
