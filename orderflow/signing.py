"""Decisions and operations of people as JWS (RFC 7515) with Ed25519 (RFC 9864): a key signs, the registry verifies.

Who may is a JWK set (RFC 7517): each member is a person's public key with its owner's `name` and `roles`, and
`"revoked": true` once it must no longer count. `kid` is the key's own thumbprint (RFC 7638).
"""

import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import OKPKey
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from orderflow.domain.approvals import ApprovalRequest, Claims, Decision, Refusal, Verdict, read_claims
from orderflow.domain.compact_jws import NotCompactJws, unverified_header
from orderflow.domain.documents import MAX_SET_BYTES, document_refused, read_model
from orderflow.domain.errors import InvalidInput, InvalidSettings, Problem
from orderflow.domain.intents import canonical_json
from orderflow.domain.operations import (
    VALID_FOR,
    Operation,
    OperationClaims,
    OperationVerdict,
    Resolution,
    read_operation,
)
from orderflow.domain.orders import Standing
from orderflow.domain.problems import problems_in, summary
from orderflow.domain.steps import Label
from orderflow.private_files import create_private

DECISION_TYPE = "orderflow-decision+jws"
"""`typ` of a decision, so that no other kind of signed message can pass for one (RFC 8725, 3.11)."""

OPERATION_TYPE = "orderflow-operation+jws"
"""`typ` of an operation."""

_ALGORITHM: Literal["Ed25519"] = "Ed25519"
_ONLY_ED25519 = jws.JWSRegistry(algorithms=[_ALGORITHM])

_M = TypeVar("_M", bound=BaseModel)


def _okp_key(x: str) -> OKPKey:
    return OKPKey.import_key({"kty": "OKP", "crv": "Ed25519", "x": x})


def _public_half(x: str) -> str:
    try:
        _okp_key(x)
    except (JoseError, ValueError):
        raise ValueError("must be the 32 bytes of an Ed25519 public key in base64url without padding") from None
    return x


ApproverName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$")]
"""The name of a person, as events give it in `requested_by`; it also names a file."""


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)


class _Header(_Strict):
    """The whole protected header of a token. `crit`, `b64`, `jwk` and any other member are refused (RFC 8725)."""

    alg: Literal["Ed25519"]
    kid: str
    typ: Literal["orderflow-decision+jws", "orderflow-operation+jws"]


class PublicKey(_Strict):
    """A member of the JWK set: one approver's public key."""

    kty: Literal["OKP"]
    crv: Literal["Ed25519"]
    x: Annotated[str, AfterValidator(_public_half)]
    kid: str
    alg: Literal["Ed25519"] = _ALGORITHM
    use: Literal["sig"] = "sig"
    name: ApproverName
    roles: tuple[Label, ...] = Field(min_length=1)
    revoked: bool = False

    @field_validator("kid")
    @classmethod
    def _is_thumbprint(cls, kid: str, info: ValidationInfo) -> str:
        x = info.data.get("x")
        if x is not None and kid != (thumbprint := _okp_key(x).thumbprint()):
            raise ValueError(f"must be the thumbprint of the key (RFC 7638), {thumbprint}")
        return kid


class _PrivateKey(PublicKey):
    d: Annotated[str, Field(repr=False)]


class _KeySet(_Strict):
    keys: tuple[PublicKey, ...] = Field(min_length=1)


