"""A check that leaves the decision to people: the stage `manual_review`, and what follows from it."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.testing import WorkflowEnvironment

from orderflow.domain.approvals import Decision, Refusal
from orderflow.domain.orders import Reason, Stage, StepState
from tests.definitions import SHIPPED
from tests.support.shop import Order, Shop, open_for_business
from tests.workflow.clock import Clock
from tests.workflow.decisions import completes, fails, is_refused


async def _in_review(shop: Shop) -> Order:
    """An order whose risk check asks for a person."""
    shop.fault("manual_review", "check")
    order = await shop.start()
    view = await order.until(Stage.MANUAL_REVIEW)
    assert view.steps[2].state is StepState.IN_REVIEW
    return order


async def test_a_review_that_is_passed_lets_the_order_go_on_to_its_approval(shop: Shop) -> None:
    """Reviewed by one person, the charge is still to be approved, and the review's decision does not do for that."""
    order = await _in_review(shop)
    reviewed = await order.token("alice")
    await order.send(reviewed)
    view = await order.until(Stage.AWAITING_APPROVAL)
    assert view.steps[2].state is StepState.DONE
    await is_refused(order, "update", reviewed, Refusal.NO_SUCH_REQUEST)
    await order.approve("alice")
    await completes(order)


async def test_a_review_that_is_not_passed_takes_everything_back(shop: Shop) -> None:
    """A reviewer says no."""
    order = await _in_review(shop)
    await order.send(await order.token("bob", Decision.REJECT))
    await fails(order, Reason.APPROVAL_REJECTED)


async def test_a_review_that_nobody_does_takes_everything_back(clock: Clock, shop: Shop) -> None:
    """T10: its expiry is that of the review, not of the approval that would have followed."""
    order = await _in_review(shop)
    await clock.skip(timedelta(days=1, minutes=1))
    await fails(order, Reason.APPROVAL_EXPIRED)


async def test_an_order_cancelled_in_review_takes_everything_back(shop: Shop) -> None:
    """T01."""
    order = await _in_review(shop)
    await order.cancel()
    await fails(order, Reason.CANCELLED)


@pytest.mark.parametrize("who", ["carol", "dana"])
async def test_who_may_not_approve_may_not_review(shop: Shop, who: str) -> None:
    """A02: neither without the role nor one's own order."""
    refusals = {"carol": Refusal.ROLE_NOT_HELD, "dana": Refusal.REQUESTER_IS_APPROVER}
    order = await _in_review(shop)
    await is_refused(order, "signal", await order.token(who), refusals[who])


def _tell_after_the_check(value: dict[str, Any]) -> None:
    """Let the message go out after the risk check alone, within an hour."""
    notify = SHIPPED["steps"][4] | {"depends_on": ["risk_check"], "deadline": "PT1H"}
    value["steps"] = [*value["steps"][:3], notify]


async def test_a_deadline_after_a_review_counts_from_the_review(
    env: WorkflowEnvironment, clock: Clock, tmp_path: Path
) -> None:
    """The step became ready when the reviewer let the order pass, three hours after the check."""
    async with open_for_business(env.client, tmp_path, change=_tell_after_the_check) as shop:
        order = await _in_review(shop)
        await clock.skip(timedelta(hours=3))
        await order.approve()
        ending = await order.ending()
        assert (ending.view.stage, ending.view.steps[3].state) == (Stage.COMPLETED, StepState.DONE)
        assert len(shop.world.messages(order.id)) == 1
