"""Whatever is not exactly a valid approval of exactly this request: refused with its reason, and nothing else happens.

Through both doors (A01, A02, T15), and afterwards a valid approval completes the order with one charge.
"""

import itertools
from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest
from temporalio.client import WorkflowHandle
from temporalio.common import WorkflowIDReusePolicy

from orderflow.contracts import OrderInput
from orderflow.domain.approvals import ApprovalRequest, Binding, Claims, Decision, Refusal, mismatch, read_claims
from orderflow.domain.orders import Reason, Stage
from orderflow.workflows import OrderWorkflow
from tests.approval_requests import base64url, compact
from tests.support.shop import Order, Shop, order_event
from tests.workflow.decisions import DOORS, asked, completes, fails, is_refused, refusal

Forge = Callable[[Shop, ApprovalRequest], str]


def _approved_over_the_head_of(who: str) -> Forge:
    """What `who` signed was a rejection."""

    def forge(shop: Shop, request: ApprovalRequest) -> str:
        header, payload, signature = shop.sign(request, who, Decision.REJECT).split(".")
        claims = read_claims(f"{header}.{payload}.{signature}")
        assert isinstance(claims, Claims)
        approving = claims.model_copy(update={"decision": Decision.APPROVE}).model_dump_json()
        return f"{header}.{base64url(approving.encode())}.{signature}"

    return forge


def _unsigned(shop: Shop, request: ApprovalRequest) -> str:
    claims = read_claims(shop.sign(request))
    assert isinstance(claims, Claims)
    return compact({"alg": "none"}, claims.model_dump(mode="json"))


FORGED: Final[Mapping[str, tuple[Forge, Refusal]]] = {
    "not_signed": (_unsigned, Refusal.MALFORMED),
    "changed_after_it_was_signed": (_approved_over_the_head_of("alice"), Refusal.BAD_SIGNATURE),
    "signed_in_the_name_of_another": (lambda shop, on: shop.sign(on, "bob", approver="alice"), Refusal.WRONG_APPROVER),
    "by_nobody_known": (lambda shop, on: shop.sign(on, "eve"), Refusal.UNKNOWN_KEY),
    "by_a_revoked_key": (lambda shop, on: shop.sign(on, "rita"), Refusal.REVOKED_KEY),
    "by_somebody_without_the_role": (lambda shop, on: shop.sign(on, "carol"), Refusal.ROLE_NOT_HELD),
    "by_the_one_who_ordered": (lambda shop, on: shop.sign(on, "dana"), Refusal.REQUESTER_IS_APPROVER),
    "signed_in_the_future": (lambda shop, on: shop.sign(on, iat=on.bound.expires_at), Refusal.NOT_YET_VALID),
    "expired_by_its_own_terms": (
        lambda shop, on: shop.sign(on, expires_at=int(on.opened_at.timestamp()) - 1),
        Refusal.EXPIRED,
    ),
    "rejected_by_somebody_without_the_role": (
        lambda shop, on: shop.sign(on, "carol", Decision.REJECT),
        Refusal.ROLE_NOT_HELD,
    ),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("field", Binding.model_fields)
async def test_an_approval_of_anything_but_this_request_is_refused(shop: Shop, field: str, door: str) -> None:
    """A01: genuinely signed, but one bound field is another; each has a reason, and the right one still completes."""
    order = await shop.start()
    request = await asked(order)
    token = shop.sign(request, **{field: _another(getattr(request.bound, field))})
    claims = read_claims(token)
    assert isinstance(claims, Claims)
    reason = mismatch(request, claims)
    assert reason is not None
    await is_refused(order, door, token, reason)
    await order.approve()
    await completes(order)


def _another(value: Any) -> Any:
    return value + 1 if isinstance(value, int) else f"{value}-2"


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("forged", FORGED)
async def test_a_decision_of_somebody_who_may_not_make_it_is_refused(shop: Shop, forged: str, door: str) -> None:
    """A01, A02: every bound field is right, but not who signed it, or when; then somebody who may approves."""
    order = await shop.start()
    request = await asked(order)
    forge, reason = FORGED[forged]
    await is_refused(order, door, forge(shop, request), reason)
    await order.approve()
    await completes(order)


@pytest.mark.parametrize("door", DOORS)
async def test_an_approval_of_another_order_is_refused(shop: Shop, door: str) -> None:
    """A01, A02: same amount, same customer, same approver; it opens the order that it was signed for."""
    other = await shop.start()
    token = await other.token()
    order = await shop.start()
    await is_refused(order, door, token, Refusal.WRONG_ORDER)
    await other.send(token)
    await completes(other)
    await order.approve()
    await completes(order)


@pytest.mark.parametrize("door", DOORS)
async def test_an_approval_of_an_earlier_run_is_refused(shop: Shop, door: str) -> None:
    """T12: the same order under the same id, run again; what was charged before is adopted once it is approved anew."""
    order = await shop.start()
    old = await order.token()
    await order.send(old)
    await completes(order)
    again = await _run_again(order)
    await again.until(Stage.AWAITING_APPROVAL)
    await is_refused(again, door, old, Refusal.NO_SUCH_REQUEST)
    await again.approve()
    await completes(again)


async def _run_again(order: Order) -> Order:
    handle: WorkflowHandle[Any, Any] = await order.shop.client.start_workflow(
        OrderWorkflow.run,
        OrderInput(event=order.event, definition=order.definition),
        id=order.id,
        task_queue=order.shop.task_queue,
        id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
    )
    again = Order(order.shop, handle, order.event, order.definition)
    order.shop.orders.append(again)
    return again


@pytest.mark.parametrize("door", DOORS)
async def test_nobody_can_approve_an_order_that_nobody_placed(shop: Shop, door: str) -> None:
    """A02: without a requester nobody is known to be another person; the order can only be rejected, or expire."""
    order = await shop.start(order_event(requested_by=None))
    for who in ("alice", "bob"):
        await is_refused(order, door, await order.token(who), Refusal.REQUESTER_UNKNOWN)
    await order.send(await order.token(decision=Decision.REJECT))
    await fails(order, Reason.APPROVAL_REJECTED)


async def test_every_refusal_stays_visible(shop: Shop) -> None:
    """T15: the view lists them all, oldest first, each with its door; it still does when the order has completed."""
    order = await shop.start()
    request = await asked(order)
    sent = [(door, forge, reason) for door, (forge, reason) in zip(itertools.cycle(DOORS), FORGED.values())]
    for door, forge, reason in sent:
        assert await refusal(order, door, forge(shop, request)) is reason
    await order.approve()
    await completes(order)
    view = await order.view()
    assert [(each.door, each.reason) for each in view.refusals] == [(door, reason) for door, _, reason in sent]
    assert view.refused_total == len(sent)
