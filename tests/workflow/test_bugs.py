"""A bug of our own never ends an order and never hides: its workflow task fails, and after the fix it goes on."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest
from temporalio import workflow
from temporalio.api.enums.v1 import EventType

from orderflow import dispatch
from orderflow.domain.orders import Reason, Stage
from orderflow.doors import Doorkeeper, Inbox
from orderflow.progress import Progress
from orderflow.saga import Saga
from orderflow.stepping import Stepping
from tests.support.shop import Order, Shop

PLACES: Final[Sequence[tuple[Any, str]]] = [
    (Inbox, "receive"),
    (Inbox, "_first"),
    (Doorkeeper, "_decide"),
    (Doorkeeper, "_accept"),
    (Progress, "mark"),
    (Progress, "change_stage"),
    (Progress, "stop"),
    (Stepping, "carry_out"),
    (Stepping, "_succeed"),
    (Stepping, "_fail"),
    (Saga, "register"),
    (Saga, "compensate"),
    (Saga, "take_off"),
    (dispatch, "verify"),
    (dispatch, "perform"),
    (dispatch, "read_failure"),
    (dispatch, "undo"),
]
"""Where workflow code may have a bug: all of it runs after the approval, and none of it in a query."""


def broken_once(works: Callable[..., Any]) -> Callable[..., Any]:
    """A function with a bug that is mended before anybody tries again.

    What only replays is passed over: the SDK runs workflow code once more when it evicts an order from its cache, and
    nobody hears what is raised there.
    """
    struck = False

    def breaks(*arguments: Any, **named: Any) -> Any:
        nonlocal struck
        if not struck and not workflow.unsafe.is_replaying():
            struck = True
            raise ZeroDivisionError("a bug of ours")
        return works(*arguments, **named)

    return breaks


async def shows_our_bug(order: Order) -> bool:
    """Whether the history has a failed workflow task with our error: what `orderflow show` looks at."""
    failed = [
        event.workflow_task_failed_event_attributes.failure
        for event in (await order.handle.fetch_history()).events
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
    ]
    told = [(failure.application_failure_info.type, failure.message) for failure in failed]
    return told == [("ZeroDivisionError", "a bug of ours")]


@pytest.mark.parametrize(("where", "name"), PLACES, ids=[f"{where.__name__}.{name}" for where, name in PLACES])
async def test_a_bug_shows_and_the_mended_order_goes_on(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, where: Any, name: str
) -> None:
    """T16: in the main course, in a handler, in the doorkeeper or in the saga alike; one charge, one refund."""
    order = await shop.start()
    order.exempt.add("I-5")
    shop.fault("decline", "notify", order.id)
    token = await order.token()
    monkeypatch.setattr(where, name, broken_once(getattr(where, name)))
    await order.send(token)
    await order.seen(shows_our_bug)
    ending = await order.ending()
    assert (ending.view.stage, ending.view.reason) == (Stage.FAILED_COMPENSATED, Reason.DECLINED)
    books = await order.books()
    assert (len(books.done("charge")), len(books.undone("charge"))) == (1, 1)
