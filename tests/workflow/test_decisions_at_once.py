"""An approval and a rejection of one order at the same moment, through the same door (T14, T34).

Those that come through different doors stand in `tests/integration`: the time-skipping server (1.40.0) hands over an
update before a signal, and writes it behind it into a history that then does not replay.
"""

import asyncio
import itertools
import logging
from collections.abc import Mapping
from typing import Final

import pytest

from orderflow.domain.approvals import ApprovalRequest, Decision, Refusal
from orderflow.domain.orders import Reason
from tests.support.shop import Order, Shop
from tests.workflow.decisions import DOORS, accepted, asked, completes, fails, through

TOO_LATE: Final = (Refusal.ALREADY_DECIDED, Refusal.NO_SUCH_REQUEST)


@pytest.mark.parametrize("door", DOORS)
async def test_two_decisions_at_the_same_moment(shop: Shop, door: str, caplog: pytest.LogCaptureFixture) -> None:
    """T14, T34: ten orders; one decision each, no warning in the log, and every history replays."""
    for order_of_two in [*itertools.permutations(Decision)] * 5:
        order = await shop.start()
        await _send_both(order, await asked(order), dict.fromkeys(order_of_two, door))
        await _is_decided_once(order)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def _send_both(order: Order, request: ApprovalRequest, doors: Mapping[Decision, str]) -> None:
    """Send an approval of alice and a rejection of bob, `doors` in their order, and wait until both are answered.

    Until then the order cannot end. One must be accepted, and an update has to answer truly which of them it was.
    """
    gates = [order.shop.hold(operation, order.id) for operation in ("charge", "release")]
    who = {Decision.APPROVE: "alice", Decision.REJECT: "bob"}
    tokens = [order.shop.sign(request, who[decision], decision) for decision in doors]
    sending = [through(door, order, token) for door, token in zip(doors.values(), tokens, strict=True)]
    answers = await asyncio.gather(*sending)
    view = await order.when(lambda view: accepted(view) and view.refused_total)
    [(decided, _)] = accepted(view)
    told = {decision: answer.accepted for decision, answer in zip(doors, answers, strict=True) if answer is not None}
    assert told == {decision: decision == decided for decision in told}
    assert [each.reason in TOO_LATE for each in view.refusals] == [True]
    for gate in gates:
        gate.open()


async def _is_decided_once(order: Order) -> None:
    """The order ends as the one decision says that was accepted."""
    [(decision, _)] = accepted(await order.view())
    await (completes(order) if decision == Decision.APPROVE else fails(order, Reason.APPROVAL_REJECTED))
    view = await order.view()
    assert (len(accepted(view)), view.refused_total) == (1, 1)
