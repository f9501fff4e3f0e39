"""Decisions of people at both doors: what is refused and why, who counts, what a refusal leaves behind (A01, A02, T10-T15)."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.testing import WorkflowEnvironment

from orderflow.contracts import OrderView
from orderflow.domain.approvals import Binding, Decision, Refusal, Verdict
from orderflow.domain.audit import Told
from orderflow.domain.errors import ProviderUnavailable
from orderflow.domain.orders import Reason, Stage
from orderflow.signing import KeyRegistry
from tests.support.shop import Order, Shop, check_orders, open_for_business, open_shop, order_event
from tests.workflow.clock import Clock

Knock = Callable[[Order, str], Coroutine[Any, Any, Refusal | None]]


async def _by_signal(order: Order, token: str) -> Refusal | None:
    """Send a decision through the signal; what it came to is shown by the view."""
    before = (await order.view()).refused_total
    await order.send(token)
    view = await order.when(lambda view: view.refused_total > before or view.stage is not Stage.AWAITING_APPROVAL)
    return view.refusals[-1].reason if view.refused_total > before else None


async def _by_update(order: Order, token: str) -> Refusal | None:
    """Send a decision through the update; what it came to is the answer."""
    answer = await order.decide(token)
    assert answer.accepted is (answer.refusal is None)
    return answer.refusal


DOORS = pytest.mark.parametrize("knock", [_by_signal, _by_update], ids=["signal", "update"])


@dataclass(frozen=True)
class Bad:
    """A decision that must be refused: whose key signs it, and which claims differ from what was asked."""

    refusal: Refusal
    who: str = "alice"
    changes: dict[str, Any] = field(default_factory=dict)
    forge: Callable[[str], str] = str


def _other_signature(token: str) -> str:
    header, payload, signature = token.split(".")
    return f"{header}.{payload}.{'A' * len(signature)}"


FLIPPED = {
    "request_id": Bad(Refusal.NO_SUCH_REQUEST, changes={"request_id": "another"}),
    "workflow_id": Bad(Refusal.WRONG_ORDER, changes={"workflow_id": "order-0"}),
    "step": Bad(Refusal.WRONG_STEP, changes={"step": "notify"}),
    "payload_fingerprint": Bad(Refusal.WRONG_PAYLOAD, changes={"payload_fingerprint": "fp1:0"}),
    "definition_name": Bad(Refusal.WRONG_DEFINITION, changes={"definition_name": "other"}),
    "definition_version": Bad(Refusal.WRONG_DEFINITION, changes={"definition_version": "1.0.1"}),
    "definition_fingerprint": Bad(Refusal.WRONG_DEFINITION, changes={"definition_fingerprint": "sha256:0"}),
    "state_version": Bad(Refusal.WRONG_STATE, changes={"state_version": 1}),
    "role": Bad(Refusal.WRONG_ROLE, changes={"role": "operator"}),
    "expires_at": Bad(Refusal.WRONG_TERMS, changes={"expires_at": 4_000_000_000}),
    "charge_by": Bad(Refusal.WRONG_TERMS, changes={"charge_by": 4_000_000_000}),
}
"""One for each bound field (A01)."""

OTHERS = {
    "long_expired": Bad(Refusal.EXPIRED, changes={"expires_at": 1_000_000_000}),
    "from_the_future": Bad(Refusal.NOT_YET_VALID, changes={"iat": 4_000_000_000}),
    "forged_signature": Bad(Refusal.BAD_SIGNATURE, forge=_other_signature),
    "no_signature": Bad(Refusal.MALFORMED, forge=lambda token: token.rpartition(".")[0] + "."),
    "unknown_key": Bad(Refusal.UNKNOWN_KEY, who="eve"),
    "revoked_key": Bad(Refusal.REVOKED_KEY, who="rita"),
    "somebody_elses_name": Bad(Refusal.WRONG_APPROVER, changes={"approver": "bob"}),
    "other_role": Bad(Refusal.ROLE_NOT_HELD, who="carol"),
    "the_requester": Bad(Refusal.REQUESTER_IS_APPROVER, who="dana"),
}
"""Wrong people, times and proofs (A02)."""


def test_each_bound_field_has_a_flip() -> None:
    """A01: a field that is bound and not tried here would be a field that nobody compares."""
    assert FLIPPED.keys() == Binding.model_fields.keys()


@DOORS
@pytest.mark.parametrize("bad", [*FLIPPED.values(), *OTHERS.values()], ids=[*FLIPPED, *OTHERS])
async def test_a_decision_that_is_not_about_this_request_changes_nothing(shop: Shop, knock: Knock, bad: Bad) -> None:
    """A01, A02, T15: refused with its reason, the order as it was; then the right decision completes it, charged once."""
    order = await shop.start()
    before = await order.until(Stage.AWAITING_APPROVAL)
    token = bad.forge(await order.token(bad.who, **bad.changes))
    assert await knock(order, token) is bad.refusal
    assert _apart_from_refusals(await order.view()) == _apart_from_refusals(before)
    assert await knock(order, await order.token()) is None
    assert (await order.ending()).view.stage is Stage.COMPLETED


def _apart_from_refusals(view: OrderView) -> OrderView:
    return view.model_copy(update={"refusals": (), "refused_total": 0})


@DOORS
async def test_who_was_refused_and_who_was_accepted_can_be_read(shop: Shop, knock: Knock) -> None:
    """A01: what was refused, at which door and why, and whose decision counted."""
    order = await shop.start()
    await order.until(Stage.AWAITING_APPROVAL)
    await knock(order, await order.token("dana"))
    await knock(order, await order.token("alice"))
    view = (await order.ending()).view
    [refused] = view.refusals
    assert (refused.door, refused.reason) == (knock.__name__.removeprefix("_by_"), Refusal.REQUESTER_IS_APPROVER)
    [accepted] = [told for told in view.trail if told.told is Told.DECISION_ACCEPTED]
    assert (accepted.subject, accepted.detail) == ("approve", "alice")


async def test_nobody_in_time_means_no(clock: Clock, shop: Shop) -> None:
    """T10: after `expires_at` the order takes everything back, for that reason."""
    order = await shop.start()
    await order.until(Stage.AWAITING_APPROVAL)
    await clock.skip(timedelta(days=1, seconds=1))
    ending = await order.ending()
    assert (ending.view.stage, ending.view.reason) == (Stage.FAILED_COMPENSATED, Reason.APPROVAL_EXPIRED)
    assert shop.world.reserved(order.id) == {}


@DOORS
async def test_a_rejection_takes_everything_back_and_is_final(shop: Shop, knock: Knock) -> None:
    """A01: first valid decision wins; an approval that comes after it is refused."""
    gate = shop.hold("release")
    order = await shop.start()
    await order.until(Stage.AWAITING_APPROVAL)
    approval = await order.token("bob")
    await knock(order, await order.token(decision=Decision.REJECT))
    await order.when(lambda _: gate.reached.is_set())
    assert await _by_update(order, approval) is Refusal.NO_SUCH_REQUEST
    gate.open()
    ending = await order.ending()
    assert (ending.view.stage, ending.view.reason) == (Stage.FAILED_COMPENSATED, Reason.APPROVAL_REJECTED)


@DOORS
async def test_the_same_decision_twice_counts_once(shop: Shop, knock: Knock) -> None:
    """A01: a replayed token is refused, whether or not the first one has done its work."""
    gate = shop.hold("charge")
    order = await shop.start()
    await order.until(Stage.AWAITING_APPROVAL)
    token = await order.token()
    assert await knock(order, token) is None
    await order.when(lambda _: gate.reached.is_set())
    assert await _by_update(order, token) is Refusal.NO_SUCH_REQUEST
    gate.open()
    assert (await order.ending()).view.stage is Stage.COMPLETED


def _two_approvers(value: dict[str, Any]) -> None:
    value["steps"][3]["approval"]["approvers"] = 2


@DOORS
async def test_two_people_have_to_approve_where_two_are_asked_for(
    env: WorkflowEnvironment, tmp_path: Path, knock: Knock
) -> None:
    """A02: the same person does not count twice, with the same token or another one."""
    async with open_for_business(env.client, tmp_path, change=_two_approvers) as shop:
        order = await shop.start()
        await order.until(Stage.AWAITING_APPROVAL)
        first = await order.token("alice")
        await order.send(first)
        view = await order.when(lambda view: view.request is not None and view.request.approved_by)
        assert (view.stage, view.request and view.request.approved_by) == (Stage.AWAITING_APPROVAL, ("alice",))
        assert await knock(order, first) is Refusal.REPLAYED
        assert await knock(order, await order.token("alice")) is Refusal.ALREADY_DECIDED
        assert await knock(order, await order.token("bob")) is None
        assert (await order.ending()).view.stage is Stage.COMPLETED


async def test_one_of_two_approvers_can_reject_after_the_other_approved(
    env: WorkflowEnvironment, tmp_path: Path
) -> None:
    """A02: half an approval is none."""
    async with open_for_business(env.client, tmp_path, change=_two_approvers) as shop:
        order = await shop.start()
        await order.until(Stage.AWAITING_APPROVAL)
        await order.approve("alice")
        await order.when(lambda view: view.request is not None and view.request.approved_by)
        await order.send(await order.token("bob", Decision.REJECT))
        assert (await order.ending()).view.reason is Reason.APPROVAL_REJECTED


async def test_an_order_of_nobody_cannot_be_approved(shop: Shop) -> None:
    """A02: without `requested_by` nobody can be shown to be somebody else; it can still be rejected."""
    order = await shop.start(order_event(requested_by=None))
    await order.until(Stage.AWAITING_APPROVAL)
    assert await _by_update(order, await order.token()) is Refusal.REQUESTER_UNKNOWN
    assert await _by_update(order, await order.token(decision=Decision.REJECT)) is None
    assert (await order.ending()).view.reason is Reason.APPROVAL_REJECTED


def _by_anybody(value: dict[str, Any]) -> None:
    value["steps"][3]["approval"]["requester_may_approve"] = True


@pytest.mark.parametrize(("requested_by", "who"), [("dana", "dana"), (None, "alice")])
async def test_the_requester_may_approve_where_the_definition_says_so(
    env: WorkflowEnvironment, tmp_path: Path, requested_by: str | None, who: str
) -> None:
    """A02: then an order of nobody can be approved too."""
    async with open_for_business(env.client, tmp_path, change=_by_anybody) as shop:
        order = await shop.start(order_event(requested_by=requested_by))
        await order.until(Stage.AWAITING_APPROVAL)
        await order.approve(who)
        assert (await order.ending()).view.stage is Stage.COMPLETED


async def test_a_decision_that_comes_before_its_request_is_not_kept(env: WorkflowEnvironment, tmp_path: Path) -> None:
    """T11: sent before any worker runs; refused, and a later valid one completes the order."""
    async with open_shop(env.client, tmp_path) as shop:
        event = order_event()
        order = await shop.start(event)
        await order.send("a.b.c")
        async with shop.worker() as shop.running:
            another = await shop.start()
            early = await another.token(workflow_id=order.id)
            await order.send(early)
            view = await order.when(lambda view: view.refused_total == 2)
            assert {refused.reason for refused in view.refusals} <= {Refusal.MALFORMED, Refusal.NO_SUCH_REQUEST}
            await order.approve()
            assert (await order.ending()).view.stage is Stage.COMPLETED
            await check_orders(shop)


async def test_a_decision_on_an_earlier_run_is_not_about_this_one(shop: Shop) -> None:
    """T12: the same workflow id is started again; the request has another id, and only one charge is ever made."""
    event = order_event()
    first = await shop.start(event)
    await first.until(Stage.AWAITING_APPROVAL)
    old = await first.token()
    await first.send(old)
    await first.ending()
    shop.orders.remove(first)
    again = await shop.start(event)
    await again.until(Stage.AWAITING_APPROVAL)
    assert await _by_update(again, old) is Refusal.NO_SUCH_REQUEST
    await again.approve()
    assert (await again.ending()).view.stage is Stage.COMPLETED
    assert shop.world.net_charged(again.id) == 900


class _Hiccup(KeyRegistry):
    """A registry whose keys cannot be read when the charge asks for them the first time."""

    def __init__(self, inner: KeyRegistry) -> None:
        super().__init__(inner.members)
        self.asked = 0

    def verify(self, token: str) -> Verdict:
        self.asked += 1
        if self.asked == 2:
            raise ProviderUnavailable("the keys cannot be read now")
        return super().verify(token)


def _one_hour(value: dict[str, Any]) -> None:
    charge = value["steps"][3]
    charge["approval"] |= {"expires_in": "PT1H", "charge_within": "PT1H"}
    charge["retry"] |= {"initial_interval": "PT2H", "maximum_interval": "PT2H"}


async def test_a_charge_that_was_not_begun_in_time_is_asked_for_anew(
    env: WorkflowEnvironment, clock: Clock, tmp_path: Path
) -> None:
    """A01: past `charge_by` and never claimed: a new request, which the old approval does not answer."""
    async with open_shop(env.client, tmp_path, change=_one_hour) as shop:
        shop.registry = _Hiccup(shop.registry)
        async with shop.worker() as shop.running:
            order = await shop.start()
            before = await order.until(Stage.AWAITING_APPROVAL)
            old = await order.token()
            await order.send(old)
            await order.until(Stage.RUNNING)
            await clock.skip(timedelta(hours=2, minutes=5))
            after = await order.when(lambda view: view.stage is Stage.AWAITING_APPROVAL)
            assert before.request is not None and after.request is not None
            assert after.request.bound.request_id != before.request.bound.request_id
            assert after.request.bound.charge_by > before.request.bound.charge_by
            assert await _by_update(order, old) is Refusal.NO_SUCH_REQUEST
            await order.approve("bob")
            assert (await order.ending()).view.stage is Stage.COMPLETED
            await check_orders(shop)


