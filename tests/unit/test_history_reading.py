"""What counts as a history, in which shapes, and what is said of everything else (T30)."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHistory

from orderflow.domain.errors import InvalidInput
from orderflow.history.payloads import payloads
from orderflow.history.reading import read_history
from tests.replay.record import HISTORIES
from tests.support.command_line import orderflow

Document = dict[str, Any]


def recorded() -> Document:
    """A history as the SDK wrote it."""
    document: Document = json.loads((HISTORIES / "declined.json").read_text())
    return document


def camel(value: Any) -> Any:
    """The same with enums as older tools write them."""
    prefixes = ("EVENT_TYPE_", "TASK_QUEUE_KIND_", "RETRY_STATE_", "TIMEOUT_TYPE_")
    if isinstance(value, dict):
        return {key: camel(each) for key, each in value.items()}
    if isinstance(value, list):
        return [camel(each) for each in value]
    for prefix in prefixes if isinstance(value, str) else ():
        if value.startswith(prefix):
            return "".join(word.capitalize() for word in value.removeprefix(prefix).split("_"))
    return value


def decoded(value: Any, *, bare: bool) -> Any:
    """The same with payloads as a UI (or, `bare`, Temporal's CLI) shows them."""
    if isinstance(value, dict) and value.keys() == {"payloads"} and bare:
        return [decoded(each, bare=bare) for each in value["payloads"]]
    if isinstance(value, dict) and "metadata" in value and "data" in value:
        return json.loads(base64.b64decode(value["data"]))
    if isinstance(value, dict):
        return {key: decoded(each, bare=bare) for key, each in value.items()}
    return [decoded(each, bare=bare) for each in value] if isinstance(value, list) else value


SHAPES: dict[str, Callable[[Document], Any]] = {
    "as the SDK writes it": lambda document: document,
    "a bare list": lambda document: document["events"],
    "in a history": lambda document: {"history": {"events": document["events"]}},
    "old enums": camel,
    "decoded by a UI": lambda document: decoded(document, bare=False),
    "as Temporal's CLI shows it": lambda document: decoded(document, bare=True),
    "with numbers": lambda document: {
        **document,
        "events": [{**event, "eventId": int(event["eventId"])} for event in document["events"]],
    },
    "with fields of a later release": lambda document: {
        **document,
        "events": [{**event, "later": {"x": 1}} for event in document["events"]],
    },
}


@pytest.mark.parametrize("shape", SHAPES)
def test_one_history_is_the_same_in_each_shape(shape: str, tmp_path: Path) -> None:
    """T30: as the SDK, the UI and Temporal's CLI write it."""
    file = tmp_path / "history.json"
    file.write_text(json.dumps(SHAPES[shape](recorded())))
    read = read_history(file)
    assert read.workflow_id == recorded()["workflowId"]
    assert untyped(read) == untyped(read_history(HISTORIES / "declined.json"))


def untyped(history: WorkflowHistory) -> list[HistoryEvent]:
    """Its events, without the type of a search attribute, which a decoded one has lost."""
    for event in history.events:
        for payload in payloads(event):
            payload.metadata.pop("type", None)
    return list(history.events)


def test_a_byte_order_mark_changes_nothing(tmp_path: Path) -> None:
    """T30: some editors and shells write one."""
    file = tmp_path / "history.json"
    file.write_bytes(b"\xef\xbb\xbf" + json.dumps(recorded()).encode())
    assert read_history(file).events


def without(number: int) -> Document:
    """A history that lacks an event."""
    document = recorded()
    del document["events"][number - 1]
    return document


def changed(change: Callable[[Document], object]) -> Document:
    """A history in which the first event is another."""
    document = recorded()
    change(document["events"][0])
    return document


ATTRIBUTES = "workflowExecutionStartedEventAttributes"
REFUSED: dict[str, tuple[Any, str]] = {
    "empty": (b"", "is empty"),
    "blank": (b" \n", "is empty"),
    "no JSON": (b"history", "is no JSON"),
    "cut off": (json.dumps(recorded()).encode()[:5000], "is no JSON, or is cut off"),
    "UTF-16": (json.dumps(recorded()).encode("utf-16"), "is no UTF-8 text"),
    "deep": (b"[" * 100_000, "is nested too deeply"),
    "no events": ({"events": []}, "without events"),
    "no list": ({"events": {"a": 1}}, "no list"),
    "something else": ({"specversion": "1.0"}, "no list"),
    "a number": (1, "no list"),
    "strange events": ({"events": [1, 2]}, "no object"),
    "one page": ({**recorded(), "nextPageToken": "abc"}, "first page"),
    "without its start": (without(1), "where event 1 should be"),
    "a hole": (without(9), "where event 9 should be"),
    "start only": ({"events": recorded()["events"][:1]}, "no finished workflow task"),
    "no enum": (changed(lambda event: event.update(eventType="Started")), "is no EventType"),
    "foreign": (
        changed(lambda event: event[ATTRIBUTES].update(workflowType={"name": "Other"})),
        "workflow type 'Other'",
    ),
    "other type": (changed(lambda event: event.update(eventType="EVENT_TYPE_TIMER_FIRED")), "does not hold"),
    "bad payload": (changed(lambda event: event[ATTRIBUTES].update(attempt="x")), "no history of Temporal's"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_history_is_told_in_one_line(what: str, tmp_path: Path) -> None:
    """Issue 5: one clear line, exit 2, at once; the SDK's own replayer waits for ever for some of these."""
    given, sentence = REFUSED[what]
    file = tmp_path / "history.json"
    file.write_bytes(given if isinstance(given, bytes) else json.dumps(given).encode())
    ran = orderflow("history", "replay", file)
    assert ran.code == 2, ran
    assert len(ran.err.splitlines()) == 1
    assert sentence in ran.err


def test_what_is_no_file_is_told_too(tmp_path: Path) -> None:
    """O01: a file that is not there, a folder without histories."""
    for place in (tmp_path, tmp_path / "missing.json"):
        ran = orderflow("history", "replay", place)
        assert (ran.code, len(ran.err.splitlines())) == (2, 1), ran


@given(
    raw=st.binary(max_size=200)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(["events", "eventId", "eventType", "history", "workflowId", ATTRIBUTES]), inner
            )
        ),
        max_leaves=8,
    ).map(lambda value: json.dumps(value).encode())
)
def test_no_bytes_are_taken_for_a_history_by_accident(raw: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    """O01: whatever a file holds, it is refused as input, and never crashes."""
    file = tmp_path_factory.mktemp("any") / "history.json"
    file.write_bytes(raw)
    with pytest.raises(InvalidInput):
        read_history(file)
