"""What holds for every order after every test, as functions over its books (I-1 to I-5, T22, I04, T34).

Each raises `AssertionError` with a sentence; none uses `assert`, so that they hold under `python -O` too.
"""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHistory
from temporalio.converter import DataConverter, WorkflowSerializationContext
from temporalio.worker import Replayer

from orderflow.codec import OrderCodec
from orderflow.contracts import OrderView
from orderflow.domain.audit import Told
from orderflow.domain.definition import Definition
from orderflow.domain.effects import EffectState
from orderflow.domain.orders import FINAL, Reason, Stage, StepState
from orderflow.ledger import EffectRecord
from orderflow.providers.simulation.journal import Line
from orderflow.workflows import OrderWorkflow

_CLOSED_BY: Final[Mapping[Stage, str]] = MappingProxyType(
    {Stage.COMPLETED: "COMPLETED", Stage.FAILED: "FAILED", Stage.FAILED_COMPENSATED: "FAILED"}
)


@dataclass(frozen=True)
class Books:
    """All that is known of one order: its history, its lines of the providers' log, its view, its ledger rows.

    `attributes` are the search attributes that Temporal shows, by name; `converter` reads the history.
    """

    history: WorkflowHistory
    log: tuple[Line, ...]
    view: OrderView
    effects: tuple[EffectRecord, ...]
    definition: Definition
    attributes: Mapping[str, Any]
    converter: DataConverter

    @property
    def is_continued(self) -> bool:
        """Whether the history is that of a later run, so that earlier steps stand elsewhere."""
        return bool(self.history.events[0].workflow_execution_started_event_attributes.continued_execution_run_id)

    def events(self, name: str) -> list[HistoryEvent]:
        """The events of a type, such as `ActivityTaskScheduled`, oldest first."""
        wanted = EventType.Value("EVENT_TYPE_" + "".join(f"_{c}" if c.isupper() else c for c in name)[1:].upper())
        return [event for event in self.history.events if event.event_type == wanted]

    def scheduled(self, activity_id: str | None = None) -> list[Any]:
        """The attributes of each `ActivityTaskScheduled`, of one activity id if given."""
        found = [event.activity_task_scheduled_event_attributes for event in self.events("ActivityTaskScheduled")]
        return [each for each in found if activity_id in (None, each.activity_id)]

    def done(self, step: str) -> list[Line]:
        """What a provider did for a step: each line is one act outside."""
        return [line for line in self._acts(step) if "of" not in line]

    def undone(self, step: str) -> list[Line]:
        """What a provider took back of a step."""
        return [line for line in self._acts(step) if "of" in line]

    def stands(self, step: str) -> bool:
        """Whether something of a step stands outside now."""
        done, undone = self.done(step), self.undone(step)
        if any("amount_minor" in line for line in done):
            return _total(done) > _total(undone)
        return len(done) > len(undone)

    def compensable(self) -> list[str]:
        """The steps that have a compensation, in the order in which they were first scheduled."""
        having = {step.id for step in self.definition.steps if step.compensation is not None}
        started = [attributes.activity_id for attributes in self.scheduled()]
        return [step for step in dict.fromkeys(started) if step in having]

    def _acts(self, step: str) -> list[Line]:
        return [
            line for line in self.log if line["kind"] == "act" and line["step"] == step and line["outcome"] == "done"
        ]


def _total(lines: list[Line]) -> int:
    return sum(amount for line in lines if isinstance(amount := line.get("amount_minor"), int))


def _require(holds: object, sentence: str) -> None:
    if not holds:
        raise AssertionError(sentence)


def at_most_one_net_charge(books: Books) -> None:
    """I-1: no effect was applied twice, and no more money was given back than was taken."""
    for step in books.definition.steps:
        done, undone = books.done(step.id), books.undone(step.id)
        _require(len(done) <= 1, f"I-1: {step.id} was done {len(done)} times: {done}")
        _require(_total(undone) <= _total(done), f"I-1: more went back than was taken for {step.id}: {undone}")


