"""Payloads that a codec made, decoded with the one converter there is; refused when a key is missing."""

import asyncio

from temporalio.api.common.v1 import Payload
from temporalio.api.history.v1 import History
from temporalio.client import WorkflowHistory
from temporalio.converter import WorkflowSerializationContext

from orderflow.client.converter import data_converter
from orderflow.domain.errors import InvalidInput
from orderflow.history.payloads import is_encoded, payloads


def decoded(history: WorkflowHistory) -> WorkflowHistory:
    """Give the history with every payload decoded. Raises `InvalidInput` for one that cannot be, with its event."""
    if not any(is_encoded(event) for event in history.events):
        return history
    return asyncio.run(_decoded(history))


def require_readable(history: WorkflowHistory) -> None:
    """Raise `InvalidInput` unless every payload can be decoded here: a replay would only say that something failed."""
    decoded(history)


async def _decoded(history: WorkflowHistory) -> WorkflowHistory:
    converter = data_converter()
    told = History()
    told.events.extend(history.events)
    for event in told.events:
        for payload in payloads(event):
            if is_encoded(payload):
                place = _place(payload, history.workflow_id)
                codec = (converter if place is None else converter.with_context(place)).payload_codec
                if codec is None:
                    raise InvalidInput(f"event {event.event_id} is encrypted, and no keys are set here")
                try:
                    [plain] = await codec.decode([Payload.FromString(payload.SerializeToString())])
                except Exception as error:  # noqa: BLE001 - a codec's own
                    raise InvalidInput(f"event {event.event_id} cannot be decoded: {error}") from None
                payload.CopyFrom(plain)
    return WorkflowHistory(history.workflow_id, list(told.events))


def _place(payload: Payload, workflow_id: str) -> WorkflowSerializationContext | None:
    """Where the payload says that it belongs, which decrypting proves: a child's input is the child's."""
    said = payload.metadata.get("encryption-context", b"").decode(errors="replace")
    if said == "none":
        return None
    named = said.removeprefix("workflow:") or workflow_id
    return WorkflowSerializationContext(namespace="default", workflow_id=named)
