"""Decisions that count: how many people it takes, and what each may still say."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.testing import WorkflowEnvironment

from orderflow.domain.approvals import Decision, Refusal
from orderflow.domain.orders import Reason, Stage
from tests.support.shop import Shop, open_for_business, order_event
from tests.workflow.decisions import DOORS, accepted, asked, charges, completes, fails, is_refused, refusal, through


def _takes_two(value: dict[str, Any]) -> None:
    value["steps"][3]["approval"]["approvers"] = 2


@pytest.fixture
async def shop_of_two(env: WorkflowEnvironment, tmp_path: Path) -> AsyncIterator[Shop]:
    """A shop where two people must approve a charge."""
    async with open_for_business(env.client, tmp_path, change=_takes_two) as opened:
        yield opened


@pytest.mark.parametrize("door", DOORS)
async def test_an_approval_completes_the_order(shop: Shop, door: str) -> None:
    """The good case of A01, through each door: one charge, and the trail says who approved."""
    order = await shop.start()
    answer = await through(door, order, await order.token())
    assert answer is None or answer.accepted
    await completes(order)
    assert accepted(await order.view()) == [(Decision.APPROVE, "alice")]


@pytest.mark.parametrize("door", DOORS)
async def test_a_rejection_ends_the_order_and_takes_its_reservation_back(shop: Shop, door: str) -> None:
    """A person says no: that is a refusal with a name, not a failure of a step."""
    order = await shop.start()
    answer = await through(door, order, await order.token("bob", Decision.REJECT))
    assert answer is None or answer.accepted
    await fails(order, Reason.APPROVAL_REJECTED)
    assert accepted(await order.view()) == [(Decision.REJECT, "bob")]


@pytest.mark.parametrize("door", DOORS)
async def test_an_order_that_takes_two_people_waits_for_the_second(shop_of_two: Shop, door: str) -> None:
    """DESIGN section 7: the first approval is kept and shown; only the second lets the charge begin."""
    order = await shop_of_two.start()
    await through(door, order, await order.token("alice"))
    view = await order.when(lambda view: view.request and view.request.approved_by)
    assert view.request is not None
    assert (view.stage, view.request.approved_by, charges(order)) == (Stage.AWAITING_APPROVAL, ("alice",), [])
    await through(door, order, await order.token("bob"))
    await completes(order)
    assert accepted(await order.view()) == [(Decision.APPROVE, "alice"), (Decision.APPROVE, "bob")]


@pytest.mark.parametrize("door", DOORS)
async def test_one_person_counts_once(shop_of_two: Shop, door: str) -> None:
    """A01: neither the same message again nor another one of the same person makes two people of one."""
    order = await shop_of_two.start()
    first = await order.token("alice")
    assert (await order.decide(first)).accepted
    await is_refused(order, door, first, Refusal.REPLAYED)
    await is_refused(order, door, await order.token("alice"), Refusal.ALREADY_DECIDED)
    await is_refused(order, door, await order.token("dana"), Refusal.REQUESTER_IS_APPROVER)
    await order.approve("bob")
    await completes(order)


async def test_one_of_two_people_can_reject(shop_of_two: Shop) -> None:
    """A rejection is final however many have approved; who has approved cannot take that back."""
    order = await shop_of_two.start()
    await order.approve("alice")
    await is_refused(order, "update", await order.token("alice", Decision.REJECT), Refusal.ALREADY_DECIDED)
    await order.send(await order.token("bob", Decision.REJECT))
    await fails(order, Reason.APPROVAL_REJECTED)


def _by_anybody(value: dict[str, Any]) -> None:
    value["steps"][3]["approval"]["requester_may_approve"] = True


@pytest.mark.parametrize(("requested_by", "who"), [("dana", "dana"), (None, "alice")])
async def test_the_requester_may_approve_where_the_definition_says_so(
    env: WorkflowEnvironment, tmp_path: Path, requested_by: str | None, who: str
) -> None:
    """A02: then an order of nobody can be approved too."""
    async with open_for_business(env.client, tmp_path, change=_by_anybody) as shop:
        order = await shop.start(order_event(requested_by=requested_by))
        await order.approve(who)
        await completes(order)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("first", Decision)
async def test_the_first_decision_is_final(shop: Shop, first: Decision, door: str) -> None:
    """DESIGN section 7: once decided, neither the opposite nor the same again has any effect."""
    gates = [shop.hold("charge"), shop.hold("release")]
    order = await shop.start()
    request = await asked(order)
    assert (await order.decide(shop.sign(request, "alice", first))).accepted
    await order.when(lambda _: any(gate.reached.is_set() for gate in gates))
    for decision in Decision:
        assert await refusal(order, door, shop.sign(request, "bob", decision)) is Refusal.NO_SUCH_REQUEST
    for gate in gates:
        gate.open()
    await (completes(order) if first is Decision.APPROVE else fails(order, Reason.APPROVAL_REJECTED))
