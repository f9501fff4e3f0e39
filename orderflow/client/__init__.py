"""The only place that talks to Temporal as a client: connecting, starting orders, reading them, deciding on them."""

from orderflow.client.connection import ServerUnreachable, address_of, connect, reachable
from orderflow.client.converter import codec_of, data_converter, order_codec
from orderflow.client.orders import (
    NoAnswer,
    OrderSummary,
    StartedOrder,
    decide,
    list_orders,
    operate,
    start_order,
    view,
    what_waits,
)
from orderflow.client.placed import placed_event
from orderflow.client.repairs import repair
from orderflow.client.search_attributes import ensure_search_attributes
from orderflow.client.status import (
    OrderClosed,
    OrderStatus,
    PendingActivity,
    TaskFailure,
    UnknownOrder,
    order_status,
)
from orderflow.client.temporal_cli import operate_command, repair_command, signal_command, start_command

__all__ = [
    "NoAnswer",
    "OrderClosed",
    "OrderStatus",
    "OrderSummary",
    "PendingActivity",
    "ServerUnreachable",
    "StartedOrder",
    "TaskFailure",
    "UnknownOrder",
    "address_of",
    "codec_of",
    "connect",
    "data_converter",
    "decide",
    "ensure_search_attributes",
    "list_orders",
    "operate",
    "operate_command",
    "order_codec",
    "order_status",
    "placed_event",
    "reachable",
    "repair",
    "repair_command",
    "signal_command",
    "start_command",
    "start_order",
    "view",
    "what_waits",
]
