"""The one JSON reader: ingress, command line and definitions read the same language.

It is JSON (RFC 8259) as I-JSON (RFC 7493) narrows it, and without floats: UTF-8, no duplicate keys (W14), no `NaN`
(W15), bounded depth (W16), whole numbers within ±(2^53-1) (W17), no lone surrogates (W18). Numbers with a fraction or
an exponent and `-0` are refused, so that a value has one text for a number and never two fingerprints (I11).
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from typing_extensions import TypeAliasType

from orderflow.domain.errors import InvalidJson
from orderflow.domain.problems import json_path, quoted

JsonValue = TypeAliasType("JsonValue", "dict[str, JsonValue] | list[JsonValue] | str | int | bool | None")
"""A JSON value of this profile; also usable as the type of a pydantic field."""

MAX_INTEGER: Final = 2**53 - 1
MAX_DEPTH: Final = 32
MAX_BYTES: Final = 262_144

_INTEGERS: Final = range(-MAX_INTEGER, MAX_INTEGER + 1)
_BOM: Final = b"\xef\xbb\xbf"
_STRING: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)  # also an unclosed one: never backtracks
_BRACKET: Final = re.compile(r"[\[\]{}]")
_TOO_BIG: Final = "a number is beyond ±(2^53-1)"
_NOT_WHOLE: Final = "a number is not written as a whole number (amounts are in minor units)"

_Location = tuple[str | int, ...]


@dataclass(frozen=True)
class _Refused:
    """Stands in the parsed tree for what the profile refuses, until the walk knows its path."""

    message: str


def read_json(
    raw: bytes, *, max_depth: int = MAX_DEPTH, max_bytes: int = MAX_BYTES, allow_bom: bool = False
) -> JsonValue:
    """Read one JSON document from `raw`.

    A byte order mark is refused, unless `allow_bom` (for files, which some editors start with one; W13).

    Raises:
        InvalidJson: with the JSON path, or line and column, of the first fault.
    """
    if len(raw) > max_bytes:
        raise InvalidJson(f"the document has {len(raw)} bytes; at most {max_bytes} are read")
    text = _decode(raw, allow_bom=allow_bom)
    _require_depth(text, max_depth)
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        what = error.msg.removesuffix(" at")
        raise InvalidJson(f"not JSON: {what} at line {error.lineno} column {error.colno}") from None
    return require_profile(value, max_depth=max_depth)


def require_profile(value: object, *, max_depth: int = MAX_DEPTH) -> JsonValue:
    """Give `value` back if it is JSON of this profile; tuples pass as arrays.

    Raises:
        InvalidJson: with the JSON path of the first part that is not.
    """
    if not _is_clean(value, max_depth):
        for location, fault in _faults(value, (), max_depth):
            raise InvalidJson(fault, path=json_path(location))
    return value  # type: ignore[return-value]  # the walk has just shown it


def _decode(raw: bytes, *, allow_bom: bool) -> str:
    if raw.startswith(_BOM):
        if not allow_bom:
            raise InvalidJson("the document starts with a byte order mark; send plain UTF-8 without it")
        raw = raw[len(_BOM) :]
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidJson(f"the document is not UTF-8 (byte {error.start}); save or send it as UTF-8") from None


def _require_depth(text: str, max_depth: int) -> None:
    """Count brackets outside strings, because the parser itself would recurse (W16)."""
    if text.count("[") + text.count("{") <= max_depth:  # as in nearly all documents: it cannot be deeper
        return
    depth = 0
    for bracket in _BRACKET.finditer(_STRING.sub("", text)):
        depth += 1 if bracket[0] in "[{" else -1
        if depth > max_depth:
            raise InvalidJson(_too_deep(max_depth))


def _too_deep(max_depth: int) -> str:
    return f"arrays and objects are nested deeper than {max_depth} levels"


def _object(pairs: list[tuple[str, object]]) -> dict[str, object] | _Refused:
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    [(repeated, _)] = Counter(key for key, _ in pairs).most_common(1)
    return _Refused(f"the key {quoted(repeated)} appears more than once")


def _integer(digits: str) -> int | _Refused:
    if digits == "-0":
        return _Refused("-0 is not a number of this profile; write 0")
    return int(digits) if len(digits) <= len(str(-MAX_INTEGER)) else _Refused(_TOO_BIG)  # int() of 4301 digits raises


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_object, parse_int=_integer)  # floats fall in the walk


def _is_clean(value: Any, depth: int) -> bool:
    """Whether there is surely no fault, at a third of the price of looking for them; subclasses are looked at."""
    kind = type(value)
    if kind is str:
        return _is_unicode(value)
    if kind is int:
        return value in _INTEGERS
    if kind is dict:
        return depth > 0 and all(
            type(key) is str and _is_unicode(key) and _is_clean(child, depth - 1) for key, child in value.items()
        )
    if kind is list:
        return depth > 0 and all(_is_clean(child, depth - 1) for child in value)
    return value is None or kind is bool


def _faults(value: object, location: _Location, max_depth: int) -> Iterator[tuple[_Location, str]]:
    if not isinstance(value, dict | list | tuple):
        if fault := _scalar_fault(value):
            yield location, fault
        return
    if len(location) >= max_depth:
        yield location, _too_deep(max_depth)
        return
    for part, child in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(value, dict) and (fault := _key_fault(part)):
            yield location, fault
        yield from _faults(child, (*location, part), max_depth)


def _key_fault(key: object) -> str | None:
    if not isinstance(key, str):
        return f"a key is a {type(key).__name__}, not a string"
    return None if _is_unicode(key) else f"the key {quoted(key)} holds a lone surrogate"


def _scalar_fault(value: object) -> str | None:
    match value:
        case None | bool():
            return None
        case str():
            return None if _is_unicode(value) else "a string holds a lone surrogate"
        case int():
            return None if -MAX_INTEGER <= value <= MAX_INTEGER else _TOO_BIG
        case float():
            return _NOT_WHOLE
        case _Refused():
            return value.message
        case _:
            return f"a {type(value).__name__} is not a JSON value"


def _is_unicode(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
