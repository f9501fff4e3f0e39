"""Redacting one JSON value: what is not said to be kept, is not kept.

Kept is a word of ours in a place for it (a stage, a refusal, an error's type), a definition that is one, a time that
we wrote, a number that counts. Everything else becomes a stand-in of the kind that its place takes; so do the names
of members that no message of ours has.
"""

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final

from pydantic import ValidationError

from orderflow import contracts
from orderflow.domain import announcements, approvals, operations
from orderflow.domain.compact_jws import NotCompactJws, unverified_payload
from orderflow.domain.definition import Definition
from orderflow.domain.durations import Duration
from orderflow.domain.errors import InvalidInput
from orderflow.domain.money import EXPONENTS
from orderflow.domain.strict_json import read_json
from orderflow.domain.times import rfc3339
from orderflow.doors import MAX_MESSAGE_BYTES
from orderflow.history.standins import StandIns
from orderflow.history.vocabulary import MEMBERS, WORDS, kinds

_WORD_PLACES: Final = frozenset(
    {
        "stage",
        "reason",
        "state",
        "error",
        "refusal",
        "decision",
        "operation",
        "outcome",
        "told",
        "subject",
        "door",
        "name",
        "specversion",
        "type",
        "what",
    }
)
_STEP_PLACES: Final = frozenset(
    {
        "step",
        "activity",
        "activity_type",
        "activity_id",
        "role",
        "roles",
        "registered",
        "decision",
        "subject",
        "definition_name",
        "definition_version",
        "definition",
        "name",
        "to_tell",
        "steps",
    }
)
_AMOUNTS: Final = frozenset({"quantity", "unit_price_minor", "total_minor", "amount_minor", "alone_up_to"})
_COUNTS: Final = frozenset(
    {
        "seq",
        "attempt",
        "seconds",
        "nanos",
        "activation_index",
        "attempts",
        "backoff",
        "state_version",
        "version",
        "approvers",
        "expires_at",
        "charge_by",
        "iat",
        "refused_total",
        "orders",
        "changes",
        "foreign",
    }
)
_TIMES: Final = frozenset({"at", "opened_at", "done_at", "decided_at", "deadline_at"})
_DURATIONS: Final = frozenset({"initial_interval", "maximum_interval", "since"})
_PEOPLE: Final = frozenset({"approver", "operator", "requester", "requested_by", "approved_by"})
_IDS: Final = frozenset({"workflow_id", "order"})
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SUBSCRIBER: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_PATCH: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_TOKENS: Final = frozenset({"approval", "operation", "token", "accepted"})

_TEXTS: Final[Mapping[str, Callable[[StandIns, str], str]]] = MappingProxyType(
    {
        "source": StandIns.source,
        "event_source": StandIns.source,
        "event_id": lambda given, text: given.text("event", text),
        "key": StandIns.key,
        "effect": StandIns.key,
        "time": StandIns.time,
        "email": lambda given, text: f"{given.text('customer', text)}@example.invalid",
        "payload_fingerprint": lambda given, text: f"fp1:{given.number(text):064x}",
        "jti": lambda given, text: f"jti-{given.number(text):016d}",
        "operated": lambda given, text: f"jti-{given.number(text):016d}",
        "seen": lambda given, text: f"jti-{given.number(text):016d}",
        "datacontenttype": lambda _given, _text: "application/json",
    }
)


class CannotRedact(InvalidInput):
    """Something could not be read, or would mean something else afterwards; nothing of the history is written."""


def meet(value: Any, given: StandIns) -> None:
    """Let `given` know the events, amounts, definitions and subscribers in `value`."""
    for key, each in _members(value):
        if key in _AMOUNTS and type(each) is int:
            given.meet_amount(each)
        elif key in _TOKENS and isinstance(each, str):
            meet(_claims(each), given)
        elif key == "definition" and (definition := _definition(each)) is not None:
            given.meet_definition(definition)
        elif key in {"subscription", "subscriptions"} and isinstance(each, dict):
            _meet_subscriber(each.get("name"), given)
        elif key == "event" and isinstance(each, dict):
            _meet_event(each.get("source"), each.get("id"), given)
        elif key == "announcement" and isinstance(each, dict):
            _meet_event(each.get("event_source"), each.get("event_id"), given)


def _meet_event(source: Any, event_id: Any, given: StandIns) -> None:
    if isinstance(source, str) and isinstance(event_id, str):
        with suppress(InvalidInput):  # no text that an event's identity could hold
            given.meet_event(source, event_id)


def _meet_subscriber(name: Any, given: StandIns) -> None:
    if isinstance(name, str) and _SUBSCRIBER.fullmatch(name):
        given.meet_words((name, announcements.telling_step(name)))


