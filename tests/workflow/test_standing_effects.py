"""What stands outside is found and taken back, or named, whatever a run believes it did itself."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.common import WorkflowIDReusePolicy
from temporalio.testing import WorkflowEnvironment

from orderflow.contracts import OrderInput
from orderflow.domain.approvals import Decision
from orderflow.domain.effects import Act, Done, Performed
from orderflow.domain.orders import Reason, Stage, StepState
from orderflow.ledger.effects import EffectStore
from orderflow.ledger.sqlite import SqliteLedger
from orderflow.providers.simulated import SimulatedWorld
from orderflow.workflows import OrderWorkflow
from tests.support.gates import GatedProvider, Gates
from tests.support.shop import Order, Shop, open_shop


async def second_run(client: Client, order: Order) -> Order:
    """The same order started once more after its end, as after Temporal's retention."""
    handle = await client.start_workflow(
        OrderWorkflow.run,
        OrderInput(event=order.event, definition=order.definition),
        id=order.id,
        task_queue=order.shop.task_queue,
        id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
    )
    return Order(order.shop, handle, order.event, order.definition)


async def test_a_second_run_that_is_rejected_takes_back_what_the_first_one_did(
    env: WorkflowEnvironment, tmp_path: Path
) -> None:
    """A run that never reached the charge still knows of it: the ledger does. No order fails with a charge standing."""
    async with open_shop(env.client, tmp_path) as shop, shop.worker():
        first = await shop.start()
        await first.approve()
        await first.until(Stage.COMPLETED)
        again = await second_run(env.client, first)
        await again.approve(decision=Decision.REJECT)
        ended = await again.until(Stage.FAILED_COMPENSATED)
        assert ended.reason is Reason.APPROVAL_REJECTED
        assert shop.world.net_charged(first.id) == 0
        assert shop.world.reserved(first.id) in ({}, {"tea": 0})
        undone = [line["operation"] for line in first.lines() if "of" in line and line["outcome"] == "done"]
        assert undone == ["refund", "release"]


async def test_what_a_worker_with_another_ledger_knows_nothing_of_is_left_standing_by_name(
    env: WorkflowEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step that was done and an undo that says "nothing was" contradict each other: a person has to look (I-4)."""
    other = await SqliteLedger.open(tmp_path / "elsewhere" / "ledger.db")
    async with open_shop(env.client, tmp_path) as shop, shop.worker():
        order = await shop.start()
        await order.until(Stage.AWAITING_APPROVAL)
        monkeypatch.setattr(shop.activities, "_effects", EffectStore(other))
        await order.cancel()
        view = await order.until(Stage.COMPENSATION_FAILED)
        assert [(left.step, left.error) for left in view.standing] == [("reserve_inventory", "not_in_this_ledger")]
        assert shop.world.reserved(order.id) == {"tea": 2}
        await order.handle.terminate()
    await other.aclose()


class Miscounting(GatedProvider):
    """Payments that capture another amount than they are asked for."""

    async def perform(self, act: Act) -> Performed:
        """See `Provider`."""
        answer = await super().perform(act)
        return answer.model_copy(update={"amount_minor": 1}) if isinstance(answer, Done) else answer


async def test_a_charge_of_another_amount_fails_the_order_and_is_taken_back(
    env: WorkflowEnvironment, tmp_path: Path
) -> None:
    """A provider that captured something else than was approved has not done the step."""
    payments = Miscounting(SimulatedWorld(tmp_path / "simulator.jsonl").provider("payments"), Gates())
    async with open_shop(env.client, tmp_path, providers={"payments": payments}) as shop, shop.worker():
        order = await shop.start()
        await order.approve()
        ended = await order.until(Stage.FAILED_COMPENSATED)
        assert (ended.reason, ended.steps[3].detail) == (Reason.AMOUNT_MISMATCH, "1 instead of 900")
        assert shop.world.net_charged(order.id) == 0


@pytest.mark.parametrize("junk", ["junk", None, {"found": 1}, [1]])
async def test_an_activity_completed_with_junk_by_somebody_else_is_no_answer(shop: Shop, junk: Any) -> None:
    """Whoever reaches the namespace can complete an activity: the order asks the ledger and goes on, unharmed."""
    order = await shop.start()
    gate = shop.hold("charge", order.id, after=True)
    await order.approve()
    async with asyncio.timeout(20):
        await gate.reached.wait()
        await shop.client.get_async_activity_handle(
            workflow_id=order.id, run_id=order.handle.first_execution_run_id, activity_id="charge"
        ).complete(junk)
    gate.open()
    view = await order.until(Stage.COMPLETED)
    assert [record.state for record in view.steps] == [StepState.DONE] * 5
