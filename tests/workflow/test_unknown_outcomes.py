"""Orders whose provider cannot say what became of an act: nothing is sent twice, and a person finds what may stand."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.testing import WorkflowEnvironment

from orderflow.domain.effects import Capabilities, EffectState, Handle
from orderflow.domain.orders import Reason, Stage, StepState
from orderflow.providers.simulated import SIMULATED, SimulatedWorld
from tests.support.shop import Order, Shop, open_for_business, quick
from tests.workflow.scenarios import FOR_EVER

NOTHING = Capabilities(key_horizon=timedelta(0), lookup_by=frozenset())
"""A provider that knows no keys and cannot look up, such as a mail gateway."""

KEYS_ONLY = Capabilities(lookup_by=frozenset())
BY_REFERENCE = Capabilities(key_horizon=timedelta(0), lookup_by=frozenset({Handle.MERCHANT_REFERENCE}))


@asynccontextmanager
async def shop_with(
    env: WorkflowEnvironment, folder: Path, capabilities: Capabilities, *names: str
) -> AsyncIterator[Shop]:
    """A shop with short pauses whose providers `names` are declared to be capable of this."""
    world = SimulatedWorld(folder / "simulator.jsonl")
    providers = {name: world.provider(name, capabilities) for name in names}
    async with open_for_business(env.client, folder, change=quick, providers=providers) as opened:
        yield opened


def sent(order: Order, operation: str) -> int:
    """How often the provider was asked to act, whatever came of it."""
    return sum(line["operation"] == operation and line["kind"] == "act" for line in order.lines())


async def states(order: Order) -> dict[str, EffectState]:
    """Where the ledger says that each effect of the order stands."""
    effects = await order.shop.ledger.effects(order.id)
    return {record.key.removeprefix(f"{order.id}."): record.state for record in effects}


async def test_a_charge_that_nobody_can_speak_for_is_left_to_a_person(env: WorkflowEnvironment, tmp_path: Path) -> None:
    """I07, T25: sent once; its attempts, the last look and the undo find no proof; the other steps are undone."""
    async with shop_with(env, tmp_path, NOTHING, "payments") as shop:
        shop.fault("lost_reply", "charge", times=FOR_EVER, commit=False)
        order = await shop.start()
        await order.approve()
        view = await order.until(Stage.COMPENSATION_FAILED)
        assert view.reason is Reason.OUTCOME_UNKNOWN
        [left] = view.standing
        assert (left.step, left.key, left.error) == ("charge", f"{order.id}.charge.do", "OutcomeUnknown")
        assert {record.step: record.state for record in view.steps} == {
            "validate": StepState.DONE,
            "reserve_inventory": StepState.UNDONE,
            "risk_check": StepState.DONE,
            "charge": StepState.STANDING,
            "notify": StepState.WAITING,
        }
        assert (sent(order, "charge"), sent(order, "refund"), sent(order, "notify")) == (1, 1, 0)
        assert shop.world.reserved(order.id) == {}
        assert await states(order) == {
            "reserve_inventory.do": EffectState.REVERSED,
            "reserve_inventory.undo": EffectState.COMMITTED,
            "charge.do": EffectState.REVERSING,
            "charge.undo": EffectState.PENDING,
        }


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("capabilities", [KEYS_ONLY, BY_REFERENCE, SIMULATED], ids=["keys", "reference", "both"])
async def test_a_charge_whose_reply_is_lost_once_is_made_once(
    env: WorkflowEnvironment, tmp_path: Path, capabilities: Capabilities, commit: bool
) -> None:
    """I05, I06: the same key is simply sent again where keys are kept; otherwise it is looked for first."""
    async with shop_with(env, tmp_path, capabilities, "payments") as shop:
        shop.fault("lost_reply", "charge", commit=commit)
        order = await shop.start()
        await order.approve()
        await order.until(Stage.COMPLETED)
        assert shop.world.net_charged(order.id) == 900
        assert sent(order, "charge") == (1 if commit and capabilities.lookup_by else 2)


async def test_a_charge_in_doubt_is_given_back_by_who_still_knows_it(env: WorkflowEnvironment, tmp_path: Path) -> None:
    """I06: the undo of an unknown asks the provider; what it gave back was there, so nothing stands."""
    async with shop_with(env, tmp_path, NOTHING, "payments") as shop:
        shop.fault("lost_reply", "charge")
        order = await shop.start()
        await order.approve()
        view = await order.until(Stage.FAILED_COMPENSATED)
        assert (view.reason, shop.world.net_charged(order.id)) == (Reason.OUTCOME_UNKNOWN, 0)
        assert (sent(order, "charge"), sent(order, "refund")) == (1, 1)


async def test_an_outage_is_no_doubt_even_where_nothing_can_be_looked_up(
    env: WorkflowEnvironment, tmp_path: Path
) -> None:
    """I09: a provider that said each time that it did not act is believed: nothing stands, nobody has to look."""
    async with shop_with(env, tmp_path, NOTHING, "payments") as shop:
        shop.fault("unavailable", "charge", times=FOR_EVER)
        order = await shop.start()
        await order.approve()
        view = await order.until(Stage.FAILED_COMPENSATED)
        assert view.reason is Reason.RETRIES_EXHAUSTED
        assert (await states(order))["charge.do"] is EffectState.VOIDED


async def test_a_message_in_doubt_is_not_sent_again(env: WorkflowEnvironment, tmp_path: Path) -> None:
    """I07: the customer gets at most one; the order fails, says what it does not know, and takes back the rest."""
    async with shop_with(env, tmp_path, NOTHING, "notifications") as shop:
        shop.fault("lost_reply", "notify")
        order = await shop.start()
        await order.approve()
        ending = await order.ending()
        assert (ending.view.stage, ending.view.reason) == (Stage.FAILED_COMPENSATED, Reason.OUTCOME_UNKNOWN)
        assert ending.view.outcome is not None
        assert ending.view.outcome.notes == ("notify may or may not have been done, and nothing takes it back",)
        assert (sent(order, "notify"), shop.world.net_charged(order.id)) == (1, 0)
        assert (await states(order))["notify.do"] is EffectState.PENDING


async def test_a_release_in_doubt_is_not_sent_again_and_stands(env: WorkflowEnvironment, tmp_path: Path) -> None:
    """I07, T06: an undo has a key of its own, which is forgotten alike; the refund is made all the same."""
    async with shop_with(env, tmp_path, NOTHING, "inventory") as shop:
        shop.fault("lost_reply", "release", commit=False)
        shop.fault("decline", "notify")
        order = await shop.start()
        await order.approve()
        view = await order.until(Stage.COMPENSATION_FAILED)
        assert [(left.step, left.error) for left in view.standing] == [("reserve_inventory", "OutcomeUnknown")]
        assert (sent(order, "release"), shop.world.net_charged(order.id)) == (1, 0)
        assert shop.world.reserved(order.id) == {"tea": 2}


def _briefly(value: dict[str, Any]) -> None:
    quick(value)
    for step in value["steps"][1:]:
        for policy in filter(None, (step, step.get("compensation"))):
            policy["start_to_close"] = "PT2S"
            policy["retry"] |= {"attempts": 2}


async def test_a_refund_that_stays_pending_stands(env: WorkflowEnvironment, tmp_path: Path) -> None:
    """An asynchronous refund is polled within its time, never booked as done, and then a person has to look."""
    async with open_for_business(env.client, tmp_path, change=_briefly) as shop:
        shop.fault("pending", "refund", times=FOR_EVER)
        shop.fault("decline", "notify")
        order = await shop.start()
        await order.approve()
        view = await order.until(Stage.COMPENSATION_FAILED)
        assert [(left.step, left.error) for left in view.standing] == [("charge", "OutcomeUnknown")]
        assert (sent(order, "refund"), shop.world.net_charged(order.id)) == (1, 900)
        assert shop.world.reserved(order.id) == {}
        assert (await states(order))["charge.undo"] is EffectState.PENDING
