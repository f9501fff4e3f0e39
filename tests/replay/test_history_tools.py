"""`orderflow history` on histories of the real server: what is redacted replays, and what drifts is seen (R01, T29)."""

import base64
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHistory

from orderflow import dispatch
from orderflow.contracts import (
    ANNOUNCE_WORKFLOW_TYPE,
    RECONCILE_WORKFLOW_TYPE,
    REPAIR_WORKFLOW_TYPE,
    WORKFLOW_TYPE,
)
from orderflow.definitions import packaged_definitions
from orderflow.domain.definition import Definition
from orderflow.domain.events import workflow_id
from orderflow.history.payloads import payloads
from orderflow.history.reading import read_history
from orderflow.history.redacting import Redaction
from orderflow.history.replaying import WORKFLOWS, Verdict, replay
from orderflow.history.values import CannotRedact
from tests.replay.endings import ENDINGS
from tests.replay.record import HISTORIES
from tests.support.command_line import orderflow


def history(name: str) -> WorkflowHistory:
    """One history of the corpus."""
    return read_history(HISTORIES / f"{name}.json")


def redacted(*given: WorkflowHistory) -> list[WorkflowHistory]:
    """What one run makes of them."""
    redaction = Redaction()
    for each in given:
        redaction.meet(each)
    return [redaction.redact(each) for each in given]


def texts(told: WorkflowHistory) -> str:
    """All that can be read in a history: its fields, its payloads, and what is in a token."""
    parts = [told.workflow_id, *(str(event) for event in told.events)]
    for event in told.events:
        for payload in payloads(event):
            parts.append(payload.data.decode())
            tokens = [piece for piece in payload.data.decode().replace('"', ".").split(".") if piece.startswith("eyJ")]
            parts += [base64.urlsafe_b64decode(piece + "=" * (-len(piece) % 4)).decode() for piece in tokens]
    return "\n".join(parts)


def shape(told: WorkflowHistory) -> list[tuple[int, int, str]]:
    """What redaction may not change."""
    return [(event.event_id, event.event_type, str(event.event_time)) for event in told.events]


PLACES = ("email", "note", "requested_by", "sku", "order_id", "subject", "reference", "detail", "evidence")


def with_canaries(told: WorkflowHistory, canary: str) -> WorkflowHistory:
    """The same history with a canary in each place where a customer's value can stand, and in every other text."""
    raw = json.loads(json.dumps(told.to_json_dict()))
    parsed = WorkflowHistory.from_json(told.workflow_id, raw)
    for event in parsed.events:
        for payload in payloads(event):
            _mark(payload, canary)
        _mark_fields(event, canary)
    return parsed


def _mark(payload: Payload, canary: str) -> None:
    if payload.metadata.get("encoding") == b"json/plain":
        payload.data = json.dumps(_marked(json.loads(payload.data), "", canary)).encode()


def _marked(value: Any, key: str, canary: str) -> Any:
    if isinstance(value, dict):
        if "definition" in value and "event" in value:
            return {**value, "event": _marked(value["event"], "event", canary)}
        return {
            name: _marked(each, name if key != "event" or name != "id" else "", canary) for name, each in value.items()
        }
    if isinstance(value, list):
        return [_marked(each, key, canary) for each in value]
    if not isinstance(value, str) or key not in PLACES:
        return value
    return f"{canary}@{key}" if key == "email" else f"{canary}-{key}"


def _mark_fields(event: HistoryEvent, canary: str) -> None:
    attributes = getattr(event, event.WhichOneof("attributes") or "")
    names = {field.name for field in attributes.DESCRIPTOR.fields}
    if "identity" in names:
        attributes.identity = canary
    if "header" in names:
        attributes.header.fields["trace"].data = canary.encode()
    if "memo" in names:
        attributes.memo.fields["customer"].data = canary.encode()
    if "search_attributes" in names:
        note = attributes.search_attributes.indexed_fields["Note"]
        note.metadata["encoding"], note.data = b"json/plain", json.dumps(canary).encode()
    if "failure" in names and attributes.HasField("failure"):
        attributes.failure.message = attributes.failure.stack_trace = canary
        attributes.failure.cause.message = canary
    event.user_metadata.summary.data = canary.encode()


@pytest.mark.parametrize("name", ENDINGS)
def test_no_value_of_a_customer_survives_redaction_and_it_still_replays(name: str) -> None:
    """R01: canaries in payloads, tokens, failures, headers, memo, attributes, identity, notes: none is left."""
    marked = with_canaries(history(name), "CANARYZQ")
    assert texts(marked).count("CANARYZQ") > 10
    [made] = redacted(marked)
    assert "CANARYZQ" not in texts(made)
    assert shape(made) == shape(marked)
    assert replay(made).verdict is replay(marked).verdict is Verdict.OK


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    junk=st.recursive(
        st.text(min_size=1).map(lambda text: f"CANARYZQ{text}") | st.integers() | st.none(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(min_size=1).map(lambda text: f"CANARYZQ{text}"), inner),
        max_leaves=6,
    )
)
def test_whatever_an_order_was_started_with_is_redacted(junk: Any) -> None:
    """R01, T55: not only what has our shape, also the names of members."""
    told = history("failed")
    start = told.events[0].workflow_execution_started_event_attributes
    start.input.payloads[0].data = json.dumps(junk).encode()
    [made] = redacted(told)
    assert "CANARYZQ" not in texts(made)
    assert shape(made) == shape(told)


