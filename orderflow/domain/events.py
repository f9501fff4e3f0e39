"""The order event: a CloudEvents 1.0 profile (structured mode, no extensions), its identity and its fingerprint.

Shape (`validate_event`) and rules (`order_problems`) are apart: what has no shape never becomes an order, an order
that breaks a rule fails with a reason. Identity is the pair (source, id) as exact code points: nothing is folded or
normalised, so the composed and the decomposed `é` are two ids (I12).
"""

import hashlib
import re
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from orderflow.domain.errors import InvalidEvent, Problem
from orderflow.domain.intents import canonical_json, digest
from orderflow.domain.money import AmountMinor, Currency
from orderflow.domain.problems import problems_in, summary
from orderflow.domain.strict_json import JsonValue
from orderflow.domain.times import rfc3339
from orderflow.domain.uri_reference import is_uri_reference

_NONCHARACTERS = "".join(chr(plane << 16 | last) for plane in range(17) for last in (0xFFFE, 0xFFFF))
_NO_TEXT: Final = re.compile(f"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufdd0-\ufdef{_NONCHARACTERS}]")
_ORDER_ID: Final = re.compile(r"order-[0-9a-f]{32}")
_LINE_BREAK_OR_TAB: Final = re.compile(r"[\t\n\r]")
_EMAIL: Final = re.compile(r"[^@\s]+@[^@\s]+")
TOKEN: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"  # noqa: S105 - no secret
"""A word of a media type, as an expression (RFC 9110, 5.6.2)."""

_IN_ANY_CASE = "".join(f"[{letter}{letter.upper()}]" if letter.isalpha() else letter for letter in "application/json")
_JSON_MEDIA_TYPE: Final = re.compile(rf'{_IN_ANY_CASE}(?:[ \t]*;[ \t]*{TOKEN}=(?:{TOKEN}|"[ !#-\[\]-~]*"))*')
_CONTROLS: Final = r"\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\ufdd0-\ufdef\ufffe\uffff"
_SHOWN_TEXT: Final = f"^[^{_CONTROLS}]*$"
_SHOWN_IDENTIFIER: Final = rf"^[^\t\n\r{_CONTROLS}]*[^\s{_CONTROLS}][^\t\n\r{_CONTROLS}]*$"
"""What a JSON Schema can tell of these rules; the rules themselves are the functions below."""


def _text(text: str) -> str:
    if _NO_TEXT.search(text):
        raise ValueError("must hold no control characters and no noncharacters")
    return text


def _identifier(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty or only white space")
    if _LINE_BREAK_OR_TAB.search(text):
        raise ValueError("must hold no line breaks and no tabs")
    return _text(text)


def _email(text: str) -> str:
    if not _EMAIL.fullmatch(text):
        raise ValueError("must be one e-mail address")
    return _text(text)


def _source(text: str) -> str:
    if not text or not is_uri_reference(text):
        raise ValueError("must be a non-empty URI-reference (RFC 3986), such as /shop")
    return text


def _time(text: str) -> str:
    rfc3339(text)
    return text


def _json_media_type(text: str) -> str:
    if not _JSON_MEDIA_TYPE.fullmatch(text):
        raise ValueError("must be left out or application/json")
    return text


Identifier = Annotated[
    str,
    Field(max_length=256, json_schema_extra={"minLength": 1, "pattern": _SHOWN_IDENTIFIER}),
    AfterValidator(_identifier),
]
"""1 to 256 code points, not only white space, no control characters (C05)."""


class _Profile(BaseModel):
    # hide_input_in_errors, and repr=False below: an order's personal data reaches no log by accident (O01)
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)


class Customer(_Profile):
    """Who ordered: the shop's own reference, and where to write to."""

    id: Identifier
    email: Annotated[
        str, Field(max_length=320, repr=False, json_schema_extra={"format": "email"}), AfterValidator(_email)
    ]


