"""The approval is verified once more where the money is taken: what does not hold there moves nothing (A01, A02)."""

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment, WorkflowEnvironment

from orderflow.contracts import WORKFLOW_TYPE, StepRequest, StepResult
from orderflow.domain.approvals import ApprovalRequest, Binding, Claims, Decision, Refusal, mismatch, read_claims
from orderflow.domain.errors import ErrorType
from orderflow.domain.orders import Reason
from orderflow.signing import KeyRegistry, PublicKey
from tests.support.shop import Order, Shop, open_shop, order_event
from tests.workflow.clock import Clock
from tests.workflow.decisions import another, asked, charges, completes, fails
from tests.workflow.late_payments import with_payments, without_payments

Tamper = Callable[[Shop, ApprovalRequest], dict[str, Any]]


def _signed(*who: str, decision: Decision = Decision.APPROVE, **claims: Any) -> Tamper:
    """Other decisions than those that count."""
    return lambda shop, on: {"accepted": tuple(shop.sign(on, name, decision, **claims) for name in who)}


TAMPERED: Final[Mapping[str, tuple[Tamper, Refusal]]] = {
    "nobody_approved": (lambda shop, on: {"accepted": ()}, Refusal.TOO_FEW_APPROVERS),
    "nobody_is_needed": (lambda shop, on: {"accepted": (), "approvers": 0}, Refusal.TOO_FEW_APPROVERS),
    "another_is_needed": (lambda shop, on: {"approvers": 2}, Refusal.TOO_FEW_APPROVERS),
    "one_person_twice": (
        lambda shop, on: {"approvers": 2, "accepted": (shop.sign(on), shop.sign(on))},
        Refusal.TOO_FEW_APPROVERS,
    ),
    "no_decision": (lambda shop, on: {"accepted": ("a.b.c",)}, Refusal.MALFORMED),
    "rejected": (_signed("bob", decision=Decision.REJECT), Refusal.ALREADY_DECIDED),
    "in_the_name_of_another": (_signed("bob", approver="alice"), Refusal.WRONG_APPROVER),
    "by_nobody_known": (_signed("eve"), Refusal.UNKNOWN_KEY),
    "by_a_revoked_key": (_signed("rita"), Refusal.REVOKED_KEY),
    "without_the_role": (_signed("carol"), Refusal.ROLE_NOT_HELD),
    "by_the_one_who_ordered": (_signed("dana"), Refusal.REQUESTER_IS_APPROVER),
    "one_good_one_bad": (_signed("alice", "carol"), Refusal.ROLE_NOT_HELD),
    "another_requester": (lambda shop, on: {"requester": "zoe"}, Refusal.WRONG_APPROVER),
    "another_amount_shown": (lambda shop, on: {"amount_minor": 1}, Refusal.WRONG_PAYLOAD),
    "another_currency_shown": (lambda shop, on: {"currency": "USD"}, Refusal.WRONG_PAYLOAD),
}


@pytest.fixture
async def order(shop: Shop) -> AsyncIterator[Order]:
    """An order that waits for its approval; after the test it gets one, and is charged once."""
    order = await shop.start()
    yield order
    await order.approve()
    await completes(order)


async def approved(order: Order) -> ApprovalRequest:
    """What the workflow would send to the activity if alice approved now."""
    request = await asked(order)
    token = order.shop.sign(request)
    claims = read_claims(token)
    assert isinstance(claims, Claims)
    return request.with_approval(claims, token, request.opened_at)


async def charge(order: Order, approval: ApprovalRequest, at: datetime | None = None, **changes: Any) -> StepResult:
    """Call the activity that charges, as this order's workflow, at this time."""
    request = StepRequest(workflow_id=order.id, step="charge", activity="charge_payment", event=order.event)
    activities = {activity._Definition.must_from_callable(each).name: each for each in order.shop.activities.all()}
    here = ActivityEnvironment()
    here.info = replace(
        here.info,
        workflow_id=order.id,
        workflow_type=WORKFLOW_TYPE,
        start_to_close_timeout=timedelta(seconds=10),
        started_time=at or approval.opened_at,
    )
    tampered = request.model_copy(update={"approval": approval} | changes)
    result: StepResult = await here.run(activities[request.activity], tampered)
    return result


