"""A bug of our own keeps the order alive and shows where people look; after the fix the order goes on (T16)."""

from collections.abc import Callable
from typing import Any

import pytest
from temporalio.api.enums.v1 import PendingWorkflowTaskState
from temporalio.client import WorkflowExecutionStatus

from orderflow.admission import read_start
from orderflow.dispatch import Failure
from orderflow.domain.orders import Stage
from orderflow.doors import Doorkeeper, Inbox
from orderflow.progress import Progress
from orderflow.saga import Saga
from orderflow.stepping import Stepping
from tests.support.shop import Order, Shop


def bug(*_: Any, **__: Any) -> Any:
    """What stands in the place of working code."""
    raise ZeroDivisionError("a bug of ours")


PLACES = [(Stepping, "carry_out"), (Stepping, "_succeed"), (Progress, "mark"), (Doorkeeper, "_decide"), (Inbox, "receive"), (Progress, "change_stage")]


async def is_failing(order: Order) -> bool:
    """Whether Temporal shows a workflow task that is being retried, with our error."""
    books = await order.handle.fetch_history()
    described = await order.handle.describe()
    print(described.raw_description.pending_workflow_task, [e.workflow_task_failed_event_attributes.failure.message for e in books.events if e.HasField("workflow_task_failed_event_attributes")])
    failures = [e.workflow_task_failed_event_attributes.failure.message for e in books.events if e.HasField("workflow_task_failed_event_attributes")]
    return any("a bug of ours" in f for f in failures)


@pytest.mark.parametrize(("where", "name"), PLACES)
async def test_x(shop: Shop, monkeypatch: pytest.MonkeyPatch, where: type, name: str) -> None:
    with monkeypatch.context() as patched:
        order = await shop.start()
        order.exempt.add("I-5")
        if where in (Doorkeeper, Inbox):
            await order.until(Stage.AWAITING_APPROVAL)
            token = await order.token()
            patched.setattr(where, name, bug)
            await order.send(token)
        else:
            patched.setattr(where, name, bug)
        await order.seen(is_failing)
        assert (await order.handle.describe()).status is WorkflowExecutionStatus.RUNNING
    if where not in (Doorkeeper, Inbox):
        await order.approve()
    ending = await order.ending()
    assert ending.view.stage is Stage.COMPLETED
    assert len((await order.books()).done("charge")) == 1
