"""Whether bytes are an order event, judged a second time and otherwise: by hand, by datetime and by a grammar.

Nothing of the product is used here. What this says and what the door says must be the same of any bytes.
"""

import json
import re
from collections.abc import Mapping, Set
from datetime import datetime
from typing import Any, Final

from abnf import ParseError
from abnf.grammars import rfc3986

_LARGEST: Final = 2**53 - 1
_DEEPEST: Final = 32
_LONGEST: Final = {"id": 256, "subject": 256, "source": 1024, "note": 1000, "email": 320}
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:[0-5]\d)", re.ASCII)
_JSON: Final = re.compile(
    r'application/json([ \t]*;[ \t]*[\w!#$%&\'*+.^`|~-]+=([\w!#$%&\'*+.^`|~-]+|"[ !#-\[\]-~]*"))*', re.I | re.A
)
CURRENCIES: Final = frozenset({"EUR", "JPY", "KWD", "USD"})
"""Those that the callers of the tests may send."""


class _NoEventError(Exception):
    pass


def order_in(body: bytes) -> dict[str, Any] | None:
    """The event that these bytes are, with an order that keeps the rules, or `None`."""
    try:
        event = json.loads(
            body.decode(),
            object_pairs_hook=_unique,
            parse_float=_refuse,
            parse_constant=_refuse,
            parse_int=_whole,
        )
        _event(event)
    except (_NoEventError, ValueError, RecursionError):
        return None
    shallow: dict[str, Any] = event
    return shallow if _depth(event) <= _DEEPEST else None


def _require(holds: object) -> None:
    if not holds:
        raise _NoEventError


def _refuse(text: str) -> None:
    raise _NoEventError


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    _require(len({key for key, _ in pairs}) == len(pairs))
    return dict(pairs)


def _whole(digits: str) -> int:
    _require(len(digits) < 20 and digits != "-0")
    return int(digits)


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return (1 + max(map(_depth, inner), default=0)) if isinstance(value, dict | list) else 0


def _members(value: Any, needed: Set[str], optional: Set[str] = frozenset()) -> Mapping[str, Any]:
    _require(isinstance(value, dict))
    _require(needed <= value.keys() <= needed | optional)
    return {name: member for name, member in value.items() if name in needed or member is not None}


def _event(value: Any) -> None:
    event = _members(value, {"specversion", "id", "source", "type", "data"}, {"time", "subject", "datacontenttype"})
    _require(event["specversion"] == "1.0" and event["type"] == "dev.orderflow.order.placed.v1")
    _identifier(event["id"])
    _source(event["source"])
    if "subject" in event:
        _identifier(event["subject"])
    if "time" in event:
        _time(event["time"])
    if "datacontenttype" in event:
        kind = event["datacontenttype"]
        _require(isinstance(kind, str) and len(kind) <= 256 and _JSON.fullmatch(kind))
    _order(event["data"])


def _order(value: Any) -> None:
    order = _members(value, {"order_id", "customer", "currency", "items", "total_minor"}, {"requested_by", "note"})
    customer = _members(order["customer"], {"id", "email"})
    for text in (order["order_id"], customer["id"], *([order["requested_by"]] if "requested_by" in order else [])):
        _identifier(text)
    _text(customer["email"], _LONGEST["email"])
    _require(re.fullmatch(r"[^@\s]+@[^@\s]+", customer["email"]))
    if "note" in order:
        _text(order["note"], _LONGEST["note"], breaks=True)
    _require(isinstance(order["currency"], str) and re.fullmatch(r"[A-Z]{3}", order["currency"]))
    _require(isinstance(order["items"], list) and 1 <= len(order["items"]) <= 100)
    total = sum(_line(item) for item in order["items"])
    _require(_number(order["total_minor"], 1, _LARGEST) == total)


def _line(value: Any) -> int:
    item = _members(value, {"sku", "quantity", "unit_price_minor"})
    _identifier(item["sku"])
    return _number(item["quantity"], 1, 1_000_000) * _number(item["unit_price_minor"], 0, _LARGEST)


def _number(value: Any, least: int, most: int) -> int:
    _require(type(value) is int and least <= value <= most)
    number: int = value
    return number


def _text(value: Any, longest: int, *, breaks: bool = False) -> None:
    _require(isinstance(value, str) and len(value) <= longest)
    _require(not any(_is_no_text(character, breaks) for character in value))


def _is_no_text(character: str, breaks: bool) -> bool:
    point = ord(character)
    if character in "\t\n\r":
        return not breaks
    return point < 0x20 or 0x7F <= point < 0xA0 or 0xD800 <= point < 0xE000 or _is_no_character(point)


def _is_no_character(point: int) -> bool:
    return 0xFDD0 <= point <= 0xFDEF or point & 0xFFFE == 0xFFFE


def _identifier(value: Any) -> None:
    _text(value, 256)
    _require(value.strip())


def _source(value: Any) -> None:
    _require(isinstance(value, str) and 0 < len(value) <= _LONGEST["source"] and value.isascii())
    try:
        rfc3986.Rule("URI-reference").parse_all(value)
    except ParseError:
        raise _NoEventError from None


def _time(value: Any) -> None:
    _require(isinstance(value, str) and _TIME.fullmatch(value))
    whole = re.sub(r"\.\d+", "", value)
    datetime.fromisoformat(whole)
