"""What an approval is bound to, and whether a decision is about this request.

An approval request names exactly one run's step and what will be charged. A decision is a signed copy of every bound
field plus who decides what, and when. This module compares; `orderflow.signing` proves who signed.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orderflow.domain.compact_jws import LATEST_TIME, MAX_TOKEN_LENGTH, NotCompactJws, unverified_payload
from orderflow.domain.events import OrderEvent, payload_fingerprint

CLOCK_SKEW = timedelta(seconds=60)
"""How far an approver's clock may be ahead of ours."""


class Decision(StrEnum):
    """What an approver may say."""

    APPROVE = "approve"
    REJECT = "reject"


class Refusal(StrEnum):
    """Why a message at one of the doors was not accepted."""

    UNKNOWN_MESSAGE = "unknown_message"
    MALFORMED = "malformed"
    TOO_LARGE = "too_large"
    NO_SUCH_REQUEST = "no_such_request"
    WRONG_ORDER = "wrong_order"
    WRONG_STEP = "wrong_step"
    WRONG_PAYLOAD = "wrong_payload"
    WRONG_DEFINITION = "wrong_definition"
    WRONG_STATE = "wrong_state"
    WRONG_ROLE = "wrong_role"
    WRONG_TERMS = "wrong_terms"
    EXPIRED = "expired"
    NOT_YET_VALID = "not_yet_valid"
    BAD_SIGNATURE = "bad_signature"
    UNKNOWN_KEY = "unknown_key"
    REVOKED_KEY = "revoked_key"
    WRONG_APPROVER = "wrong_approver"
    ROLE_NOT_HELD = "role_not_held"
    REQUESTER_UNKNOWN = "requester_unknown"
    REQUESTER_IS_APPROVER = "requester_is_approver"
    ALREADY_DECIDED = "already_decided"
    REPLAYED = "replayed"
    CANNOT_VERIFY = "cannot_verify"
    TOO_FEW_APPROVERS = "too_few_approvers"
    NO_SUCH_EFFECT = "no_such_effect"
    WRONG_AMOUNT = "wrong_amount"
    ORDER_IS_OPEN = "order_is_open"


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Binding(_Model):
    """The fields that a decision must repeat exactly. Times are whole seconds of Unix time."""

    request_id: str
    workflow_id: str
    step: str
    payload_fingerprint: str
    definition_name: str
    definition_version: str
    definition_fingerprint: str
    state_version: int
    role: str
    expires_at: int
    charge_by: int


class ApprovalRequest(_Model):
    """One open question to people, as the query `view` shows it.

    `approvers` is how many distinct people must approve; `approved_by` who did. `requester` is the one who placed the
    order; unless `requester_may_approve`, that person cannot approve it, and an order without one cannot be approved.
    `currency` and `amount_minor` are what the person sees; they are bound through the payload fingerprint.
    """

    bound: Binding
    approvers: int = 1
    requester: str | None = None
    requester_may_approve: bool = False
    opened_at: datetime
    amount_minor: int
    currency: str
    approved_by: tuple[str, ...] = ()
    accepted: tuple[str, ...] = Field(default=(), description="the decisions accepted so far, as JWS")
    seen: tuple[str, ...] = Field(default=(), description="the `jti` of each of them")
    decided_at: datetime | None = Field(default=None, description="when the latest of them came, as it was recorded")

    @property
    def expires_at(self) -> datetime:
        """When a decision must have arrived, aware UTC."""
        return datetime.fromtimestamp(self.bound.expires_at, UTC)

    @property
    def charge_by(self) -> datetime:
        """When the effect must have been claimed, aware UTC."""
        return datetime.fromtimestamp(self.bound.charge_by, UTC)

    @property
    def is_approved(self) -> bool:
        """Whether enough distinct people approved."""
        return len(self.approved_by) >= self.approvers

    def with_approval(self, claims: "Claims", token: str, at: datetime | None = None) -> "ApprovalRequest":
        """This request with one more accepted approval, which came `at` (aware)."""
        return self.model_copy(
            update={
                "approved_by": (*self.approved_by, claims.approver),
                "accepted": (*self.accepted, token),
                "seen": (*self.seen, claims.jti),
                "decided_at": at,
            }
        )


class Claims(Binding):
    """What an approver signs: every bound field, the decision, who decides, when (Unix seconds), and a unique id."""

    decision: Decision = Field(strict=False)
    approver: str = Field(min_length=1, max_length=64)
    iat: int = Field(ge=0, le=LATEST_TIME)
    jti: str = Field(min_length=16, max_length=64)

    @property
    def bound(self) -> Binding:
        """The bound fields alone."""
        return Binding.model_validate(self.model_dump(include=set(Binding.model_fields)))


