"""Operations on what was left standing: what an operator signs, and whether it may be done.

An effect that no machine could take back waits for a person. An operator may have it tried again, or say that it is
settled outside, with a reason and evidence; above a limit two people have to say the same. This module compares;
`orderflow.signing` proves who signed.
"""

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from orderflow.domain.approvals import CLOCK_SKEW, Refusal
from orderflow.domain.compact_jws import LATEST_TIME, MAX_TOKEN_LENGTH, NotCompactJws, unverified_payload
from orderflow.domain.intents import canonical_json
from orderflow.domain.orders import Standing

OPERATOR: Final = "operator"
"""The role that an operation takes."""

VALID_FOR: Final = timedelta(hours=1)
"""How long a signed operation may be delivered, at most."""


class Operation(StrEnum):
    """What an operator may have done about an effect that stands."""

    RETRY = "retry"
    RESOLVE = "resolve"


class Resolution(StrEnum):
    """What a person made sure of outside: it was taken back there, or it stands and may."""

    TAKEN_BACK = "taken_back"
    KEPT = "kept"


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class OperationClaims(_Model):
    """What an operator signs: which effect, as it was shown, what to do and why. Times are whole Unix seconds.

    `outcome` and `evidence` (a receipt's number, a ticket) belong to `resolve` and must be there.
    """

    workflow_id: str = Field(max_length=128)
    effect: str = Field(max_length=200)
    operation: Operation
    outcome: Resolution | None = None
    amount_minor: int | None = Field(default=None, ge=0)
    currency: str | None = Field(default=None, max_length=3)
    reason: str = Field(min_length=1, max_length=300)
    evidence: str | None = Field(default=None, min_length=1, max_length=300)
    operator: str = Field(min_length=1, max_length=64)
    iat: int = Field(ge=0, le=LATEST_TIME)
    expires_at: int = Field(ge=0, le=LATEST_TIME)
    jti: str = Field(min_length=16, max_length=64)

    @model_validator(mode="after")
    def _resolutions_are_complete(self) -> Self:
        told = self.outcome is not None and self.evidence is not None
        if told is not (self.operation is Operation.RESOLVE) or (self.outcome is None) is not (self.evidence is None):
            raise ValueError("resolve takes an outcome and evidence, retry takes neither")
        return self


class OperationVerdict(_Model):
    """What `verify_operation` says of a token: genuine, or why not; `roles` are those of the key's owner.

    `alone_up_to` is the amount, in minor units, up to which one person may resolve; `at` when the token arrived.
    """

    genuine: bool
    refusal: Refusal | None = Field(default=None, strict=False)
    operator: str | None = None
    roles: tuple[str, ...] = Field(default=(), strict=False)
    alone_up_to: int = 0
    at: datetime | None = None


class AcceptedOperation(_Model):
    """An operation that may be done, as it was signed, with the limit that held when it was accepted."""

    token: str
    claims: OperationClaims
    alone_up_to: int


def read_operation(token: object) -> OperationClaims | Refusal:
    """What an unverified compact JWS claims, or why it is not even worth verifying. Any value may come in."""
    if not isinstance(token, str):
        return Refusal.MALFORMED
    if len(token) > MAX_TOKEN_LENGTH:
        return Refusal.TOO_LARGE
    try:
        return OperationClaims.model_validate_json(canonical_json(unverified_payload(token)))
    except (NotCompactJws, ValidationError):
        return Refusal.MALFORMED


def not_about(left: Standing | None, claims: OperationClaims, order: str) -> Refusal | None:
    """Whether the operation is about something else than what stands of `order` now."""
    if claims.workflow_id != order:
        return Refusal.WRONG_ORDER
    if left is None or left.key != claims.effect:
        return Refusal.NO_SUCH_EFFECT
    if not same_effect(left, claims):
        return Refusal.WRONG_AMOUNT
    said_it = any(said.operator == claims.operator and said.outcome == claims.outcome for said in left.said)
    return Refusal.ALREADY_DECIDED if claims.operation is Operation.RESOLVE and said_it else None


def same_effect(left: Standing | None, claims: OperationClaims) -> bool:
    """Whether `left` is what the operator saw: this effect, with this amount."""
    seen = (claims.effect, claims.amount_minor, claims.currency)
    return left is not None and (left.key, left.amount_minor, left.currency) == seen


def untimely(claims: OperationClaims, now: datetime) -> Refusal | None:
    """Whether it came too late, or from a clock too far ahead. `now` is aware."""
    signed_at = datetime.fromtimestamp(claims.iat, UTC)
    if now > min(datetime.fromtimestamp(claims.expires_at, UTC), signed_at + VALID_FOR):
        return Refusal.EXPIRED
    return Refusal.NOT_YET_VALID if signed_at > now + CLOCK_SKEW else None


def ineligible(claims: OperationClaims, verdict: OperationVerdict) -> Refusal | None:
    """Whether this person may operate at all, given who really signed."""
    if not verdict.genuine:
        return verdict.refusal or Refusal.CANNOT_VERIFY
    if verdict.operator != claims.operator:
        return Refusal.WRONG_APPROVER
    return None if OPERATOR in verdict.roles else Refusal.ROLE_NOT_HELD


def is_resolved(left: Standing, outcome: Resolution, alone_up_to: int) -> bool:
    """Whether enough distinct people say that `outcome` is how it is: two where more than `alone_up_to` is at stake."""
    people = {said.operator for said in left.said if said.outcome == outcome}
    return len(people) >= (1 if left.amount_minor is None or left.amount_minor <= alone_up_to else 2)
