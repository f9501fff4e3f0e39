"""Where something is wrong and what: JSON paths, and pydantic's findings as sentences that never repeat a value."""

import json
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from orderflow.domain.errors import Problem

MAX_PROBLEMS: Final = 50
_MAX_KEY: Final = 60
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_SENTENCES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "missing": "is missing",
        "extra_forbidden": "is not a known member; remove it",
        "model_type": "must be an object",
        "dict_type": "must be an object",
        "list_type": "must be an array",
        "tuple_type": "must be an array",
        "string_type": "must be a string",
        "string_unicode": "must be valid Unicode",
        "int_type": "must be a whole number",
        "bool_type": "must be true or false",
        "literal_error": "must be {expected}",
        "enum": "must be {expected}",
        "greater_than": "must be more than {gt}",
        "greater_than_equal": "must be at least {ge}",
        "less_than_equal": "must be at most {le}",
        "string_too_short": "must have {min_length} or more characters",
        "string_too_long": "must have at most {max_length} characters",
        "too_short": "must have {min_length} or more items",
        "too_long": "must have at most {max_length} items",
        "value_error": "{error}",
    }
)


def json_path(location: Iterable[str | int]) -> str:
    """Give `$.data.items[0].sku` for `("data", "items", 0, "sku")`; odd keys are quoted, escaped and cut short."""
    return "$" + "".join(f"[{part}]" if isinstance(part, int) else _member(part) for part in location)


def quoted(key: str) -> str:
    """Give `key` as a short printable ASCII JSON string, safe to show wherever it came from."""
    return json.dumps(key if len(key) <= _MAX_KEY else key[:_MAX_KEY] + "…")


def problems_in(error: ValidationError) -> tuple[Problem, ...]:
    """Translate what pydantic found, at most `MAX_PROBLEMS`, each with its JSON path and one sentence.

    The sentences hold no value of the input: an event's values are personal data (O01).
    """
    found = [detail for detail in error.errors(include_url=False) if not _is_echo(detail)]
    return tuple(Problem(json_path(detail["loc"]), _sentence(detail)) for detail in found[:MAX_PROBLEMS])


def summary(problems: tuple[Problem, ...]) -> str:
    """Give the first problem, and how many more there are, as one line."""
    more = len(problems) - 1
    return f"{problems[0]} (and {more} more)" if more else str(problems[0])


def _member(key: str) -> str:
    return f".{key}" if len(key) <= _MAX_KEY and _NAME.fullmatch(key) else f"[{quoted(key)}]"


def _sentence(detail: ErrorDetails) -> str:
    template = _SENTENCES.get(detail["type"])
    return template.format_map(detail.get("ctx", {})) if template else detail["msg"]


def _is_echo(detail: ErrorDetails) -> bool:
    """Tell "too few items" that pydantic adds only because the items it was given are themselves wrong."""
    return detail["type"] == "too_short" and len(detail["input"]) >= detail["ctx"]["min_length"]
