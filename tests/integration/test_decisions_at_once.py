"""An approval and a rejection of one order at the same moment, on the real server."""

import asyncio
import itertools
import logging
from contextlib import suppress

import pytest
from temporalio.client import WorkflowUpdateFailedError
from temporalio.service import RPCError

from orderflow.contracts import OrderView
from orderflow.domain.approvals import Decision, Refusal
from orderflow.domain.audit import Told
from orderflow.domain.orders import FINAL
from tests.support.shop import Order, Shop, check_orders
from tests.workflow.decisions import DOORS, asked, completes, fails

PAIRS = list(itertools.product(DOORS, DOORS, Decision)) * 3
"""For each order: the door of the approval, that of the rejection, and which is sent first. 24 orders."""


CROWD = 12


async def test_an_approval_and_a_rejection_in_the_same_workflow_task(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """T14, T34: both come in while no worker runs; one counts, the other is told so, and no warning is logged."""
    gates = [shop.hold("charge"), shop.hold("release")]
    async with shop.worker():
        orders = [await shop.start() for _ in PAIRS]
        requests = [await asked(order) for order in orders]
    caplog.clear()  # of what the worker said when it left
    sent = [
        asyncio.create_task(
            _send_both(order, [shop.sign(request, "alice"), shop.sign(request, "bob", Decision.REJECT)], pair)
        )
        for order, request, pair in zip(orders, requests, PAIRS, strict=True)
    ]
    async with shop.worker() as shop.running:
        await asyncio.gather(*sent)
        for gate in gates:
            gate.open()
        for order in orders:
            decision = _accepted(await order.view())
            await (completes(order) if decision == Decision.APPROVE else fails(order, "approval_rejected"))
        await check_orders(shop)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def _send_both(order: Order, tokens: list[str], pair: tuple[str, str, Decision]) -> None:
    """Send the approval and the rejection at once; what the doors answer is what the view shows."""
    *doors, first = pair
    sent = [_send(order, door, token) for door, token in zip(doors, tokens, strict=True)]
    answers = await asyncio.gather(*(sent if first is Decision.APPROVE else reversed(sent)))
    view = await order.when(lambda view: view.refused_total == 1 and _accepted(view))
    assert view.refusals[0].reason in (Refusal.ALREADY_DECIDED, Refusal.NO_SUCH_REQUEST)
    in_order = answers if first is Decision.APPROVE else answers[::-1]
    for decision, answer in zip(Decision, in_order, strict=True):
        assert answer in (None, decision == _accepted(view))


async def _send(order: Order, door: str, token: str) -> bool | None:
    if door == "update":
        return (await order.decide(token)).accepted
    await order.send(token)
    return None


def _accepted(view: OrderView) -> str | None:
    """The one decision that counted, if any yet."""
    accepted = [told.subject for told in view.trail if told.told is Told.DECISION_ACCEPTED]
    assert len(accepted) <= 1
    return accepted[0] if accepted else None


async def test_decisions_by_update_among_questions_and_junk(shop: Shop) -> None:
    """T14, T34: an update that comes during a look is turned away and sent again; every history replays (ADR 0014)."""
    async with shop.worker() as shop.running:
        orders = [await shop.start() for _ in range(CROWD)]
        await asyncio.gather(*(_crowd(order) for order in orders))
        await asyncio.gather(*(completes(order) for order in orders))
        await check_orders(shop)


async def _crowd(order: Order) -> None:
    """Three people decide at once, by update, while others ask and knock with junk from the start."""
    noise = [asyncio.create_task(_make_noise(order)) for _ in range(3)]
    request = await asked(order)
    tokens = [order.shop.sign(request, who) for who in ("alice", "bob", "alice")]
    answers = await asyncio.gather(*(order.decide(token) for token in tokens))
    assert [answer.accepted for answer in answers].count(True) == 1
    await asyncio.gather(*noise)


async def _make_noise(order: Order) -> None:
    while (await order.view()).stage not in FINAL:
        with suppress(RPCError, WorkflowUpdateFailedError):  # it ends meanwhile
            await order.decide("a.b.c")
