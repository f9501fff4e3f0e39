"""Whether today's code would do what a history says: one verdict for one history.

Each history gets a thread and a replayer of its own: a replayer that waits for ever, which the SDK cannot cancel, is
left behind, and said to be stuck.
"""

import asyncio
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from queue import Empty, SimpleQueue
from types import MappingProxyType
from typing import Any, Final

from temporalio.client import WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.worker import Replayer
from temporalio.workflow import NondeterminismError

from orderflow.announcing import AnnounceWorkflow
from orderflow.client.converter import data_converter
from orderflow.contracts import (
    ANNOUNCE_WORKFLOW_TYPE,
    RECONCILE_WORKFLOW_TYPE,
    REPAIR_WORKFLOW_TYPE,
    WORKFLOW_TYPE,
)
from orderflow.history.payloads import is_encoded
from orderflow.reconciling import ReconcileWorkflow
from orderflow.repairing import RepairWorkflow
from orderflow.workflows import OrderWorkflow

WORKFLOWS: Final[Mapping[str, type]] = MappingProxyType(
    {
        WORKFLOW_TYPE: OrderWorkflow,
        RECONCILE_WORKFLOW_TYPE: ReconcileWorkflow,
        REPAIR_WORKFLOW_TYPE: RepairWorkflow,
        ANNOUNCE_WORKFLOW_TYPE: AnnounceWorkflow,
    }
)
"""By their types; the same that a worker runs."""

_AT_LEAST: Final = 30.0
_EVENTS_A_SECOND: Final = 100
"""Far slower than any replay; for how long a history may take before it counts as stuck."""


_MESSAGE: Final = re.compile(r'message: "((?:[^"\\]|\\.)*)"')


class Verdict(StrEnum):
    """What a replay came to."""

    OK = "ok"
    DIVERGES = "diverges"
    """Today's code would do something else than what was recorded."""
    FAILS = "fails"
    """Today's code raises where the history goes on."""
    STUCK = "stuck"


@dataclass(frozen=True)
class Replayed:
    """One replay: `divergence` is the first thing that was otherwise, in the SDK's words."""

    workflow_id: str
    workflow_type: str
    run_id: str
    events: int
    closed: bool
    verdict: Verdict
    divergence: str | None = None


_Outcome = SimpleQueue[BaseException | None]


def replay(history: WorkflowHistory, *, patience: float | None = None) -> Replayed:
    """Replay `history`, which `read_history` gave, for at most `patience` seconds (by default by its length)."""
    limit = patience or _AT_LEAST + len(history.events) / _EVENTS_A_SECOND
    outcome: _Outcome = SimpleQueue()
    converter = data_converter()
    if not any(is_encoded(event) for event in history.events):  # such as a redacted one
        converter = replace(converter, payload_codec=None)
    threading.Thread(target=_in_thread, args=(history, converter, outcome), daemon=True).start()
    try:
        return _told(history, outcome.get(timeout=limit))
    except Empty:
        return _answer(history, Verdict.STUCK, f"no end of the replay within {limit:.0f} s")


def _in_thread(
    history: WorkflowHistory, converter: DataConverter, outcome: "SimpleQueue[BaseException | None]"
) -> None:
    try:
        outcome.put(asyncio.run(_failure(history, converter)))
    except BaseException as error:  # noqa: BLE001 - told to whoever waits
        outcome.put(error)


async def _failure(history: WorkflowHistory, converter: DataConverter) -> Exception | None:
    replayer = Replayer(workflows=[WORKFLOWS[_type(history)]], data_converter=converter)

    async def only() -> Any:
        yield history

    async with replayer.workflow_replay_iterator(only()) as results:
        async for result in results:
            return result.replay_failure
    return RuntimeError("the SDK replayed nothing")


def _told(history: WorkflowHistory, error: BaseException | None) -> Replayed:
    if error is None:
        return _answer(history, Verdict.OK)
    verdict = Verdict.DIVERGES if isinstance(error, NondeterminismError) else Verdict.FAILS
    return _answer(history, verdict, _sentence(str(error)))


def _sentence(text: str) -> str:
    """What the SDK says, without the whole failure that it prints around it."""
    found = _MESSAGE.search(text)
    return " ".join((found[1] if found else text).replace('\\"', '"').split())


def _answer(history: WorkflowHistory, verdict: Verdict, divergence: str | None = None) -> Replayed:
    last = history.events[-1].WhichOneof("attributes") or ""
    closed = last.startswith("workflow_execution_") and last.split("_")[2] in _ENDS
    events = len(history.events)
    return Replayed(history.workflow_id, _type(history), history.run_id, events, closed, verdict, divergence)


_ENDS: Final = frozenset({"completed", "failed", "canceled", "terminated", "timed", "continued"})


def _type(history: WorkflowHistory) -> str:
    return history.events[0].workflow_execution_started_event_attributes.workflow_type.name
