"""RFC 3339 times: the one form of a point in time that events and files may hold."""

import re
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Final

import ciso8601
from pydantic import BeforeValidator

_RFC3339: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?(?:Z|[+-][0-9]{2}:[0-9]{2})"
)
_FORM: Final = "must be an RFC 3339 time with an offset, such as 2026-01-31T12:00:00Z"


def rfc3339(text: str) -> datetime:
    """Give the aware time that `text` names. Raises `ValueError` for any other form (C02), a local time included."""
    if _RFC3339.fullmatch(text):
        with suppress(ValueError):  # right form, but no such day, hour or offset
            return ciso8601.parse_rfc3339(text)
    raise ValueError(_FORM)


def _time(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError(_FORM)
    return rfc3339(value)


Instant = Annotated[datetime, BeforeValidator(_time)]
"""An aware time, given as RFC 3339 text."""
