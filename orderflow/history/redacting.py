"""Redacting a history: a walk over every field that Temporal's messages have, by an allow-list (R01).

Numbers, times, enums and booleans of Temporal's own stay, and with them how many events there are, of which types, in
which order, when. Of texts only those stay that are named here; payloads are redacted value by value (`values`),
headers, memos, links and notes are left out. What cannot be read is not written: `CannotRedact`.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from temporalio.api.common.v1 import Payload
from temporalio.api.history.v1 import History
from temporalio.client import WorkflowHistory

from orderflow.client.search_attributes import REASON, STAGE
from orderflow.contracts import OWN_ACTIVITIES
from orderflow.history.payloads import payloads
from orderflow.history.replaying import WORKFLOWS
from orderflow.history.standins import StandIns
from orderflow.history.values import CannotRedact, is_patch, meet, redacted
from orderflow.history.vocabulary import WORDS

_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TEXT_TYPES: Final = frozenset({FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES})
_LEFT_OUT: Final = frozenset({"header", "memo", "user_metadata", "links", "completion_callbacks", "encoded_attributes"})
_PATCHES: Final = "TemporalChangeVersion"
_ATTRIBUTES: Final = frozenset({STAGE.name, REASON.name, _PATCHES})
_CORE_MARKERS: Final = frozenset({"core_local_activity", "core_patch"})

Rule = Callable[[StandIns, str], str]


def _run_id(given: StandIns, text: str) -> str:
    return text if _UUID.fullmatch(text) else given.text("run", text)


def _activity(given: StandIns, text: str) -> str:
    return text if text in OWN_ACTIVITIES else given.step(text)


def _number_or(kind: str) -> Rule:
    return lambda given, text: text if text.isdecimal() or text in given.words else given.text(kind, text)


def _message_id(given: StandIns, text: str) -> str:
    return given.text("update", text.removesuffix("/request")) + ("/request" if text.endswith("/request") else "")


def _of(words: Iterable[str], kind: str) -> Rule:
    kept = frozenset(words)
    return lambda given, text: text if text in kept else given.text(kind, text)


_UPDATE: Final[Rule] = lambda given, text: given.text("update", text)  # noqa: E731
_RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        "workflow_id": StandIns.workflow,
        **dict.fromkeys(
            (
                "run_id",
                "original_execution_run_id",
                "first_execution_run_id",
                "continued_execution_run_id",
                "new_execution_run_id",
                "base_run_id",
                "new_run_id",
            ),
            _run_id,
        ),
        "activity_id": _number_or("activity"),
        "timer_id": _number_or("timer"),
        "marker_name": _of(_CORE_MARKERS, "marker"),
        "signal_name": _of(WORDS, "name"),
        "temporal.api.update.v1.Input.name": _of(WORDS, "name"),
        "temporal.api.common.v1.WorkflowType.name": _of(WORKFLOWS, "type"),
        "temporal.api.common.v1.ActivityType.name": _activity,
        "temporal.api.taskqueue.v1.TaskQueue.name": lambda given, text: given.text("queue", text),
        "temporal.api.failure.v1.ApplicationFailureInfo.type": _of(WORDS, "Error"),
        "non_retryable_error_types": _of(WORDS, "Error"),
        "temporal.api.failure.v1.Failure.message": lambda given, text: given.text("message", text),
        "update_id": _UPDATE,
        "protocol_instance_id": _UPDATE,
        "accepted_request_message_id": _message_id,
        "sdk_name": _of({"temporal-python"}, "sdk"),
        "identity": lambda given, text: given.text("identity", text),
    }
)
"""What becomes of a text, by the name of its field, or by its full name; of any other, nothing is left."""


class Redaction:
    """One run over several histories: `meet` every one of them first, then `redact` each."""

    def __init__(self) -> None:
        self._given = StandIns()

    def meet(self, history: WorkflowHistory) -> None:
        """Take up what connects this history with others. What cannot be read is for `redact` to refuse."""
        for event in history.events:
            for payload in payloads(event):
                with suppress(CannotRedact):
                    meet(_value(payload), self._given)

    def redact(self, history: WorkflowHistory) -> WorkflowHistory:
        """Give the history redacted; the same number, types, ids and times of events. Raises `CannotRedact`."""
        told = History()
        told.events.extend(history.events)
        for event in told.events:
            self._message(event)
        return WorkflowHistory(self._given.workflow(history.workflow_id), list(told.events))

    def _message(self, message: Message) -> None:
        if isinstance(message, Payload):
            self._payload(message)
            return
        for field, value in list(message.ListFields()):
            self._field(message, field, value)

    def _field(self, message: Message, field: FieldDescriptor, value: Any) -> None:
        entry = field.message_type
        if field.name in _LEFT_OUT:
            message.ClearField(field.name)
        elif field.name == "indexed_fields":
            self._attributes(value)
        elif field.name == "details" and entry is not None and entry.GetOptions().map_entry:
            self._marker(message, value)
        elif entry is not None and entry.GetOptions().map_entry:
            message.ClearField(field.name)
        elif field.type in _TEXT_TYPES:
            self._texts(message, field, value)
        elif entry is not None:
            for each in value if field.is_repeated else [value]:
                self._message(each)

    def _texts(self, message: Message, field: FieldDescriptor, value: Any) -> None:
        rule = _RULES.get(field.full_name) or _RULES.get(field.name)
        message.ClearField(field.name)
        if rule is None or field.type == FieldDescriptor.TYPE_BYTES:
            return
        if field.is_repeated:
            getattr(message, field.name).extend(rule(self._given, each) for each in value)
        else:
            setattr(message, field.name, rule(self._given, value))

    def _attributes(self, held: Any) -> None:
        for name in list(held):
            value = _value(held[name])
            kept = value in WORDS if isinstance(value, str) else name == _PATCHES and isinstance(value, list)
            if name not in _ATTRIBUTES or not kept:
                del held[name]
            else:
                kind = held[name].metadata.get("type", b"")
                _write(held[name], value)
                held[name].metadata["type"] = kind if kind in {b"Keyword", b"KeywordList"} else b"Keyword"

    def _marker(self, message: Any, held: Any) -> None:
        for name in list(held):
            if message.marker_name == "core_patch" and name == "patch-data":
                for payload in held[name].payloads:
                    value = _value(payload)
                    patch = value.get("id") if isinstance(value, dict) else None
                    if not isinstance(patch, str) or not is_patch(patch):
                        raise CannotRedact("the marker of a patch holds no patch")
                    _write(payload, {"id": patch, "deprecated": value.get("deprecated") is True})
            elif message.marker_name == "core_local_activity" and name in {"data", "result"}:
                self._message(held[name])
            else:
                del held[name]

    def _payload(self, payload: Payload) -> None:
        encoding = payload.metadata.get("encoding", b"")
        value = _value(payload)
        if encoding in {b"binary/null", b"binary/plain"}:
            payload.Clear()
            payload.metadata["encoding"] = encoding
        else:
            _write(payload, redacted(payload.data, value, self._given))


def _value(payload: Payload) -> Any:
    encoding = payload.metadata.get("encoding", b"")
    if encoding in {b"binary/null", b"binary/plain"}:
        return None
    if encoding != b"json/plain":
        named = encoding.decode("ascii", "replace")[:60]
        raise CannotRedact(f"holds a payload of the encoding {named!r}, which cannot be read here")
    try:
        return json.loads(payload.data)
    except (ValueError, RecursionError):
        raise CannotRedact("holds a payload that says it is JSON and is none") from None


def _write(payload: Payload, value: Any) -> None:
    payload.Clear()
    payload.metadata["encoding"] = b"json/plain"
    payload.data = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
