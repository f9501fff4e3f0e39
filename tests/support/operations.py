"""What operators do in tests: sign an operation on what stands of an order, and hand it over."""

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any

from orderflow.contracts import OPERATE_UPDATE, DoorAnswer, OrderView
from orderflow.domain.approvals import Refusal
from orderflow.domain.operations import Operation, OperationClaims, Resolution
from orderflow.domain.orders import Stage, Standing
from orderflow.signing import operation_on
from tests.support.observing import events_of, names_of
from tests.support.shop import Order, Shop


async def left_standing(shop: Shop, refusals: int = 1) -> Order:
    """An order whose notice failed, and whose refund is refused so many times: its charge of 900 stands."""
    shop.fault("decline", "notify")
    shop.fault("decline", "refund", times=refusals)
    order = await shop.start()
    await order.approve()
    await waits_for_people(order)
    return order


async def waits_for_people(order: Order) -> None:
    """Wait until the queue was told what stands and nothing is under way: time-skipping servers lose updates then."""
    await order.until(Stage.COMPENSATION_FAILED)
    await order.seen(_is_at_rest)


async def _is_at_rest(order: Order) -> bool:
    names = names_of(await events_of(order.handle))
    ended = names.count("ACTIVITY_TASK_COMPLETED") + names.count("ACTIVITY_TASK_FAILED")
    told = bool(await order.shop.ledger.reviews_of(order.id))
    return told and names.count("ACTIVITY_TASK_SCHEDULED") == ended and "WORKFLOW_TASK_COMPLETED" in names[-3:]


def queued(view: OrderView) -> bool:
    """Whether everything that stands has its amount."""
    return all(left.amount_minor is not None for left in view.standing)


async def standing(order: Order, step: str = "charge") -> Standing:
    """What stands of a step."""
    return next(left for left in (await order.view()).standing if left.step == step)


async def time_of(order: Order) -> datetime:
    """What time it was for the order just now; its server's clock runs faster than ours."""
    return (await order.view()).trail[-1].at


async def claims(
    order: Order, left: Standing, operation: Operation, who: str = "carol", outcome: Resolution | None = None
) -> OperationClaims:
    """What `who` would sign."""
    evidence, now = None if outcome is None else "receipt 17", await time_of(order)
    return operation_on(
        left, order.id, operation, who, now, reason="the bank is back", outcome=outcome, evidence=evidence
    )


async def token_on(
    order: Order, left: Standing, operation: Operation, who: str = "carol", outcome: Resolution | None = None
) -> str:
    """An operation on what somebody takes to stand."""
    return order.shop.keys[who].sign(await claims(order, left, operation, who, outcome))


async def signed(
    order: Order,
    operation: Operation,
    who: str = "carol",
    outcome: Resolution | None = None,
    step: str = "charge",
    changes: Mapping[str, Any] = MappingProxyType({}),
) -> str:
    """An operation on what stands now; `changes` are claims to tamper with before signing."""
    asked = await claims(order, await standing(order, step), operation, who, outcome)
    return order.shop.keys[who].sign(OperationClaims.model_construct(**{**dict(asked), **changes}))


async def operate(order: Order, token: Any, name: str = OPERATE_UPDATE) -> DoorAnswer:
    """Hand an operation over, and give the door's answer."""
    return await order.update(name, {"operation": token})


async def is_refused(order: Order, token: Any, reason: Refusal) -> None:
    """The operation is refused for this reason, and nothing that stands changes."""
    before = await order.view()
    answer = await operate(order, token)
    after = await order.view()
    assert (answer.accepted, answer.refusal) == (False, reason)
    assert (after.standing, after.stage, after.operations) == (before.standing, before.stage, ())