@pytest.mark.parametrize("odd", ['{"approval": %s, "approval": %s}', '{"approval": %s}' + " " * 9000])
def test_a_message_that_no_door_took_is_taken_by_none_afterwards(odd: str) -> None:
    """R01: a member that comes twice, or too many bytes: what was refused unread stays unread."""
    told = history("rejected")
    [signal] = [event for event in told.events if event.HasField("workflow_execution_signaled_event_attributes")]
    payload = signal.workflow_execution_signaled_event_attributes.input.payloads[0]
    token = json.dumps(json.loads(payload.data)["approval"])
    payload.data = (odd % ((token,) * odd.count("%s"))).encode()
    [made] = redacted(told)
    assert replay(made).verdict is replay(told).verdict is Verdict.DIVERGES


def test_an_order_and_its_announcement_still_belong_together() -> None:
    """R01: the same value has the same stand-in in every history of a run, and an order's id is that of its event."""
    order, announcement = redacted(history("announced"), history("announcing"))
    started = order.events[0].workflow_execution_started_event_attributes
    event = json.loads(started.input.payloads[0].data)["event"]
    assert order.workflow_id == started.workflow_id == workflow_id(event["source"], event["id"])
    told = announcement.events[0].workflow_execution_started_event_attributes
    assert (
        json.loads(told.input.payloads[0].data)["announcement"]["order"] == told.parent_workflow_execution.workflow_id
    )


@pytest.mark.parametrize("name", ENDINGS)
def test_redaction_is_deterministic_and_the_corpus_is_redacted(name: str) -> None:
    """R01: the same files give the same bytes; what is committed has been redacted."""
    once, again = redacted(history(name))[0], redacted(history(name))[0]
    assert once == again
    for word in ("someone@example.com", "dana", '"A-1"', "alice", "/shop"):
        assert word not in texts(history(name))


@pytest.mark.parametrize("encoding", [b"binary/encrypted", b"json/protobuf", b""])
def test_what_cannot_be_decoded_is_not_redacted_but_refused(encoding: bytes) -> None:
    """R01: fails closed."""
    told = history("completed")
    told.events[0].workflow_execution_started_event_attributes.input.payloads[0].metadata["encoding"] = encoding
    with pytest.raises(CannotRedact):
        redacted(told)


def test_the_commands_redact_and_replay_a_folder(tmp_path: Path) -> None:
    """Issue 5: `redact DIR --out DIR`, `replay DIR`; a history that drifts is seen, with where."""
    out = tmp_path / "redacted"
    assert orderflow("history", "redact", HISTORIES, "--out", out).code == 0
    ran = orderflow("history", "replay", out, "--json")
    assert ran.code == 0, ran
    assert {each["verdict"] for each in ran.json["histories"]} == {"ok"}
    assert len(ran.json["histories"]) == len(ENDINGS)
    assert orderflow("history", "redact", HISTORIES, "--out", out).code == 2
    drifted = json.loads((HISTORIES / "completed.json").read_text())
    for event in drifted["events"]:
        if (scheduled := event.get("activityTaskScheduledEventAttributes")) is not None:
            scheduled["activityType"]["name"] = "something_else"
    (tmp_path / "drifted.json").write_text(json.dumps(drifted))
    seen = orderflow("history", "replay", tmp_path / "drifted.json")
    assert seen.code == 1, seen
    assert "something_else" in seen.out


def test_an_error_in_workflow_code_is_no_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    """T16: a workflow task that fails is seen, not taken for an end."""

    async def broken(*_arguments: object) -> object:
        raise ZeroDivisionError("a bug of ours")

    monkeypatch.setattr(dispatch, "admit", broken)
    told = replay(history("completed"))
    assert told.verdict is Verdict.FAILS
    assert "a bug of ours" in (told.divergence or "")


def renamed(call: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
    """An activity under another name."""

    async def other(name: str, *arguments: Any, **options: Any) -> object:
        return await call(f"{name}_v2", *arguments, **options)

    return other


@pytest.mark.parametrize("name", sorted(set(ENDINGS) - {"failed"}))
def test_a_renamed_activity_turns_the_gate_red(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """T28: each history in which an activity was scheduled."""
    monkeypatch.setattr(workflow, "execute_activity", renamed(workflow.execute_activity))
    assert replay(history(name)).verdict is Verdict.DIVERGES


@pytest.mark.parametrize("name", ["completed", "cancelled", "declined", "reviewed", "operated"])
def test_two_steps_that_are_swapped_turn_the_gate_red(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """T28: what is ready at once begins in the order of the definition."""
    ready = Definition.ready
    monkeypatch.setattr(Definition, "ready", lambda *arguments: ready(*arguments)[::-1])
    assert replay(history(name)).verdict is Verdict.DIVERGES


def test_each_published_version_of_the_definition_is_in_the_corpus() -> None:
    """Issue 5: a release that publishes another version records it."""
    packaged = {(told["name"], told["version"]) for told in map(json.loads, packaged_definitions())}
    assert packaged <= {_definition(name) for name in ENDINGS}


def _definition(name: str) -> tuple[str, str]:
    start = history(name).events[0].workflow_execution_started_event_attributes
    told = json.loads(start.input.payloads[0].data).get("definition", {"name": "", "version": ""})
    return told["name"], told["version"]


def test_a_history_can_be_replayed_as_far_as_it_went() -> None:
    """Issue 5: a running order's replays too; what is cut off never hangs."""
    whole = history("rejected")
    for end in range(4, len(whole.events)):
        cut = WorkflowHistory(whole.workflow_id, list(whole.events[:end]))
        told = replay(cut, patience=20)
        assert told.verdict is not Verdict.STUCK, (end, told)
        assert not told.closed


def test_every_workflow_that_a_worker_runs_can_be_replayed() -> None:
    """T31: the same workflows, by their types."""
    assert set(WORKFLOWS) == {
        ANNOUNCE_WORKFLOW_TYPE,
        RECONCILE_WORKFLOW_TYPE,
        REPAIR_WORKFLOW_TYPE,
        WORKFLOW_TYPE,
    }
