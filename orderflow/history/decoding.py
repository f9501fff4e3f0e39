"""Payloads that the codec made, decrypted with the keys of this machine; refused when one is missing."""

from temporalio.api.common.v1 import Payload
from temporalio.api.history.v1 import History, HistoryEvent
from temporalio.client import WorkflowHistory

from orderflow.client.converter import order_codec
from orderflow.codec import NOWHERE, OrderCodec, place_in
from orderflow.domain.errors import InvalidInput, OrderflowError
from orderflow.history.payloads import is_encoded, payloads
from orderflow.settings import load_settings


def decoded(history: WorkflowHistory) -> WorkflowHistory:
    """Give the history with every payload decrypted. Raises `InvalidInput` for one that cannot be, with its event."""
    if not any(is_encoded(event) for event in history.events):
        return history
    codec, told = order_codec(load_settings()), History()
    told.events.extend(history.events)
    for event in told.events:
        for payload in payloads(event):
            if is_encoded(payload):
                payload.CopyFrom(_opened(codec, payload, event))
    return WorkflowHistory(history.workflow_id, list(told.events))


def require_readable(history: WorkflowHistory) -> None:
    """Raise `InvalidInput` unless every payload can be decrypted here; a replay would only say that it failed."""
    decoded(history)


def _opened(codec: OrderCodec, payload: Payload, event: HistoryEvent) -> Payload:
    """Decrypt at the place that the payload says, which decrypting proves: a child's input is at the child's."""
    if codec.ring is None:
        raise InvalidInput(f"event {event.event_id} is encrypted, and no keys are set here")
    try:
        return codec.at(place_in(payload) or NOWHERE).opened(payload)
    except OrderflowError as error:
        raise InvalidInput(f"event {event.event_id} cannot be decoded: {error.message}") from None