@dataclass(frozen=True)
class ApproverKey:
    """The private half of an approver's key: it signs, and is never sent anywhere."""

    name: str
    roles: tuple[str, ...]
    _key: OKPKey = field(repr=False, compare=False)

    @classmethod
    def new(cls, name: str, roles: Iterable[str]) -> Self:
        """Make a key for `name`. Raises `InvalidInput` for a name or a role that cannot be one."""
        made = cls(name, tuple(roles), OKPKey.generate_key("Ed25519"))
        try:
            PublicKey.model_validate(made.public_jwk(), strict=False)
        except ValidationError as error:
            raise InvalidInput(f"no key was made: {summary(problems_in(error))}") from None
        return made

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a key that `save` wrote.

        Raises:
            InvalidInput: if the file cannot be read or holds no private key; says where and what to do.
        """
        try:
            raw = path.read_bytes()
        except OSError as error:
            message = f"no private key can be read from {path} ({error.strerror})"
            raise InvalidInput(f"{message}; `orderflow keys new NAME --role ROLE` makes one") from None
        member = _read_model(_PrivateKey, raw, str(path), InvalidInput)
        if (key := _private_half(member)) is None:
            raise InvalidInput(f"{path}: $.d: is not the private half of the key in $.x", path="$.d")
        return cls(member.name, member.roles, key)

    def save(self, path: Path) -> None:
        """Write the key to a new file that only its owner can read. Raises `InvalidInput` if there is one already."""
        text = canonical_json({**self.public_jwk(), "d": str(self._key.as_dict(private=True)["d"])})
        try:
            created = create_private(path)
        except FileExistsError:
            raise InvalidInput(f"{path} exists, and a key is never overwritten; choose another name") from None
        except OSError as error:
            raise InvalidInput(f"cannot write the private key to {path}: {error.strerror}") from None
        with created as file:
            file.write(text + b"\n")

    def public_jwk(self) -> dict[str, Any]:
        """The public half as a member of the JWK set."""
        public = self._key.as_dict(private=False)
        return {
            "kty": "OKP",
            "crv": "Ed25519",
            "x": public["x"],
            "kid": self._key.thumbprint(),
            "alg": _ALGORITHM,
            "use": "sig",
            "name": self.name,
            "roles": list(self.roles),
        }

    def sign(self, claims: Claims | OperationClaims) -> str:
        """Sign a decision or an operation as a compact JWS; its `typ` says which."""
        typ = DECISION_TYPE if isinstance(claims, Claims) else OPERATION_TYPE
        header = {"alg": _ALGORITHM, "kid": self._key.thumbprint(), "typ": typ}
        payload = canonical_json(claims.model_dump(mode="json"))
        return jws.serialize_compact(header, payload, self._key, registry=_ONLY_ED25519)


class KeyRegistry:
    """The approvers' public keys, by `kid`."""

    def __init__(self, members: Iterable[PublicKey] = ()) -> None:
        self._members = {member.kid: member for member in members}

    @classmethod
    def from_jwks(cls, raw: bytes, where: str) -> Self:
        """Read a JWK set; `where` is the file or setting that errors name.

        Raises:
            InvalidSettings: with every fault and its JSON path. Unlike RFC 7517, section 5, unknown kinds of keys are
                refused too: an approver whose key is ignored would find out at the first order.
        """
        keys = _read_model(_KeySet, raw, where, InvalidSettings).keys
        first = {key.kid: index for index, key in reversed(list(enumerate(keys)))}
        twice = [Problem(f"$.keys[{i}].kid", "appears more than once") for i, k in enumerate(keys) if first[k.kid] != i]
        if twice:
            raise document_refused(where, twice)
        return cls(keys)

    def with_added(self, jwk: dict[str, Any]) -> "KeyRegistry":
        """This registry and one more public key. Raises `InvalidInput` if the key is in it already, or is none."""
        added = _read_model(PublicKey, canonical_json(jwk), "the new key", InvalidInput)
        if added.kid in self._members:
            raise InvalidInput(f"the key {added.kid} of {added.name} is in the set already")
        return KeyRegistry([*self._members.values(), added])

    def as_jwks(self) -> bytes:
        """The JWK set as the text of a file, one key a line."""
        lines = (canonical_json(member.model_dump(mode="json", exclude_unset=True)) for member in self.members)
        return b'{"keys":[\n' + b",\n".join(lines) + b"\n]}\n"

    @property
    def members(self) -> tuple[PublicKey, ...]:
        """Every key, revoked ones included."""
        return tuple(self._members.values())

    def verify(self, token: str) -> Verdict:
        """Say whether one of these keys signed `token` as a decision, and whose it is. Nothing that comes in raises."""
        claims = read_claims(token)
        refusal, member = (claims, None) if isinstance(claims, Refusal) else self._signer(token, DECISION_TYPE)
        if refusal is not None or member is None:
            return Verdict(genuine=False, refusal=refusal, approver=member.name if member else None)
        return Verdict(genuine=True, approver=member.name, roles=member.roles)

    def verify_operation(self, token: str, alone_up_to: int = 0) -> OperationVerdict:
        """Say the same of `token` as an operation; `alone_up_to` is passed on. Nothing that comes in raises."""
        claims = read_operation(token)
        refusal, member = (claims, None) if isinstance(claims, Refusal) else self._signer(token, OPERATION_TYPE)
        if refusal is not None or member is None:
            return OperationVerdict(genuine=False, refusal=refusal, operator=member.name if member else None)
        return OperationVerdict(genuine=True, operator=member.name, roles=member.roles, alone_up_to=alone_up_to)

    def _signer(self, token: str, typ: str) -> tuple[Refusal | None, PublicKey | None]:
        """Who signed `token` as a `typ`, or why nobody counts; the owner of a revoked key is named."""
        header = _header(token)
        if header is None or header.typ != typ:
            return Refusal.MALFORMED, None
        if (member := self._members.get(header.kid)) is None:
            return Refusal.UNKNOWN_KEY, None
        if not _signed_by(member, token):
            return Refusal.BAD_SIGNATURE, None
        return (Refusal.REVOKED_KEY if member.revoked else None), member


