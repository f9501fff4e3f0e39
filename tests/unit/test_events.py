"""What a valid order event is: every fault of shape at its path, every broken rule, no value repeated."""

import json
from typing import Any

import pytest
from pydantic import ValidationError
from temporalio.contrib.pydantic import pydantic_data_converter

from orderflow.domain.errors import InvalidEvent, InvalidJson
from orderflow.domain.events import OrderEvent, check_order, order_problems, payload_fingerprint, validate_event
from orderflow.domain.strict_json import MAX_INTEGER, read_json
from tests.order_events import ABSENT, EXAMPLE, accepted, event


def problems(**changes: object) -> dict[str, str]:
    """Give the problems of the changed example as path -> sentence."""
    with pytest.raises(InvalidEvent) as caught:
        validate_event(event(**changes))
    return {problem.path: problem.message for problem in caught.value.problems}


def test_the_shipped_example_is_a_valid_order() -> None:
    """A newcomer's first submit works."""
    value = validate_event(read_json(EXAMPLE))
    check_order(value)
    assert (value.source, value.data.requested_by, value.data.currency) == ("/shop", "dana", "EUR")
    assert len(value.data.items) == 2


async def test_an_event_survives_temporal_unchanged() -> None:
    """Strict models decode from JSON text (the converter) as from Python values (our reader), to equal events."""
    value = validate_event(read_json(EXAMPLE))
    payloads = await pydantic_data_converter.encode([value])
    [decoded] = await pydantic_data_converter.decode(payloads, [OrderEvent])
    assert decoded == value
    assert payload_fingerprint(decoded) == payload_fingerprint(value)


def test_every_problem_is_listed_with_its_path_and_no_value_is_repeated() -> None:
    """O01: a refusal may be logged; the order's personal data may not."""
    changes = {
        "id": ABSENT,
        "time": "yesterday",
        "traceparent": "secret-trace",
        "data__customer__email": "secret person",
        "data__currency": "secret",
        "data__items__1__quantity": "secret",
        "data__items__0__colour": "secret",
        "data__total_minor": "secret",
    }
    with pytest.raises(InvalidEvent) as caught:
        accepted(**changes)
    error = caught.value
    assert [problem.path for problem in error.problems] == [
        "$.id",
        "$.time",
        "$.data.customer.email",
        "$.data.currency",
        "$.data.items[0].colour",
        "$.data.items[1].quantity",
        "$.data.total_minor",
        "$.traceparent",
    ]
    assert error.message == "not a valid order event: $.id: is missing (and 7 more)"
    assert error.__cause__ is None
    assert error.__context__ is None
    assert "secret" not in str(error.problems).replace("secret-", "")


def test_personal_data_is_in_no_repr_and_in_no_validation_error() -> None:
    """O01: for what is logged by accident."""
    value = accepted(data__note="leave it with the neighbour")
    assert "sam@example.com" not in repr(value)
    assert "neighbour" not in repr(value)
    with pytest.raises(ValidationError) as caught:
        OrderEvent.model_validate(event(data__customer__email="sam example"))
    assert "sam" not in str(caught.value)


@pytest.mark.parametrize("value", [None, [], "x", 1, True, [event()]], ids=repr)
def test_an_event_is_an_object(value: Any) -> None:
    """Anything else is one problem at the root."""
    with pytest.raises(InvalidEvent, match=r"\$: must be an object"):
        validate_event(value)


@pytest.mark.parametrize("member", ["specversion", "id", "source", "type", "data"])
def test_a_required_member_that_is_missing_is_refused(member: str) -> None:
    """I13: no identity, no default; nothing is made up."""
    assert problems(**{member: ABSENT}) == {f"$.{member}": "is missing"}
    assert f"$.{member}" in problems(**{member: None})


@pytest.mark.parametrize("member", ["order_id", "customer", "currency", "items", "total_minor"])
def test_required_order_data_that_is_missing_is_refused(member: str) -> None:
    """I13: the same for the order inside."""
    assert problems(**{f"data__{member}": ABSENT}) == {f"$.data.{member}": "is missing"}


@pytest.mark.parametrize(
    "name",
    [
        "traceparent",
        "partitionkey",
        "Time",
        "ID",
        "__proto__",
        "ce_id",
        "dataschema",
        "data__unit",
        "data__customer__name",
    ],
)
def test_an_unknown_member_is_refused_by_name(name: str) -> None:
    """C08: at every level, never silently dropped."""
    value = event()
    target = value
    *parents, last = [name] if name == "__proto__" else name.split("__")
    for parent in parents:
        target = target[parent]
    target[last] = "x"
    with pytest.raises(InvalidEvent) as caught:
        validate_event(value)
    [problem] = caught.value.problems
    assert problem.path == "$." + ".".join([*parents, last])
    assert problem.message == "is not a known member; remove it"


