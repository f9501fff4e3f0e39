"""From a file's bytes to a history that can be replayed, or one line that says why it is none (T30).

Checked before the SDK sees anything: its replayer waits for ever for a history without a finished workflow task.
"""

import json
import re
from pathlib import Path
from typing import Any, Final

from google.protobuf.json_format import ParseDict, ParseError
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import History, HistoryEvent
from temporalio.client import WorkflowHistory

from orderflow.domain.errors import InvalidInput
from orderflow.history.replaying import WORKFLOWS
from orderflow.history.shapes import normal

MAX_BYTES: Final = 256 * 1024 * 1024
"""Of one file: Temporal itself ends a workflow at 50 MB of history, base64 and indentation come on top."""

_STARTED: Final = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED
_TASK_DONE: Final = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
_ID_IN_NAME: Final = re.compile(r"(?:order-[0-9a-f]{32}|announce-[0-9a-f]{32}-[a-z_]+)")


def read_history(file: Path, *, workflow_id: str | None = None) -> WorkflowHistory:
    """Read one history; its Workflow ID is `workflow_id`, or stands in the file, its first event or the file's name.

    Raises:
        InvalidInput: if it is missing, unreadable, too big, no JSON, no history, truncated, or none of our workflows'.
    """
    document = _document(_bytes(file))
    history = _parsed(document)
    _require_whole(history)
    named = document.get("workflowId") or document.get("workflow_id")
    attributes = history.events[0].workflow_execution_started_event_attributes
    in_name = _ID_IN_NAME.match(file.name)
    found = workflow_id or (named if isinstance(named, str) else "") or attributes.workflow_id
    found = found or (in_name[0] if in_name else "")
    if not found:
        raise InvalidInput("names no Workflow ID; give it with --workflow-id")
    return WorkflowHistory(found, list(history.events))


def _bytes(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            raw = opened.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InvalidInput(f"cannot be read ({reason})") from None
    if len(raw) > MAX_BYTES:
        raise InvalidInput(f"holds more than {MAX_BYTES} bytes; no history of Temporal's does")
    if not raw.strip():
        raise InvalidInput("is empty; a history is a JSON document")
    return raw


def _document(raw: bytes) -> dict[str, Any]:
    try:
        value = json.loads(raw.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise InvalidInput("is no UTF-8 text; a history is a JSON document in UTF-8") from None
    except RecursionError:
        raise InvalidInput("is nested too deeply for a history") from None
    except ValueError as error:
        raise InvalidInput(f"is no JSON, or is cut off ({error})") from None
    if isinstance(value, list):
        value = {"events": value}
    if isinstance(value, dict) and isinstance(value.get("history"), dict):
        value = {**value, **value["history"]}
    events = value.get("events") if isinstance(value, dict) else None
    if not isinstance(events, list):
        raise InvalidInput('is no history: there is no list "events"')
    if not events:
        raise InvalidInput("is a history without events: there is nothing to replay")
    if value.get("nextPageToken"):
        raise InvalidInput("is only the first page of a history; export all of it")
    result: dict[str, Any] = value
    return result


def _parsed(document: dict[str, Any]) -> History:
    events = [normal(event, HistoryEvent.DESCRIPTOR, f"$.events[{i}]") for i, event in enumerate(document["events"])]
    try:
        return ParseDict({"events": events}, History(), ignore_unknown_fields=True)
    except (ParseError, ValueError, TypeError, RecursionError) as error:
        raise InvalidInput(f"is no history of Temporal's ({str(error)[:200]})") from None


def _require_whole(history: History) -> None:
    for number, event in enumerate(history.events, 1):
        if event.event_id != number:
            raise InvalidInput(f"is not whole: where event {number} should be, event {event.event_id} is")
        kind = EventType.Name(event.event_type) if event.event_type in EventType.values() else str(event.event_type)
        if event.WhichOneof("attributes") != f"{kind.removeprefix('EVENT_TYPE_').lower()}_event_attributes":
            raise InvalidInput(f"event {number} is {kind} and does not hold what belongs to it")
    if history.events[0].event_type != _STARTED:
        raise InvalidInput("does not begin with the start of a workflow: it is cut off at its beginning")
    kind = history.events[0].workflow_execution_started_event_attributes.workflow_type.name
    if kind not in WORKFLOWS:
        raise InvalidInput(f"is of the workflow type {kind[:60]!r}, which is none of {', '.join(sorted(WORKFLOWS))}")
    if not any(event.event_type == _TASK_DONE for event in history.events):
        raise InvalidInput("holds no finished workflow task: there is nothing to replay, or it is cut off")
