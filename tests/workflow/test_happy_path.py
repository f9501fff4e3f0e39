"""An order that runs its course: what is done outside, what the view shows, how the end is told."""

from orderflow.domain.orders import Outcome, Stage, StepState
from tests.support.shop import Shop


async def test_an_order_runs_from_reservation_to_notification(shop: Shop) -> None:
    """Stock, risk, approval, money, message: each once, in the order of the definition."""
    order = await shop.start()
    await order.until(Stage.AWAITING_APPROVAL)
    await order.approve()
    outcome = Outcome.model_validate(await order.result())
    assert outcome.stage is Stage.COMPLETED
    assert [record.state for record in outcome.steps] == [StepState.DONE] * 5
    assert [record.step for record in outcome.steps] == [step.id for step in shop.definition.steps]
    done = [str(line["operation"]) for line in (await order.books()).log if line["outcome"] == "done"]
    assert (sorted(done[:2]), done[2:]) == (["check", "reserve"], ["charge", "notify"])
