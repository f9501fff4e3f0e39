"""Anybody can start a workflow of our type with anything: what is no order ends at once, and says why (T55)."""

import json
import re
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import pytest
from temporalio.client import WorkflowExecutionStatus

from orderflow.client.search_attributes import REASON
from orderflow.contracts import WORKFLOW_TYPE, OrderInput, OrderState
from orderflow.domain.orders import Reason, Stage
from tests.support.observing import at_stage, events_of, names_of
from tests.support.processes import TemporalCli
from tests.support.shop import Shop, order_event, order_of

AT_ONCE: Final = 5.0
"""Seconds in which a bad start has to end."""

BAD_INPUTS: Final[dict[str, tuple[Sequence[str], str]]] = {
    "none": ([], "exactly one input, not 0"),
    "two": (["{}", "{}"], "exactly one input, not 2"),
    "null": (["null"], r"\$: must be an object"),
    "text": (['"s"'], r"\$: must be an object"),
    "list": (["[]"], r"\$: must be an object"),
    "number": (["1e400"], r"\$: "),
    "deep": (["[" * 1000 + "]" * 1000], r"\$: "),
    "surrogate": (['"\\ud800"'], r"\$: "),
    "member": (['{"y": 1}'], r"\$\.event: is missing.*\$\.y: "),
}
"""The inputs of a start, and what its reason has to name."""

ENCODINGS: Final = ("binary/plain", "binary/null", "binary/encrypted", "binary/protobuf", "json/protobuf", "no/such")


@pytest.fixture
async def shop(shop: Shop) -> AsyncIterator[Shop]:
    """A shop with a running worker."""
    async with shop.worker() as shop.running:
        yield shop


class Starts:
    """`temporal workflow start` with whatever a test likes, and what is told of it afterwards."""

    def __init__(self, shop: Shop, cli: TemporalCli) -> None:
        self._shop = shop
        self._cli = cli

    async def start(self, order: str, *arguments: str) -> None:
        """Start `order` with these arguments."""
        where = ("--type", WORKFLOW_TYPE, "--task-queue", self._shop.task_queue, "--workflow-id", order)
        await self._cli.json("start", *where, *arguments)

    async def start_with(self, order: str, value: Any) -> None:
        """Start `order` with one input."""
        await self.start(order, "--input", json.dumps(value))

    async def fails(self, order: str, reason: Reason, naming: str) -> None:
        """The order fails at once; reason and fault stand in `describe`, `show` and the view, and no task failed."""
        handle = self._shop.client.get_workflow_handle(order)
        described = await at_stage(handle, Stage.FAILED, AT_ONCE)
        assert described.status is WorkflowExecutionStatus.FAILED
        assert described.typed_search_attributes.get(REASON) == reason
        for verb in ("describe", "show"):
            page = await self._cli.workflow(verb, "--workflow-id", order)
            assert re.search(rf"Message: failed: {reason} \(.*{naming}", page.out), page.out
        view = (await self._cli.json("query", "--workflow-id", order, "--type", "view"))["queryResult"][0]
        assert (view["stage"], view["reason"]) == ("failed", reason)
        assert re.search(naming, view["detail"])
        assert "WORKFLOW_TASK_FAILED" not in names_of(await events_of(handle))


@pytest.fixture
def starts(shop: Shop, cli: TemporalCli) -> Starts:
    """Starts at that shop."""
    return Starts(shop, cli)


@pytest.mark.parametrize("name", BAD_INPUTS)
async def test_a_start_without_an_order_fails_at_once_and_names_the_field(name: str, starts: Starts) -> None:
    """T55: any number and kind of inputs; never Running for ever."""
    inputs, naming = BAD_INPUTS[name]
    order = order_of(order_event())
    await starts.start(order, *(part for each in inputs for part in ("--input", each)))
    await starts.fails(order, Reason.INVALID_INPUT, naming)


@pytest.mark.parametrize("encoding", ENCODINGS)
async def test_a_start_that_cannot_be_decoded_fails_at_once(encoding: str, starts: Starts) -> None:
    """T55: whatever its bytes claim to be."""
    order = order_of(order_event())
    await starts.start(order, "--input", "{}", "--input-meta", f"encoding={encoding}")
    await starts.fails(order, Reason.INVALID_INPUT, r"\$")


async def test_an_order_under_an_id_that_is_not_its_events_is_refused(shop: Shop, starts: Starts) -> None:
    """I04: a second run under another id would share the effects' keys; the message says which id is right."""
    event, other = order_event(), order_of(order_event())
    await starts.start_with(other, OrderInput(event=event, definition=shop.definition).model_dump(mode="json"))
    await starts.fails(other, Reason.IDENTITY_MISMATCH, f"this event is the order {order_of(event)}; start it under")
    assert shop.world.log() == []


async def test_a_start_cannot_bring_a_state_with_it(shop: Shop, starts: Starts) -> None:
    """A forged state could say that everything is approved."""
    event = order_event()
    state = OrderState(event=event, definition=shop.definition, admitted=True)
    forged = OrderInput(event=event, definition=shop.definition, carried=state)
    await starts.start_with(order_of(event), forged.model_dump(mode="json"))
    await starts.fails(order_of(event), Reason.INVALID_INPUT, r"\$\.carried: ")
    assert shop.world.log() == []
