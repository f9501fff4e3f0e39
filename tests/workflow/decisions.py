"""Decisions through either door: what became of one, as the view shows it, and what it left as it was."""

from typing import Any, Final

from orderflow.contracts import APPROVE_SIGNAL, DECIDE_UPDATE, DoorAnswer, OrderView
from orderflow.domain.approvals import ApprovalRequest, Refusal
from orderflow.domain.orders import Stage
from tests.support.shop import Order

DOORS: Final = {"signal": APPROVE_SIGNAL, "update": DECIDE_UPDATE}
"""Each door, and the name that it listens to."""


async def asked(order: Order) -> ApprovalRequest:
    """The open request, as soon as there is one."""
    request = (await order.when(lambda view: view.request is not None)).request
    assert request is not None
    return request


async def refusal(order: Order, door: str, token: str) -> Refusal:
    """Send a decision that must be refused; gives the reason in the view, which an update has to answer too."""
    before = (await order.view()).refused_total
    answer = None
    if door == "signal":
        await order.send(token)
    else:
        answer = await order.decide(token)
    view = await order.when(lambda view: view.refused_total > before)
    shown = view.refusals[-1]
    assert (view.refused_total, shown.door, shown.name) == (before + 1, door, DOORS[door])
    assert answer in (None, DoorAnswer(accepted=False, refusal=shown.reason, stage=view.stage))
    return shown.reason


def unmoved(view: OrderView) -> dict[str, Any]:
    """All of a view that no refused decision may change (T15)."""
    return view.model_dump(exclude={"refusals", "refused_total"})


async def is_refused(order: Order, door: str, token: str, reason: Refusal) -> None:
    """A decision is refused for this reason, and that is all that it comes to: neither state nor money moves (T15)."""
    await asked(order)
    before, charged = await order.view(), charges(order)
    assert await refusal(order, door, token) is reason
    assert (unmoved(await order.view()), charges(order)) == (unmoved(before), charged)


def charges(order: Order) -> list[object]:
    """How the payment provider answered, each time that it was asked to charge this order."""
    return [line["outcome"] for line in order.lines() if line["operation"] == "charge"]


async def completes(order: Order) -> None:
    """The order ends completed, and paid once."""
    assert (await order.result()).stage is Stage.COMPLETED
    assert (charges(order), order.shop.world.net_charged(order.id)) == (["done"], order.event.data.total_minor)


async def fails(order: Order, reason: str) -> None:
    """The order ends for this reason, its reservation taken back, and it never asked for money."""
    ending = await order.ending()
    assert (ending.view.stage, ending.view.reason) == (Stage.FAILED_COMPENSATED, reason)
    assert (charges(order), order.shop.world.reserved(order.id)) == ([], {})
