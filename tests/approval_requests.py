"""An open approval request as a value that a test can bend, and tokens made by hand."""

import base64
import json
from datetime import UTC, datetime
from typing import Any, Final

from orderflow.domain.approvals import ApprovalRequest, Binding, Claims, Decision

OPENED_AT: Final = datetime(2026, 1, 31, 12, tzinfo=UTC)
EXPIRES_AT: Final = OPENED_AT.replace(hour=13)

BOUND: Final = Binding(
    request_id="request-1",
    workflow_id="order-0123456789abcdef0123456789abcdef",
    step="charge",
    payload_fingerprint="fp1:aa",
    definition_name="order",
    definition_version="1.0.0",
    definition_fingerprint="sha256:bb",
    state_version=3,
    role="finance",
    expires_at=int(EXPIRES_AT.timestamp()),
    charge_by=int(EXPIRES_AT.timestamp()) + 3600,
)


def open_request(**changes: Any) -> ApprovalRequest:
    """Give a request for one approval of an order that dana placed."""
    fields = {"bound": BOUND, "requester": "dana", "opened_at": OPENED_AT, "amount_minor": 900, "currency": "EUR"}
    return ApprovalRequest.model_validate(fields | changes)


def claims(**changes: Any) -> Claims:
    """Give what alice signs to approve that request, one minute after it was opened."""
    fields = {
        "decision": Decision.APPROVE,
        "approver": "alice",
        "iat": int(OPENED_AT.timestamp()) + 60,
        "jti": "0123456789abcdef",
    }
    return Claims.model_validate(BOUND.model_dump() | fields | changes)


def base64url(raw: bytes) -> str:
    """Encode as a part of a compact JWS."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def compact(header: object, payload: object, signature: bytes = b"x" * 64) -> str:
    """Give a compact JWS of these parts; bytes stand as they are, other values as JSON."""
    parts = [part if isinstance(part, bytes) else json.dumps(part).encode() for part in (header, payload)]
    return ".".join(base64url(part) for part in (*parts, signature))
