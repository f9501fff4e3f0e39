"""What `review retry` and `resolve` do: sign exactly what stands, deliver it, and learn what it came to."""

import asyncio
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from pydantic import ValidationError
from temporalio.client import Client

from orderflow.cli.exits import Refused
from orderflow.client import NoAnswer, operate, order_status, repair, what_waits
from orderflow.contracts import WaitingView
from orderflow.domain.errors import InvalidInput
from orderflow.domain.operations import Operation, OperationClaims, Resolution
from orderflow.domain.orders import Stage, Standing
from orderflow.domain.problems import problems_in, summary
from orderflow.ledger.review import ReviewItem
from orderflow.signing import ApproverKey, operation_on

PATIENCE: Final = 60.0
"""Seconds to wait for what a retry comes to."""

_PAUSE: Final = 0.2


@dataclass(frozen=True)
class Wanted:
    """What the command line asked for."""

    operation: Operation
    reason: str
    outcome: Resolution | None = None
    evidence: str | None = None


@dataclass(frozen=True)
class Came:
    """What an operation came to: settled, or what still stands and why. `said`: who has said how it is so far."""

    settled: bool
    error: str | None = None
    detail: str | None = None
    said: tuple[str, ...] = ()


async def standing_of(client: Client, item: ReviewItem) -> Standing:
    """What stands, as whoever decides on it will see it. Raises `Refused` when nothing of it stands any more."""
    if item.opened_by == "reconcile":
        return item.standing
    status = await order_status(client, item.workflow_id)
    seen = await what_waits(client, item.workflow_id)
    if (left := _left(seen, item.key)) is None:
        raise Refused(f"{item.key} does not stand any more: {item.workflow_id} is {seen.stage}", key=item.key)
    if status.status != "running":
        raise Refused(
            f"{item.workflow_id} was {status.status} with {item.key} standing, and takes no operations any more:"
            " run `orderflow reconcile`, then it can be operated on without its order",
            key=item.key,
        )
    return left


def claims_for(left: Standing, order: str, wanted: Wanted, operator: str) -> OperationClaims:
    """What `operator` has to sign. Raises `InvalidInput` for a reason or evidence that cannot be signed."""
    try:
        return operation_on(
            left,
            order,
            wanted.operation,
            operator,
            datetime.now(UTC),
            reason=wanted.reason,
            outcome=wanted.outcome,
            evidence=wanted.evidence,
        )
    except ValidationError as error:
        raise InvalidInput(f"nothing was signed: {summary(problems_in(error))}") from None


async def deliver(client: Client, item: ReviewItem, claims: OperationClaims, key: ApproverKey, task_queue: str) -> Came:
    """Sign and deliver an operation to whoever has to do it, and wait for what it comes to.

    Raises:
        Refused: if it may not be done; names the reason.
        NoAnswer: if no worker answers in time; it may still be done.
    """
    token = key.sign(claims)
    if item.opened_by == "order":
        answer = await operate(client, item.workflow_id, token)
        if not answer.accepted:
            raise _refused(answer.refusal, item)
        return await _watched(client, item, claims.jti)
    repaired = await repair(client, token, claims.jti, task_queue=task_queue, patience=PATIENCE)
    if repaired.refusal is not None:
        raise _refused(repaired.refusal, item)
    waits = not repaired.settled and repaired.error is None
    return Came(repaired.settled, repaired.error, repaired.detail, (claims.operator,) if waits else ())


async def _watched(client: Client, item: ReviewItem, jti: str) -> Came:
    give_up_at = time.monotonic() + PATIENCE
    while time.monotonic() < give_up_at:
        seen = await what_waits(client, item.workflow_id)
        if jti not in seen.operations and seen.stage is not Stage.COMPENSATING:
            left = _left(seen, item.key)
            said = tuple(said.operator for said in left.said) if left else ()
            return Came(left is None, left.error if left else None, left.detail if left else None, said)
        await asyncio.sleep(_PAUSE)
    raise NoAnswer(f"{item.workflow_id} is at work on it; `orderflow show {item.workflow_id}` will tell")


def _left(seen: WaitingView, key: str) -> Standing | None:
    return next((left for left in seen.standing if left.key == key), None)


def _refused(refusal: str | None, item: ReviewItem) -> Refused:
    return Refused(
        f"refused: {refusal or 'no reason given'}; {item.key} stays in review", refusal=refusal, key=item.key
    )
