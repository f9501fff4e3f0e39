"""What we mean to do, in one unambiguous form: canonical JSON, digests over it, idempotency keys."""

import hashlib
import json
import re
from enum import StrEnum
from typing import Final, NamedTuple

import rfc8785
from pydantic import BaseModel

from orderflow.domain.errors import InvalidInput
from orderflow.domain.strict_json import JsonValue, require_profile

STEP_ID: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")
"""What a step may be called (use with `fullmatch`): it becomes part of keys and of header values."""

_WORKFLOW_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")
_KEY: Final = re.compile(
    rf"(?P<workflow_id>{_WORKFLOW_ID.pattern})\.(?P<step>{STEP_ID.pattern})\.(?P<direction>do|undo)"
)

_COMPACT: Final = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"))
"""RFC 8785 for a value of our profile that is ASCII throughout, where code points sort as UTF-16 does; in C."""


class Direction(StrEnum):
    """Whether an effect is done or taken back: each has a key of its own (I10)."""

    DO = "do"
    UNDO = "undo"


def canonical_json(value: JsonValue) -> bytes:
    """Give `value` as the UTF-8 bytes of RFC 8785: one form for one value, keys in UTF-16 order (I11).

    Raises:
        InvalidJson: for floats, integers beyond ±(2^53-1), lone surrogates and what is no JSON at all.
    """
    text = _COMPACT.encode(require_profile(value))
    return text.encode() if text.isascii() else rfc8785.dumps(value)


def digest(value: JsonValue, *, version: str = "sha256") -> str:
    """Give `<version>:` and the SHA-256 of the canonical form in hex; `version` names the rule that was followed."""
    return f"{version}:{hashlib.sha256(canonical_json(value)).hexdigest()}"


def intent_digest(intent: BaseModel) -> str:
    """Give the digest of what we mean to do; a member that is `None` is the same as one left out."""
    return digest(intent.model_dump(mode="json", exclude_none=True))


class Key(NamedTuple):
    """What an idempotency key says."""

    workflow_id: str
    step: str
    direction: Direction


def read_key(key: str) -> Key | None:
    """Take apart what `idempotency_key` gave; `None` for a key that is none of ours."""
    found = _KEY.fullmatch(key)
    return Key(found["workflow_id"], found["step"], Direction(found["direction"])) if found else None


def idempotency_key(workflow_id: str, step: str, direction: Direction) -> str:
    """Give `<workflow id>.<step>.<do|undo>`: the same on every attempt, run and reset (I04).

    Printable ASCII without quotes, so it is safe in a header; no two triples share a key, as neither a step nor a
    direction holds a dot.

    Raises:
        InvalidInput: if the workflow id or the step could not stand in a key.
    """
    if not _WORKFLOW_ID.fullmatch(workflow_id):
        raise InvalidInput("a workflow id holds 1 to 128 letters, digits, dots, dashes and underscores only")
    if not STEP_ID.fullmatch(step):
        raise InvalidInput("a step id starts with a small letter; at most 40 small letters, digits and underscores")
    return f"{workflow_id}.{step}.{direction}"