def decision_for(request: ApprovalRequest, decision: Decision, approver: str, now: datetime) -> Claims:
    """What `approver` has to sign to decide on exactly this `request`, at `now` (aware).

    Raises `ValueError` for a naive time, which could mean any hour (A01).
    """
    if now.tzinfo is None:
        raise ValueError("a decision needs an aware time")
    return Claims(
        **request.bound.model_dump(),
        decision=decision,
        approver=approver,
        iat=int(now.timestamp()),
        jti=secrets.token_urlsafe(18),
    )


def operation_on(
    left: Standing,
    order: str,
    operation: Operation,
    operator: str,
    now: datetime,
    *,
    reason: str,
    outcome: Resolution | None = None,
    evidence: str | None = None,
) -> OperationClaims:
    """What `operator` has to sign to operate on exactly this effect of `order`, at `now` (aware).

    Raises `ValidationError` for a reason or evidence that is empty or too long, and for a resolution without either.
    """
    return OperationClaims(
        workflow_id=order,
        effect=left.key,
        operation=operation,
        outcome=outcome,
        amount_minor=left.amount_minor,
        currency=left.currency,
        reason=reason,
        evidence=evidence,
        operator=operator,
        iat=int(now.timestamp()),
        expires_at=int((now + VALID_FOR).timestamp()),
        jti=secrets.token_urlsafe(18),
    )


def _private_half(member: _PrivateKey) -> OKPKey | None:
    try:
        key = OKPKey.import_key({"kty": "OKP", "crv": "Ed25519", "x": member.x, "d": member.d})
    except (JoseError, ValueError):
        return None
    return key if OKPKey.import_key(key.public_key).thumbprint() == member.kid else None


def _header(token: str) -> _Header | None:
    try:
        return _Header.model_validate(unverified_header(token))
    except (NotCompactJws, ValidationError):
        return None


def _signed_by(member: PublicKey, token: str) -> bool:
    try:
        jws.deserialize_compact(token, _okp_key(member.x), registry=_ONLY_ED25519)
    except JoseError:
        return False
    return True


def _read_model(model: type[_M], raw: bytes, where: str, kind: type[InvalidInput]) -> _M:
    return read_model(model, raw, where, kind=kind, max_bytes=MAX_SET_BYTES, explained=_explained)


def _explained(problem: Problem) -> Problem:
    if problem.path.startswith("$.keys[") and problem.path.endswith(".d"):
        message = "is a private key: take it out, and replace this key if anyone else has read the file"
        return Problem(problem.path, message)
    return problem
