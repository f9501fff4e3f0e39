"""A compact JWS (RFC 7515, section 3.1) before anybody has verified it: what it claims, if it claims anything."""

import base64
import binascii
import re
from typing import Final

from orderflow.domain.errors import InvalidJson
from orderflow.domain.strict_json import JsonValue, read_json

MAX_TOKEN_LENGTH: Final = 4096
"""Characters of a JWS that are looked at, at most; a real decision has about 1000."""

LATEST_TIME: Final = 253_402_300_799
"""The last second of the year 9999 in Unix time: what a `datetime` can hold."""

_SHAPE = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", re.ASCII)


class NotCompactJws(ValueError):
    """The value is no compact JWS with strict JSON in it."""


def unverified_payload(token: str) -> JsonValue:
    """Give the payload of `token`; nothing of it is proven. Raises `NotCompactJws` for whatever is none."""
    if len(token) > MAX_TOKEN_LENGTH or not _SHAPE.fullmatch(token):
        raise NotCompactJws
    return _part(token, 1)


def unverified_header(token: str) -> JsonValue:
    """Give the protected header of `token`. Raises `NotCompactJws` for whatever is none."""
    return _part(token, 0)


def _part(token: str, index: int) -> JsonValue:
    try:
        part = token.split(".")[index]
        return read_json(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (IndexError, InvalidJson, binascii.Error):
        raise NotCompactJws from None
