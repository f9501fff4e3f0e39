"""`orderflow history` on a history whose payloads are encrypted (T28, R01)."""

from collections.abc import Iterator

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import WorkflowHistory
from temporalio.converter import WorkflowSerializationContext

from orderflow.client.converter import data_converter
from orderflow.codec import OrderCodec
from orderflow.domain.errors import InvalidInput
from orderflow.history.decoding import decoded
from orderflow.history.payloads import is_encoded, payloads
from orderflow.history.redacting import Redaction
from orderflow.history.replaying import replay
from tests.replay.test_history_tools import history
from tests.support.confidential import key_set

KEYS = "ORDERFLOW_PAYLOAD_KEYS"


@pytest.fixture
def encrypted(monkeypatch: pytest.MonkeyPatch) -> WorkflowHistory:
    """The history of a completed order as it is written under the key `a`, which is set."""
    monkeypatch.setenv(KEYS, key_set("a").decode())
    told = history("completed")
    context = WorkflowSerializationContext(namespace="default", workflow_id=told.workflow_id)
    codec = data_converter().with_context(context).payload_codec
    assert isinstance(codec, OrderCodec)
    for payload in _of_ours(told):
        payload.CopyFrom(codec.sealed(payload))
    assert any(is_encoded(event) for event in told.events)
    return told


def _of_ours(told: WorkflowHistory) -> Iterator[Payload]:
    """The payloads that pass the codec: not search attributes, and not what the SDK's core writes into a marker."""
    for event in told.events:
        markers = event.marker_recorded_event_attributes.details
        of_core = {payload.data for name, each in markers.items() if name == "data" for payload in each.payloads}
        if not event.HasField("upsert_workflow_search_attributes_event_attributes"):
            yield from (each for each in payloads(event) if each.data not in of_core and not each.metadata.get("type"))


def test_an_encrypted_history_replays_and_is_redacted_into_one_that_replays_in_clear(
    encrypted: WorkflowHistory,
) -> None:
    """T28, R01: with the keys it is a history like any other."""
    assert replay(encrypted).verdict == "ok"
    clear, redaction = decoded(encrypted), Redaction()
    redaction.meet(clear)
    redacted = redaction.redact(clear)
    assert not any(is_encoded(event) for event in redacted.events)
    assert replay(redacted).verdict == "ok"


@pytest.mark.parametrize("keys", [None, "b"])
def test_without_its_key_nothing_of_a_history_is_read(
    encrypted: WorkflowHistory, keys: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T28: one line that says so, and which key where it is known."""
    if keys is None:
        monkeypatch.delenv(KEYS)
    else:
        monkeypatch.setenv(KEYS, key_set(keys).decode())
    with pytest.raises(InvalidInput, match="no keys are set here" if keys is None else r"cannot be decoded: .*\ba\b"):
        decoded(encrypted)


def test_a_payload_of_another_order_is_not_taken_for_its_own(encrypted: WorkflowHistory) -> None:
    """T28: what was moved or altered is refused, never passed on as nothing."""
    told = next(payload for event in encrypted.events for payload in payloads(event) if is_encoded(payload))
    told.data = told.data[:-1] + bytes([told.data[-1] ^ 1])
    with pytest.raises(InvalidInput, match="cannot be decoded"):
        decoded(encrypted)