def completed_means_done(books: Books) -> None:
    """I-2: of a completed order each step was done once and stands, or the outcome says why not."""
    if books.view.stage is not Stage.COMPLETED or books.view.outcome is None:
        return
    for record in books.view.outcome.steps:
        if record.state is StepState.SKIPPED:
            said = any(record.step in note for note in books.view.outcome.notes)
            _require(said, f"I-2: {record.step} was skipped and no note says why")
        elif record.activity != "validate_order":
            _require(record.state is StepState.DONE, f"I-2: completed, but {record.step} is {record.state}")
            _require(len(books.done(record.step)) == 1, f"I-2: {record.step} is done here, but not at its provider")
            scheduled = books.is_continued or books.scheduled(record.step)
            _require(scheduled, f"T33: {record.step} is no activity of its own")
            _require(books.stands(record.step), f"I-2: {record.step} was taken back")


def failed_means_taken_back(books: Books) -> None:
    """I-3: of a failed order nothing stands that can be undone, and it was undone in reverse order."""
    if books.view.stage not in (Stage.FAILED, Stage.FAILED_COMPENSATED):
        return
    for step in books.compensable():
        _require(not books.stands(step), f"I-3: {step} still stands: {books.done(step)}")
    undone_in_log = [(line["seq"], step) for step in books.compensable() for line in books.undone(step)]
    undone = [step for _, step in sorted(undone_in_log) if step]
    expected = [step for step in reversed(books.compensable()) if step in undone]
    operated = any(event.told is Told.OPERATION_ACCEPTED for event in books.view.trail)  # later than its turn
    by_hand = operated or any(line.get("by_hand") for line in books.log)
    _require(by_hand or undone == expected, f"I-3: undone in the order {undone}, not {expected}")
    if books.view.stage is Stage.FAILED:
        _require(not undone, f"I-3: {undone} was undone, yet the order calls itself failed, not failed_compensated")


def standing_is_named(books: Books) -> None:
    """I-4: an order with a failed compensation is open and names exactly what stands."""
    if books.view.stage is not Stage.COMPENSATION_FAILED:
        _require(not books.view.standing, "I-4: something stands, but the order is not compensation_failed")
        return
    named = {left.step: left for left in books.view.standing}
    stands = {step for step in books.compensable() if books.stands(step)}
    _require(stands <= named.keys(), f"I-4: {stands} stand, but only {named.keys()} are named")
    keys = {record.key: record for record in books.effects}
    for left in named.values():
        _require(left.key in keys, f"I-4: the ledger knows no {left.key}")
        asked = {EffectState.REVERSING, EffectState.VOIDED}  # VOIDED, where nobody could say whether a sleeper acted
        _require(keys[left.key].state in asked, f"I-4: {left.key} is {keys[left.key].state}")


def no_workflow_task_failed(books: Books) -> None:
    """I-5: no workflow task failed or timed out; that the server asks for another one is no failure."""
    unhandled = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND
    failed = [event.workflow_task_failed_event_attributes for event in books.events("WorkflowTaskFailed")]
    failed = [attributes for attributes in failed if attributes.cause != unhandled]
    _require(not failed, f"I-5: {failed}")


def no_workflow_task_timed_out(books: Books) -> None:
    """I-5: a worker that is alive does each workflow task in time."""
    _require(not books.events("WorkflowTaskTimedOut"), "I-5: a workflow task timed out")


def attempts_are_finite(books: Books) -> None:
    """T22: each activity, compensations included, has finite attempts and timeouts."""
    for each in books.scheduled():
        _require(each.retry_policy.maximum_attempts >= 1, f"T22: {each.activity_id} is retried for ever")
        spans = (each.start_to_close_timeout, each.schedule_to_close_timeout)
        _require(all(span.ToTimedelta() for span in spans), f"T22: {each.activity_id} has no timeout")