async def is_refused(order: Order, approval: ApprovalRequest, refusal: Refusal, **changes: Any) -> None:
    """The charge is refused for good, for this reason; neither the provider nor the ledger hears of it."""
    with pytest.raises(ApplicationError) as refused:
        await charge(order, approval, **changes)
    assert (refused.value.type, refused.value.non_retryable) == (ErrorType.APPROVAL_REFUSED, True)
    assert list(refused.value.details) == [refusal]
    await _is_untouched(order)


async def _is_untouched(order: Order) -> None:
    assert charges(order) == []
    assert "charge" not in {record.step for record in await order.shop.ledger.effects(order.id)}


async def test_what_was_approved_is_charged(order: Order) -> None:
    """The good case: without it the refusals below would prove nothing."""
    result = await charge(order, await approved(order))
    assert (result.amount_minor, charges(order)) == (order.event.data.total_minor, ["done"])


@pytest.mark.parametrize("tampered", TAMPERED)
async def test_decisions_that_do_not_suffice_charge_nothing(order: Order, tampered: str) -> None:
    """A02: whatever the request says of who approved, the signatures have to say it too."""
    tamper, refusal = TAMPERED[tampered]
    approval = await approved(order)
    await is_refused(order, approval.model_copy(update=tamper(order.shop, approval)), refusal)


@pytest.mark.parametrize("field", Binding.model_fields)
async def test_a_decision_on_other_terms_charges_nothing(order: Order, field: str) -> None:
    """A01: any bound field that is not what was signed, with the reason that the doors give for it."""
    approval = await approved(order)
    value = another(getattr(approval.bound, field))
    tampered = approval.model_copy(update={"bound": approval.bound.model_copy(update={field: value})})
    claims = read_claims(approval.accepted[0])
    assert isinstance(claims, Claims)
    refusal = mismatch(tampered, claims)
    assert refusal is not None
    await is_refused(order, tampered, refusal)


async def test_an_approval_of_another_order_charges_nothing(shop: Shop, order: Order) -> None:
    """A01: however good it is where it belongs."""
    await asked(order)
    other = await shop.start()
    await is_refused(order, await approved(other), Refusal.WRONG_ORDER)


async def test_an_approval_of_another_content_charges_nothing(order: Order) -> None:
    """A01: the same order, but not the amount that was signed."""
    items = [{"sku": "tea", "quantity": 2, "unit_price_minor": 4500}]
    dearer = order_event(event_id=order.event.id, items=items, total_minor=9000)
    await is_refused(order, await approved(order), Refusal.WRONG_PAYLOAD, event=dearer)


async def test_a_charge_after_its_time_is_not_made(order: Order) -> None:
    """A01: one second past `charge_by`; that is no refusal of the decision, so that it can be asked for anew."""
    approval = await approved(order)
    with pytest.raises(ApplicationError) as closed:
        await charge(order, approval, approval.charge_by + timedelta(seconds=1))
    assert closed.value.type == ErrorType.CHARGE_WINDOW_CLOSED
    await _is_untouched(order)


def _revoked(key: PublicKey) -> list[PublicKey]:
    return [key.model_copy(update={"revoked": True})]


def _without_the_role(key: PublicKey) -> list[PublicKey]:
    return [key.model_copy(update={"roles": ("operator",)})]


def _removed(_: PublicKey) -> list[PublicKey]:
    return []


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        (_revoked, Refusal.REVOKED_KEY),
        (_without_the_role, Refusal.ROLE_NOT_HELD),
        (_removed, Refusal.UNKNOWN_KEY),
    ],
)
async def test_who_may_no_longer_approve_when_it_is_charged_has_not_approved(
    env: WorkflowEnvironment,
    clock: Clock,
    tmp_path: Path,
    change: Callable[[PublicKey], list[PublicKey]],
    refusal: Refusal,
) -> None:
    """A02: accepted at the door; before the charge begins the approver's key loses what it needs."""
    async with open_shop(env.client, tmp_path) as shop:
        async with without_payments(shop) as (order, _, _):
            pass
        keys = shop.registry.members
        shop.registry = KeyRegistry(now for key in keys for now in (change(key) if key.name == "alice" else [key]))
        async with with_payments(clock, shop):
            await fails(order, Reason.APPROVAL_REFUSED)
            assert (await order.view()).detail == f"charge: {ErrorType.APPROVAL_REFUSED}: {refusal}"