def _members(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield key, each
            yield from ((key, one) for one in each) if isinstance(each, list) else ()
            yield from _members(each)
    elif isinstance(value, list):
        for each in value:
            yield from _members(each)


def redacted(raw: bytes, value: Any, given: StandIns) -> Any:
    """Give `value` redacted, which was read from `raw`.

    Raises `CannotRedact` where that would change which of our messages it is.
    """
    before = kinds(value)
    nothing = {"redacted": given.text("value", _dump(value))}
    for candidate in (nothing,) if _is_no_message(raw, value) else (_walk(value, "", "", given), nothing):
        if kinds(candidate) == before:
            return candidate
    raise CannotRedact("a value that is one of our messages could not be redacted and stay one")


def _is_no_message(raw: bytes, value: Any) -> bool:
    """Whether it looks like a message at a door and is none there: too large, or no JSON that a door reads."""
    if not isinstance(value, dict) or not value.keys() <= {"approval", "operation"}:
        return False
    try:
        read_json(raw, max_depth=2, max_bytes=MAX_MESSAGE_BYTES)
    except InvalidInput:
        return True
    return False


def _walk(value: Any, key: str, parent: str, given: StandIns) -> Any:
    match value:
        case None | bool():
            return value
        case dict() if key == "definition" and _definition(value) is not None:
            return value
        case dict():
            return {_name(name, given): _walk(each, name, key, given) for name, each in value.items()}
        case list():
            return [_walk(each, key, parent, given) for each in value]
        case int():
            return _integer(value, key, given)
        case float():
            return float(given.number(repr(value)))
        case _:
            return _text(str(value), key, parent, given)


def _name(name: str, given: StandIns) -> str:
    if name in MEMBERS or name in given.words or name in WORDS:
        return name
    return given.text("member", name)


def _integer(value: int, key: str, given: StandIns) -> int:
    if key in _COUNTS:
        return value
    return given.amount(value) if key in _AMOUNTS else given.number(repr(value))


def _text(text: str, key: str, parent: str, given: StandIns) -> str:
    if key in _IDS:
        return given.workflow(text)
    if key == "id":
        return given.text("event" if parent == "event" else "customer", text)
    if key in _PEOPLE:
        return given.text("person", text)
    if _is_harmless(text, key, given):
        return text
    if key in _TOKENS:
        return token(text, given)
    if key in _TEXTS:
        return _TEXTS[key](given, text)
    return given.text(key if key in MEMBERS else "text", text)


def _is_harmless(text: str, key: str, given: StandIns) -> bool:
    """Whether it is one of our own words, times, codes or ids, in a place for one."""
    return (
        (key in _WORD_PLACES and text in WORDS)
        or (key in _STEP_PLACES and (text in given.words or text in contracts.OWN_ACTIVITIES))
        or (key in _TIMES and _is_time(text))
        or (key in _DURATIONS and _is_duration(text))
        or (key == "non_retryable" and text in WORDS)
        or (key == "activity_id" and text.isdecimal())
        or (key == "currency" and text in EXPONENTS)
        or (key == "definition_fingerprint" and text in given.definitions)
        or (key == "request_id" and _UUID.fullmatch(text) is not None)
    )


def token(text: str, given: StandIns) -> str:
    """A JWS with the same claims, redacted, and with no signature; what is none stays none."""
    claims = _claims(text)
    if claims is None:
        return given.text("no-token", text)
    told = _walk(claims, "", "", given)
    parts = [_dump({"alg": "none"}), _dump(told), given.text("signature", text)]
    made = ".".join(base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts)
    return made if _read(made) == _read(text) else given.text("no-token", text)


def _read(text: str) -> tuple[bool, bool]:
    return (
        isinstance(approvals.read_claims(text), approvals.Claims),
        isinstance(operations.read_operation(text), operations.OperationClaims),
    )


def _claims(text: str) -> Any:
    try:
        return unverified_payload(text)
    except NotCompactJws:
        return None


def _definition(value: Any) -> Definition | None:
    if not isinstance(value, dict):
        return None
    try:
        return Definition.model_validate_json(_dump(value))
    except ValidationError:
        return None


def _is_time(text: str) -> bool:
    try:
        rfc3339(text)
    except ValueError:
        return False
    return True


def _is_duration(text: str) -> bool:
    try:
        Duration(text)
    except ValueError:
        return False
    return True


def is_patch(text: str) -> bool:
    """Whether this is what `workflow.patched` may be called with."""
    return _PATCH.fullmatch(text) is not None


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
