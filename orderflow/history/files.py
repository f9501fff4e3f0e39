"""Histories as files of a folder: found, named, written."""

import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from google.protobuf.json_format import MessageToDict
from temporalio.api.history.v1 import History
from temporalio.client import WorkflowHistory

from orderflow.domain.errors import InvalidInput

_ODD: Final = re.compile(r"[^A-Za-z0-9._-]")


def found(places: Iterable[Path]) -> Iterator[Path]:
    """Give each file that is named, and the `*.json` of each folder; raises `InvalidInput` for a folder without any."""
    for place in places:
        if not place.is_dir():
            yield place
            continue
        files = sorted(path for path in place.rglob("*.json") if path.is_file())
        if not files:
            raise InvalidInput(f"{place} holds no histories (*.json)")
        yield from files


def name_of(history: WorkflowHistory) -> str:
    """The file's name: Workflow ID and run id, so that every run of an order has its own."""
    return f"{_ODD.sub('_', history.workflow_id)[:120]}.{_ODD.sub('_', run_id(history))}.json"


def run_id(history: WorkflowHistory) -> str:
    """The id of this very run (the SDK's `run_id` is that of the run that was reset, after a reset)."""
    return history.events[0].workflow_execution_started_event_attributes.original_execution_run_id


def write(history: WorkflowHistory, folder: Path, name: str) -> Path:
    """Write the history as the SDKs read it; a file of that name is replaced whole. Only its owner may read it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    value: dict[str, Any] = {"workflowId": history.workflow_id, **MessageToDict(History(events=history.events))}
    path, part = folder / name, folder / f".{name}.part"
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write(json.dumps(value, indent=1, sort_keys=True) + "\n")
    part.replace(path)
    return path