class Item(_Profile):
    """One line of the order; the price is in minor units of the order's currency."""

    sku: Identifier
    quantity: Annotated[int, Field(ge=1, le=1_000_000)]
    unit_price_minor: AmountMinor


class OrderData(_Profile):
    """What was ordered. `requested_by` may not approve the order; a step that asks for approval may demand it."""

    order_id: Identifier
    requested_by: Identifier | None = None
    customer: Customer
    currency: Currency
    items: Annotated[tuple[Item, ...], Field(strict=False, min_length=1, max_length=100)]  # strict=False: takes lists
    total_minor: AmountMinor
    note: (
        Annotated[str, Field(max_length=1000, json_schema_extra={"pattern": _SHOWN_TEXT}), AfterValidator(_text)] | None
    ) = Field(default=None, repr=False)


class OrderEvent(_Profile):
    """An order placed. `time` keeps its original text; an optional member that is `null` counts as absent."""

    specversion: Literal["1.0"]
    id: Identifier
    source: Annotated[
        str,
        Field(max_length=1024, json_schema_extra={"format": "uri-reference", "minLength": 1}),
        AfterValidator(_source),
    ]
    type: Literal["dev.orderflow.order.placed.v1"]
    time: Annotated[str, Field(json_schema_extra={"format": "date-time"}), AfterValidator(_time)] | None = None
    subject: Identifier | None = None
    datacontenttype: (
        Annotated[
            str,
            Field(max_length=256, json_schema_extra={"pattern": f"^{_JSON_MEDIA_TYPE.pattern}$"}),
            AfterValidator(_json_media_type),
        ]
        | None
    ) = None
    data: OrderData


def validate_event(value: JsonValue) -> OrderEvent:
    """Make an event of `value`, as `read_json` gave it; its rules are checked by `check_order`.

    Raises:
        InvalidEvent: with every problem of its shape, each with its JSON path, none repeating a value.
    """
    try:
        return OrderEvent.model_validate(value)
    except ValidationError as error:
        problems = tuple(_explained(problem) for problem in problems_in(error))
    raise _invalid(problems)


def order_problems(data: OrderData) -> tuple[Problem, ...]:
    """Give the rules that an order of good shape breaks: the total is the sum of the items, and more than nothing."""
    problems = []
    if data.total_minor == 0:
        problems.append(Problem("$.data.total_minor", "must be more than 0"))
    if data.total_minor != (total := sum(item.quantity * item.unit_price_minor for item in data.items)):
        problems.append(Problem("$.data.total_minor", f"must equal the sum of the items, {total}"))
    return tuple(problems)


def check_order(event: OrderEvent) -> None:
    """Let an order pass that keeps every rule.

    Raises:
        InvalidEvent: with each rule that is broken.
    """
    if problems := order_problems(event.data):
        raise _invalid(problems)


def event_identity_key(source: str, event_id: str) -> bytes:
    """Give the identity of an event as canonical JSON `[source, id]`: no two pairs share it (C04)."""
    return canonical_json([source, event_id])


def workflow_id(source: str, event_id: str) -> str:
    """Give the Workflow ID of the order of this event: `order-` and 32 hex digits, printable for any id (C05)."""
    return f"order-{hashlib.sha256(event_identity_key(source, event_id)).hexdigest()[:32]}"


def is_order_id(workflow_id: str) -> bool:
    """Whether this is what `workflow_id` gives for some event."""
    return _ORDER_ID.fullmatch(workflow_id) is not None


def payload_fingerprint(event: OrderEvent) -> str:
    """Give `fp1:` and the SHA-256 of the whole event in canonical form, absent members left out (I11)."""
    return digest(event.model_dump(mode="json", exclude_none=True), version="fp1")


def _explained(problem: Problem) -> Problem:
    if problem.path == "$.data_base64":
        return Problem(problem.path, "is not taken; send the order as a JSON object in data")
    return problem


def _invalid(problems: tuple[Problem, ...]) -> InvalidEvent:
    return InvalidEvent(f"not a valid order event: {summary(problems)}", path=problems[0].path, problems=problems)
