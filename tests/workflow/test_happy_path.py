"""An order that runs its course: what is done outside, what the view shows, how the end is told."""

from orderflow.domain.audit import Told
from orderflow.domain.orders import Outcome, Stage, StepState
from tests.support.shop import Order, Shop


async def _completed(shop: Shop) -> Order:
    order = await shop.start()
    await order.approve()
    await order.result()
    return order


async def test_an_order_runs_from_reservation_to_notification(shop: Shop) -> None:
    """Stock and risk side by side, then approval, money and message: each once, in the order of the definition."""
    order = await _completed(shop)
    done = [str(line["operation"]) for line in order.lines() if line["outcome"] == "done"]
    assert (sorted(done[:2]), done[2:]) == (["check", "reserve"], ["charge", "notify"])
    assert shop.world.net_charged(order.id) == 900
    assert shop.world.reserved(order.id) == {"tea": 2}
    assert len(shop.world.messages(order.id)) == 1


async def test_the_outcome_is_the_same_in_the_result_and_in_the_view(shop: Shop) -> None:
    """T21: whoever asks, in whichever way, is told the same; each step has the provider's own reference."""
    order = await _completed(shop)
    outcome = Outcome.model_validate(await order.result())
    assert outcome == (await order.view()).outcome
    assert (outcome.stage, outcome.reason, outcome.standing, outcome.notes) == (Stage.COMPLETED, None, (), ())
    assert [record.step for record in outcome.steps] == [step.id for step in shop.definition.steps]
    assert {record.state for record in outcome.steps} == {StepState.DONE}
    references = {line["step"]: line["reference"] for line in order.lines() if line["outcome"] == "done"}
    assert {record.step: record.reference for record in outcome.steps[1:]} == references


async def test_the_view_shows_what_is_asked_and_nothing_personal(shop: Shop) -> None:
    """What an approver needs stands there; the customer does not (T42)."""
    order = await shop.start()
    view = await order.until(Stage.AWAITING_APPROVAL)
    request = view.request
    assert request is not None
    assert (view.event_source, view.event_id) == (order.event.source, order.event.id)
    assert (view.definition, view.definition_fingerprint) == ("order 1.0.0", shop.definition.fingerprint)
    assert (request.amount_minor, request.currency, request.requester) == (900, "EUR", "dana")
    assert (request.bound.workflow_id, request.bound.step, request.bound.role) == (order.id, "charge", "finance")
    assert request.bound.payload_fingerprint == view.payload_fingerprint
    assert request.bound.state_version == view.state_version
    assert "someone@example.com" not in view.model_dump_json()


async def test_the_audit_trail_tells_every_transition_in_order(shop: Shop) -> None:
    """Each stage, each state of each step, each request and decision, with times that never go back."""
    order = await _completed(shop)
    trail = (await order.view()).trail
    assert [told.subject for told in trail if told.told is Told.STAGE_CHANGED] == [
        Stage.AWAITING_APPROVAL,
        Stage.RUNNING,
        Stage.COMPLETED,
    ]
    for step in shop.definition.steps:
        states = [told.detail for told in trail if told.told is Told.STEP_CHANGED and told.subject == step.id]
        assert states == [StepState.RUNNING, StepState.DONE]
    people = [told.told for told in trail if told.told in (Told.REQUEST_OPENED, Told.DECISION_ACCEPTED)]
    assert people == [Told.REQUEST_OPENED, Told.DECISION_ACCEPTED]
    assert [told.at for told in trail] == sorted(told.at for told in trail)


async def test_each_stage_stands_in_the_search_attributes(shop: Shop) -> None:
    """An operator's list shows where an order stands, from its start to its end."""
    gate = shop.hold("reserve")
    order = await shop.start()
    await order.when(lambda _: gate.reached.is_set())
    assert (await order.books()).attributes == {"OrderStage": "running"}
    gate.open()
    await order.until(Stage.AWAITING_APPROVAL)
    assert (await order.books()).attributes == {"OrderStage": "awaiting_approval"}
    await order.cancel()
    await order.ending()
    assert (await order.books()).attributes == {"OrderStage": "failed_compensated", "OrderReason": "cancelled"}
