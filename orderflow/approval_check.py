"""The approval once more, at the moment of the effect: what the workflow saw answered must still hold (A01, A02)."""

from collections.abc import Callable
from datetime import datetime

from orderflow.contracts import StepRequest
from orderflow.domain import approvals
from orderflow.domain.approvals import ApprovalRequest, Claims, Refusal, Verdict
from orderflow.domain.errors import ApprovalRefused, ChargeWindowClosed


def check_approval(
    request: StepRequest, approval: ApprovalRequest, verify: Callable[[str], Verdict], now: datetime
) -> None:
    """Let pass only an effect that enough people allowed, in time, for exactly this event. `now` is aware.

    Raises:
        ChargeWindowClosed: `charge_by` is past; a new request has to be answered.
        ApprovalRefused: with the first `Refusal` found.
    """
    if now > approval.charge_by:
        raise ChargeWindowClosed(f"{request.step} was not begun before {approval.charge_by.isoformat()}", found_at=now)
    refusal = _not_about(request, approval) or _not_allowed(approval, verify)
    if refusal is not None:
        raise ApprovalRefused(refusal)


def _not_about(request: StepRequest, approval: ApprovalRequest) -> Refusal | None:
    if approval.bound.workflow_id != request.workflow_id:
        return Refusal.WRONG_ORDER
    if approval.bound.step != request.step:
        return Refusal.WRONG_STEP
    return approvals.not_about(approval, request.event)


def _not_allowed(approval: ApprovalRequest, verify: Callable[[str], Verdict]) -> Refusal | None:
    decisions: list[tuple[Claims, Verdict]] = []
    for token in approval.accepted:
        claims = approvals.read_claims(token)
        if isinstance(claims, Refusal):
            return claims
        decisions.append((claims, verify(token)))
    return approvals.check_accepted(approval, decisions)
