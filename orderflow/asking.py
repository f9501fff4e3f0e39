"""Opening an approval request: what exactly is asked of people, and until when.

Runs in workflow code.
"""

from datetime import datetime

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from orderflow.contracts import OrderState
    from orderflow.domain.approvals import ApprovalRequest, Binding
    from orderflow.domain.definition import ApprovalPolicy, Step


def open_request(
    state: OrderState, step: Step, policy: ApprovalPolicy, ready_at: datetime, now: datetime
) -> ApprovalRequest:
    """A request for `step`, bound to this run: `uuid4` gives another id after a reset (T12).

    Its times count from `ready_at`, which stands in history, and not from `now`: a query can be answered ahead of the
    workflow task that will open the request, and what people sign then must still be the same (both aware).
    """
    since = opening_time(policy, ready_at, now)
    data = state.event.data
    return ApprovalRequest(
        bound=Binding(
            request_id=str(workflow.uuid4()),
            workflow_id=workflow.info().workflow_id,
            step=step.id,
            payload_fingerprint=state.payload_fingerprint,
            definition_name=state.definition.name,
            definition_version=state.definition.version,
            definition_fingerprint=state.definition_fingerprint,
            state_version=state.version,
            role=policy.role,
            expires_at=int((since + policy.expires_in.timedelta).timestamp()),
            charge_by=int((since + policy.charge_within.timedelta).timestamp()),
        ),
        approvers=policy.approvers,
        requester=data.requested_by,
        requester_may_approve=policy.requester_may_approve,
        opened_at=since,
        amount_minor=data.total_minor,
        currency=data.currency,
    )


def opening_time(policy: ApprovalPolicy, ready_at: datetime, now: datetime) -> datetime:
    """When the request counts as opened: when it could be, unless an outage has eaten half of its time since."""
    return ready_at if now - ready_at < policy.expires_in.timedelta / 2 else now