def one_key_per_effect(books: Books) -> None:
    """I04: one idempotency key for each step and direction, on every attempt."""
    for step in books.definition.steps:
        for undo in (False, True):
            asked = [line for line in books.log if line.get("step") == step.id and ("of" in line) is undo]
            keys = {line["key"] for line in asked if line["kind"] == "act" and not line.get("by_hand")}
            _require(len(keys) <= 1, f"I04: several keys for {step.id}: {keys}")


def ledger_agrees(books: Books) -> None:
    """Of an order that has ended the ledger says what the provider says, and nothing is left in the air."""
    if books.view.stage not in FINAL:
        return
    compensable = set(books.compensable())
    for record in books.effects:
        if record.key.endswith(".undo"):
            continue
        stands = books.stands(record.step)
        if record.state is EffectState.PENDING:
            _require(record.step not in compensable, f"{record.key} is left pending")
        else:
            _require(
                stands is (record.state is EffectState.COMMITTED), f"{record.key} is {record.state}, not so outside"
            )


def ends_alike_everywhere(books: Books) -> None:
    """T21: Temporal's status, result or failure details, search attributes and view tell one story."""
    stage, reason = books.view.stage, books.view.reason
    if stage not in FINAL:
        return
    how = "CANCELED" if reason is Reason.CANCELLED else _CLOSED_BY[stage]
    last = books.history.events[-1]
    wanted = EventType.Value(f"EVENT_TYPE_WORKFLOW_EXECUTION_{how}")
    _require(last.event_type == wanted, f"{stage} ({reason}) ended as {EventType.Name(last.event_type)}")
    attributes = {"OrderStage": stage.value} | ({"OrderReason": reason.value} if reason else {})
    shown = {name: value for name, value in books.attributes.items() if name != "BuildIds"}  # the server's own
    _require(shown == attributes, f"search attributes {shown}, not {attributes}")
    running = [record.step for record in books.view.steps if record.state is StepState.RUNNING]
    _require(not running, f"the order has ended, but {running} still run")
    told = _told_outcome(books, last)
    if told is not None and books.view.outcome is not None:
        shown = books.view.outcome.as_json()
        other = {name: (value, shown[name]) for name, value in told.items() if value != shown[name]}
        _require(not other, f"result and view differ: {other}")


def _told_outcome(books: Books, last: HistoryEvent) -> Any:
    codec = books.converter.with_context(WorkflowSerializationContext("", books.view.order)).payload_codec
    if not isinstance(codec, OrderCodec):
        raise TypeError(f"orders of tests have the codec of orderflow, not {codec}")
    completed = last.workflow_execution_completed_event_attributes.result.payloads
    failed = last.workflow_execution_failed_event_attributes.failure.application_failure_info.details.payloads
    return next((json.loads(codec.opened(payload).data) for payload in (*completed, *failed)), None)


async def replays(books: Books) -> None:
    """T34: the history replays with the code of today."""
    replayer = Replayer(workflows=[OrderWorkflow], data_converter=books.converter)
    await replayer.replay_workflow(books.history)


INVARIANTS: Final[Mapping[str, Callable[[Books], None]]] = MappingProxyType(
    {
        "I-1": at_most_one_net_charge,
        "I-2": completed_means_done,
        "I-3": failed_means_taken_back,
        "I-4": standing_is_named,
        "I-5": no_workflow_task_failed,
        "I-5 in time": no_workflow_task_timed_out,
        "T22": attempts_are_finite,
        "I04": one_key_per_effect,
        "ledger": ledger_agrees,
        "T21": ends_alike_everywhere,
    }
)


async def check_books(books: Books, exempt: Collection[str] = ()) -> None:
    """Check every invariant but those named in `exempt`, replay included (`T34`)."""
    for name, holds in INVARIANTS.items():
        if name not in exempt and name.removesuffix(" in time") not in exempt:
            holds(books)
    if "T34" not in exempt:
        await replays(books)
