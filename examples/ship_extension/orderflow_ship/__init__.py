"""Orders that are shipped: a kind of step for orderflow, found through the entry point `orderflow.steps`."""

from orderflow.catalogue import StepKind
from orderflow.domain.events import OrderData
from orderflow.domain.strict_json import JsonValue


def parcel(order: OrderData) -> dict[str, JsonValue]:
    """What is to be shipped: the intent that the idempotency key of the shipment stands for."""
    items: list[JsonValue] = [{"sku": item.sku, "quantity": item.quantity} for item in order.items]
    return {"order_id": order.order_id, "customer_id": order.customer.id, "items": items}


SHIP = StepKind(
    activity="ship_order",
    provider="shipping",
    operation="ship",
    intent=parcel,
    compensation="cancel_shipment",
    undo_operation="cancel",
)