class Verdict(_Model):
    """What `verify_decision` says of a token: genuine, or why not. `roles` are those of the key's owner.

    `at` is when the token arrived, where that was asked about.
    """

    genuine: bool
    refusal: Refusal | None = Field(default=None, strict=False)
    approver: str | None = None
    roles: tuple[str, ...] = Field(default=(), strict=False)
    at: datetime | None = None


def read_claims(token: object) -> Claims | Refusal:
    """What an unverified compact JWS claims, or why it is not even worth verifying.

    Cheap and total: any value may come in. Nothing here is proven; a signature check must follow.
    """
    if not isinstance(token, str):
        return Refusal.MALFORMED
    if len(token) > MAX_TOKEN_LENGTH:
        return Refusal.TOO_LARGE
    try:
        return Claims.model_validate(unverified_payload(token))
    except (NotCompactJws, ValidationError):
        return Refusal.MALFORMED


_MISMATCHES: tuple[tuple[str, Refusal], ...] = (
    ("workflow_id", Refusal.WRONG_ORDER),
    ("request_id", Refusal.NO_SUCH_REQUEST),
    ("step", Refusal.WRONG_STEP),
    ("payload_fingerprint", Refusal.WRONG_PAYLOAD),
    ("definition_name", Refusal.WRONG_DEFINITION),
    ("definition_version", Refusal.WRONG_DEFINITION),
    ("definition_fingerprint", Refusal.WRONG_DEFINITION),
    ("state_version", Refusal.WRONG_STATE),
    ("role", Refusal.WRONG_ROLE),
    ("expires_at", Refusal.WRONG_TERMS),
    ("charge_by", Refusal.WRONG_TERMS),
)


def mismatch(request: ApprovalRequest, claims: Claims) -> Refusal | None:
    """The first bound field in which the claims differ from the request (A01), or `None`."""
    for field, refusal in _MISMATCHES:
        if getattr(claims, field) != getattr(request.bound, field):
            return refusal
    return None


def not_about(request: ApprovalRequest, event: OrderEvent) -> Refusal | None:
    """Whether what the request shows and binds is another order's content than `event`, `None` if it is this one."""
    if request.bound.payload_fingerprint != payload_fingerprint(event):
        return Refusal.WRONG_PAYLOAD
    shown = (request.amount_minor, request.currency)
    if shown != (event.data.total_minor, event.data.currency):
        return Refusal.WRONG_PAYLOAD
    return Refusal.WRONG_APPROVER if request.requester != event.data.requested_by else None


def untimely(request: ApprovalRequest, claims: Claims, now: datetime) -> Refusal | None:
    """Whether the decision came after the request's expiry or its own, or from a clock too far ahead.

    `now` is aware workflow time.
    """
    if now > request.expires_at or now.timestamp() > claims.expires_at:
        return Refusal.EXPIRED
    if datetime.fromtimestamp(claims.iat, UTC) > now + CLOCK_SKEW:
        return Refusal.NOT_YET_VALID
    return None


def ineligible(request: ApprovalRequest, claims: Claims, verdict: Verdict) -> Refusal | None:
    """Whether this person may decide on this request at all, given who really signed (A02)."""
    if not verdict.genuine:
        return verdict.refusal or Refusal.CANNOT_VERIFY
    if verdict.approver != claims.approver:
        return Refusal.WRONG_APPROVER
    if request.bound.role not in verdict.roles:
        return Refusal.ROLE_NOT_HELD
    if request.requester_may_approve or claims.decision is Decision.REJECT:
        return None
    if request.requester is None:
        return Refusal.REQUESTER_UNKNOWN
    return Refusal.REQUESTER_IS_APPROVER if request.requester == claims.approver else None


def repeated(request: ApprovalRequest, claims: Claims) -> Refusal | None:
    """Whether this very decision, or another of this person, was accepted before: each counts once."""
    if claims.jti in request.seen:
        return Refusal.REPLAYED
    return Refusal.ALREADY_DECIDED if claims.approver in request.approved_by else None


def check_accepted(request: ApprovalRequest, decisions: Iterable[tuple[Claims, Verdict]]) -> Refusal | None:
    """Whether these decisions, verified once more at the moment of the effect, allow it; `None` means yes.

    Arrival in time was checked by the workflow when it accepted them; the effect has its own limit, `charge_by`.
    Nobody at all is never enough, whatever number the request names.
    """
    approvers: set[str] = set()
    for claims, verdict in decisions:
        refusal = mismatch(request, claims) or ineligible(request, claims, verdict)
        if refusal is not None:
            return refusal
        if claims.decision is not Decision.APPROVE:
            return Refusal.ALREADY_DECIDED
        approvers.add(claims.approver)
    return None if approvers and len(approvers) >= request.approvers else Refusal.TOO_FEW_APPROVERS
