"""What an order was placed with and told, as Temporal's history holds it: not what a worker says of it."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import TypeVar

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client
from temporalio.common import RawValue
from temporalio.converter import DataConverter, WorkflowSerializationContext

from orderflow.client.status import UnknownOrder, about
from orderflow.contracts import OPERATE_UPDATE, OrderInput
from orderflow.domain.announcements import AnnounceRequest
from orderflow.domain.approvals import Refusal
from orderflow.domain.errors import InvalidJson
from orderflow.domain.events import OrderEvent
from orderflow.domain.operations import Operation, read_operation
from orderflow.domain.strict_json import read_json

T = TypeVar("T")

_PATIENCE = timedelta(seconds=5)


async def placed_event(client: Client, order: str) -> OrderEvent:
    """Give the event that the latest run of `order` was started with. Raises as `placed_order` does."""
    return (await placed_order(client, order)).event


async def placed_order(client: Client, order: str) -> OrderInput:
    """Give what the latest run of `order` was started with.

    Raises `UnknownOrder` if there is none, or if what has this id was not started as an order; `PayloadKeyMissing` if
    it was, under a key that is not here.
    """
    return await _started_with(client, order, OrderInput)


async def placed_announcement(client: Client, announcement: str) -> AnnounceRequest:
    """Give what the latest run of an announcement was started with. Raises as `placed_order` does."""
    return await _started_with(client, announcement, AnnounceRequest)


async def _started_with(client: Client, workflow_id: str, shape: type[T]) -> T:
    handle = client.get_workflow_handle(workflow_id)
    with about(client, workflow_id):
        async for event in handle.fetch_history_events(page_size=1, rpc_timeout=_PATIENCE):
            started = event.workflow_execution_started_event_attributes
            try:
                converter = _converter(client, workflow_id)
                placed: list[T] = await converter.decode(started.input.payloads, [shape])
                return placed[0]
            except (IndexError, KeyError, RuntimeError, ValueError):
                message = f"{workflow_id} was not started with what this release can read as {shape.__name__}"
                raise UnknownOrder(message) from None
    raise UnknownOrder(f"{workflow_id} has no history in the namespace {client.namespace}")


async def resolved_effects(client: Client, order: str) -> frozenset[str]:
    """Give the keys of the effects of `order` about which a resolution came in, by the update `operate`, in any run.

    Nothing of it is verified, nor whether it was accepted: it says where people have been. Raises as `placed_order`.
    """
    with about(client, order):
        converter, events = _converter(client, order), _all_events(client, order)
        return frozenset([key async for event in events async for key in _resolved_by(event, converter)])


def _converter(client: Client, order: str) -> DataConverter:
    """For the payloads of `order`, which belong to it alone."""
    return client.data_converter.with_context(WorkflowSerializationContext(client.namespace, order))


async def _all_events(client: Client, order: str) -> AsyncIterator[HistoryEvent]:
    """The latest run's events, then those of the runs that it continues."""
    run: str | None = None
    while run != "":
        before = ""
        async for event in client.get_workflow_handle(order, run_id=run).fetch_history_events(rpc_timeout=_PATIENCE):
            if event.HasField("workflow_execution_started_event_attributes"):
                before = event.workflow_execution_started_event_attributes.continued_execution_run_id
            yield event
        run = before


async def _resolved_by(event: HistoryEvent, converter: DataConverter) -> AsyncIterator[str]:
    sent = event.workflow_execution_update_accepted_event_attributes.accepted_request.input
    if sent.name != OPERATE_UPDATE or len(sent.args.payloads) != 1:
        return
    try:
        [raw] = await converter.decode(sent.args.payloads, [RawValue])
        value = read_json(raw.payload.data)
    except InvalidJson:
        return
    claims = read_operation(value.get("operation")) if isinstance(value, dict) else Refusal.MALFORMED
    if not isinstance(claims, Refusal) and claims.operation is Operation.RESOLVE:
        yield claims.effect