@pytest.mark.parametrize(
    "changes",
    [
        {"data_base64": "e30="},
        {"data_base64": "e30=", "data": ABSENT},
        {"data_base64": None, "data": ABSENT},
    ],
)
def test_data_base64_is_refused_with_what_to_send_instead(changes: dict[str, object]) -> None:
    """C07: alone, null or beside `data`."""
    assert problems(**changes)["$.data_base64"] == "is not taken; send the order as a JSON object in data"


@pytest.mark.parametrize("data", [None, [], '{"order_id":"1"}', "e30=", 1, True], ids=repr)
def test_data_is_an_object(data: object) -> None:
    """C07: not null, an array, or JSON inside a string."""
    assert problems(data=data) == {"$.data": "must be an object"}


@pytest.mark.parametrize(
    ("media_type", "ok"),
    [
        (ABSENT, True),
        ("application/json", True),
        ("Application/JSON; charset=UTF-8", True),
        ('application/json ;charset="utf-8"; v=1', True),
        ("", False),
        ("application/jsonx", False),
        ("application/cloudevents+json", False),
        ("text/json", False),
        ("application/json;", False),
        ("application/json; charset", False),
        ("application/json\n", False),
        (1, False),
    ],
)
def test_datacontenttype_is_absent_or_json(media_type: object, ok: bool) -> None:
    """C07: parameters are tolerated, case does not matter."""
    if ok:
        accepted(datacontenttype=media_type)
    else:
        assert list(problems(datacontenttype=media_type)) == ["$.datacontenttype"]


@pytest.mark.parametrize("member", ["subject", "datacontenttype", "time", "data__requested_by", "data__note"])
def test_an_optional_member_that_is_null_counts_as_absent(member: str) -> None:
    """CloudEvents JSON format 1.0.2: null is unset; so both have one fingerprint."""
    without, null = event(**{member: None}), event(**{member: None})
    *parents, last = member.split("__")
    (without[parents[0]] if parents else without).pop(last)
    assert payload_fingerprint(validate_event(without)) == payload_fingerprint(validate_event(null))


@pytest.mark.parametrize(
    "time",
    [
        "2024-01-01T00:00:00Z",
        "2024-01-01T00:00:00.5Z",
        "2024-01-01T00:00:00.1234567Z",
        "2024-01-01T00:00:00.123456789Z",
        "2024-01-01T00:00:00+05:30",
        "2024-01-01T00:00:00-23:59",
        "2024-02-29T23:59:59-00:00",
    ],
)
def test_an_rfc_3339_time_keeps_its_text(time: str) -> None:
    """C01, C02: one to nine digits of a fraction, an explicit offset; nothing is normalised."""
    assert accepted(time=time).time == time


@pytest.mark.parametrize(
    "time",
    [
        "", "2024-01-01T00:00:00", "2024-01-01 00:00:00Z", "2024-01-01_00:00:00Z", "2024-01-01t00:00:00Z",
        "2024-01-01T00:00:00z", "20240101T000000Z", "2024-W01-1T00:00:00Z", "2024-001T00:00:00Z",
        "2024-01-01T00:00:00,5Z", "2024-01-01T00:00:00.Z", "2024-01-01T00:00:00.1234567890Z", "2024-01-01T00:00Z",
        "2024-01-01T00Z", "2024-01-01", "2024-01-01T00:00:00+00", "2024-01-01T00:00:00+0000",
        "2024-01-01T00:00:00+00:00:00", "2024-01-01T00:00:00 +00:00", "2024-01-01T00:00:00+24:00",
        "2024-01-01T00:00:00+05:60", "2024-13-01T00:00:00Z", "2024-00-01T00:00:00Z", "2024-02-30T00:00:00Z",
        "2023-02-29T00:00:00Z", "0000-01-01T00:00:00Z", "2024-01-01T24:00:00Z", "2024-01-01T00:60:00Z",
        "2024-01-01T23:59:60Z", "2024-01-01T00:00:00Z\n", " 2024-01-01T00:00:00Z", "٢٠٢٤-01-01T00:00:00Z",
        1704067200,
    ],
)  # fmt: skip
def test_what_is_not_rfc_3339_is_refused(time: object) -> None:
    """C01, C02: what `fromisoformat` takes on one Python or another, and days that are none."""
    assert list(problems(time=time)) == ["$.time"]


@pytest.mark.parametrize(
    "event_id",
    [
        "",
        "   ",
        "\u2003\u00a0",
        "x" * 257,
        "x" * 10_240,
        "a\x00",
        "a\nb",
        "\ta",
        "a\x7f",
        "a\x85",
        "a\ufffe",
        "\U0010ffff",
        "\ud800",
        1,
        None,
    ],
    ids=ascii,
)
@pytest.mark.parametrize("member", ["id", "data__order_id", "data__customer__id", "data__items__0__sku"])
def test_an_id_that_is_empty_endless_or_unprintable_is_refused(member: str, event_id: object) -> None:
    """C05, W18: control characters and noncharacters are outside CloudEvents' own String type too."""
    [path] = problems(**{member: event_id})
    assert path == "$." + member.replace("__0__", "[0].").replace("__", ".")


