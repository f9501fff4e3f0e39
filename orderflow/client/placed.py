"""What an order was placed with, as Temporal's history holds it: not what a worker says of it."""

from datetime import timedelta

from temporalio.client import Client

from orderflow.client.converter import data_converter
from orderflow.client.status import UnknownOrder, about
from orderflow.contracts import OrderInput
from orderflow.domain.events import OrderEvent

_PATIENCE = timedelta(seconds=5)


async def placed_event(client: Client, order: str) -> OrderEvent:
    """Give the event that the latest run of `order` was started with. Raises as `placed_order` does."""
    return (await placed_order(client, order)).event


async def placed_order(client: Client, order: str) -> OrderInput:
    """Give what the latest run of `order` was started with.

    Raises `UnknownOrder` if there is none, or if what has this id was not started as an order.
    """
    handle = client.get_workflow_handle(order)
    with about(client, order):
        async for event in handle.fetch_history_events(page_size=1, rpc_timeout=_PATIENCE):
            started = event.workflow_execution_started_event_attributes
            try:
                placed: list[OrderInput] = await data_converter().decode(started.input.payloads, [OrderInput])
                return placed[0]
            except (IndexError, KeyError, RuntimeError, ValueError):
                raise UnknownOrder(f"{order} was not started with what this release can read as an order") from None
    raise UnknownOrder(f"{order} has no history in the namespace {client.namespace}")
