"""What an order starts with: anything that is no order ends at once as failed, and says which field is wrong (T55)."""

import asyncio
import json
import re
from collections.abc import Sequence
from typing import Any, Final

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import WorkflowExecutionStatus
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from orderflow.contracts import WORKFLOW_TYPE, OrderInput, OrderState
from orderflow.domain.events import OrderEvent
from orderflow.domain.orders import Outcome, Reason, Stage, StepState
from tests.definitions import load, shipped
from tests.support.shop import Ending, Order, Shop, order_event, order_of

AT_ONCE: Final = 5.0
"""Seconds in which a bad start has to end."""


def raw(data: bytes, **metadata: str) -> RawValue:
    """A payload made by hand, by somebody who does not use our data converter."""
    return RawValue(Payload(metadata={key: value.encode() for key, value in metadata.items()}, data=data))


NO_ORDERS: Final[dict[str, tuple[Sequence[Any], str]]] = {
    "none": ([], "exactly one input, not 0"),
    "two": ([{}, {}], "exactly one input, not 2"),
    "null": ([None], r"\$: must be an object"),
    "text": (["s"], r"\$: must be an object"),
    "list": ([[]], r"\$: must be an object"),
    "float": ([{"event": 1.5}], r"\$\.event: "),
    "empty": ([{}], r"\$\.event: is missing.*\$\.definition: is missing"),
    "member": ([{"y": 1}], r"\$\.event: is missing.*\$\.y: "),
    "no encoding": ([raw(b"{}")], r"\$: "),
    "unknown encoding": ([raw(b"{}", encoding="no/such")], r"\$: "),
    "encrypted": ([raw(b"\x00\x01", encoding="binary/encrypted")], r"\$: "),
    "bytes": ([raw(b"{}", encoding="binary/plain")], r"\$: "),
    "cut off": ([raw(b'{"event": {', encoding="json/plain")], r"\$: "),
    "not UTF-8": ([raw(b'"\xff"', encoding="json/plain")], r"\$: "),
    "NaN": ([raw(b"NaN", encoding="json/plain")], r"\$: "),
    "deep": ([raw(b"[" * 100_000, encoding="json/plain")], r"\$: "),
    "surrogate": ([raw(b'"\\ud800"', encoding="json/plain")], r"\$: "),
    "unknown message": ([raw(b"{}", encoding="json/protobuf", messageType="no.such.Message")], r"\$: "),
    "junk message": ([raw(b"\x01", encoding="binary/protobuf", messageType="temporal.api.common.v1.Payload")], r"\$: "),
}
"""The inputs of a start, and what its reason has to name."""


async def refused(shop: Shop, event: OrderEvent, inputs: Sequence[Any], reason: Reason, naming: str) -> None:
    """Start the order of `event` with `inputs`: it fails at once for `reason`, and says what is wrong."""
    async with asyncio.timeout(AT_ONCE):
        handle = await shop.client.start_workflow(
            WORKFLOW_TYPE, args=inputs, id=order_of(event), task_queue=shop.task_queue
        )
        order = Order(shop, handle, event, shop.definition)
        shop.orders.append(order)
        ending = await order.ending()
    await told(order, ending, reason, naming)


async def told(order: Order, ending: Ending, reason: Reason, naming: str) -> None:
    """The error, its details and the view tell the same story, and nothing was done."""
    assert isinstance(ending.cause, ApplicationError)
    outcome = Outcome.model_validate_json(json.dumps(ending.cause.details[0]))
    assert (ending.status, ending.cause.type) == (WorkflowExecutionStatus.FAILED, reason)
    assert (outcome.stage, outcome.reason, outcome.detail) == (Stage.FAILED, reason, ending.view.detail)
    assert (ending.view.stage, ending.view.reason) == (Stage.FAILED, reason)
    for sentence in (ending.cause.message, outcome.detail):
        assert re.search(naming, sentence or "")
    assert order.lines() == []
    assert await order.shop.ledger.effects(order.id) == []


@pytest.mark.parametrize("name", NO_ORDERS)
async def test_what_is_no_order_fails_at_once_and_names_the_field(shop: Shop, name: str) -> None:
    """T55: any number and kind of inputs, whatever their bytes claim to be; never Running for ever."""
    inputs, naming = NO_ORDERS[name]
    await refused(shop, order_event(), inputs, Reason.INVALID_INPUT, naming)


async def test_an_event_under_the_id_of_another_order_is_refused(shop: Shop) -> None:
    """I04: a second run under another id would share the effects' keys; the reason says which id is right."""
    event = order_event()
    start = OrderInput(event=event, definition=shop.definition)
    await refused(shop, order_event(), [start], Reason.IDENTITY_MISMATCH, f"is the order {order_of(event)}; start it")


async def test_nobody_can_bring_a_state_from_outside(shop: Shop) -> None:
    """A forged state could say that everything is approved: only an order's own next run carries one."""
    event = order_event()
    state = OrderState(event=event, definition=shop.definition, admitted=True)
    forged = OrderInput(event=event, definition=shop.definition, carried=state)
    await refused(shop, event, [forged], Reason.INVALID_INPUT, r"\$\.carried: ")


async def test_a_definition_that_the_worker_does_not_publish_is_refused(shop: Shop) -> None:
    """Refused, not guessed; the fingerprint is named, for whoever looks for the file."""
    definition = load(shipped({"$.version": "1.0.1"}))
    order = await shop.start(definition=definition)
    await told(order, await order.ending(), Reason.DEFINITION_MISMATCH, definition.fingerprint)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"total_minor": 901}, "must equal the sum of the items, 900"),
        ({"total_minor": 0, "items": [{"sku": "tea", "quantity": 1, "unit_price_minor": 0}]}, "must be more than 0"),
    ],
)
async def test_an_order_that_breaks_a_rule_fails_with_nothing_to_undo(
    shop: Shop, changes: dict[str, Any], rule: str
) -> None:
    """T08: a normal end: failed, not failed_compensated, and nothing in the ledger that anybody has to look at."""
    order = await shop.start(order_event(**changes))
    ending = await order.ending()
    await told(order, ending, Reason.INVALID_ORDER, rf"InvalidInput: \$\.data\.total_minor: {rule}")
    assert [record.state for record in ending.view.steps] == [StepState.FAILED, *[StepState.WAITING] * 4]