@pytest.mark.parametrize("amount", [True, "100", 100.0, -5, None, 100.5, 2**53, 2**63, [100]], ids=repr)
@pytest.mark.parametrize("member", ["total_minor", "items__0__unit_price_minor", "items__0__quantity"])
def test_an_amount_or_a_quantity_is_never_coerced(member: str, amount: object) -> None:
    """M02: strict in Python mode and in JSON mode."""
    changes = {f"data__{member}": amount}
    [path] = problems(**changes)
    assert path == "$.data." + member.replace("__0__", "[0].")
    with pytest.raises(ValidationError):
        OrderEvent.model_validate_json(json.dumps(event(**changes)))


@pytest.mark.parametrize("amount", ["100.0", "1e2", "-0", "1e999", "NaN", "9" * 5000])
def test_an_amount_written_as_no_whole_number_does_not_get_past_the_reader(amount: str) -> None:
    """M02, W15, W17, I11: `1.0` is not 1, from the bytes on."""
    with pytest.raises(InvalidJson):
        read_json(EXAMPLE.replace(b"3399", amount.encode()))


@pytest.mark.parametrize("currency", ["XXX", "usd", "US", "", None, 978])
def test_a_currency_is_an_active_code(currency: object) -> None:
    """M01: unknown codes are refused, never guessed."""
    assert list(problems(data__currency=currency)) == ["$.data.currency"]


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"data__items": []}, "$.data.items"),
        ({"data__items": event()["data"]["items"] * 51}, "$.data.items"),
        ({"data__items": {}}, "$.data.items"),
        ({"data__items": "mug"}, "$.data.items"),
        ({"data__items": [1]}, "$.data.items[0]"),
        ({"data__items__0__quantity": 0}, "$.data.items[0].quantity"),
        ({"data__items__0__quantity": 1_000_001}, "$.data.items[0].quantity"),
        ({"data__note": "x" * 1001}, "$.data.note"),
        ({"data__note": "\x1b[31m"}, "$.data.note"),
        ({"data__requested_by": ""}, "$.data.requested_by"),
        ({"specversion": "0.3"}, "$.specversion"),
        ({"specversion": 1}, "$.specversion"),
        ({"type": "dev.orderflow.order.placed.v2"}, "$.type"),
    ],
)
def test_what_is_out_of_bounds_is_one_problem_at_its_path(changes: dict[str, object], path: str) -> None:
    """Every part of an order is bounded."""
    assert list(problems(**changes)) == [path]


@pytest.mark.parametrize(
    "email",
    ["", "sam", "@", "a@", "@b", "a@b@c", "a b@c", "a@b\n", "a@b\x00", "a\u200b@" + "b" * 320, None, 1],
    ids=ascii,
)
def test_an_e_mail_address_has_one_at_and_no_space(email: object) -> None:
    """A bounded check of form; whether it exists is the notifier's to find out."""
    assert list(problems(data__customer__email=email)) == ["$.data.customer.email"]


def test_an_order_may_lack_who_requested_it_and_hold_a_note_of_several_lines() -> None:
    """A02: where a step demands the requester, the approval is refused, not the order."""
    value = accepted(data__requested_by=ABSENT, data__note="two\r\nlines\tand a tab")
    assert value.data.requested_by is None
    check_order(value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data__total_minor": 3400}, "must equal the sum of the items, 3399"),
        ({"data__items__0__quantity": 3}, "must equal the sum of the items, 4649"),
        ({"data__total_minor": MAX_INTEGER}, "must equal the sum of the items, 3399"),
    ],
)
def test_a_total_that_is_not_the_sum_breaks_a_rule_but_not_the_shape(changes: dict[str, object], message: str) -> None:
    """The event is valid; the order in it is not."""
    value = accepted(**changes)
    assert [str(problem) for problem in order_problems(value.data)] == [f"$.data.total_minor: {message}"]
    with pytest.raises(InvalidEvent, match=message):
        check_order(value)


def test_an_order_for_nothing_breaks_a_rule() -> None:
    """M02: a total of 0 charges nobody, even when the sum agrees; a free item beside others is fine."""
    free = accepted(data__total_minor=0, data__items__0__unit_price_minor=0, data__items__1__unit_price_minor=0)
    assert [problem.message for problem in order_problems(free.data)] == ["must be more than 0"]
    assert order_problems(accepted(data__total_minor=899, data__items__0__unit_price_minor=0).data) == ()


def test_a_sum_beyond_every_bound_is_a_broken_rule_not_an_overflow() -> None:
    """W17: a hundred lines of the largest price."""
    line = {"sku": "a", "quantity": 1_000_000, "unit_price_minor": MAX_INTEGER}
    value = accepted(data__items=[line] * 100, data__total_minor=MAX_INTEGER)
    assert len(order_problems(value.data)) == 1
