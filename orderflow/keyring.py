"""The key ring of the payload codec: AES-256 keys by id, as a JWK set (RFC 7517); the last one in it encrypts."""

import base64
import binascii
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal, Self

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from orderflow.domain.documents import read_model
from orderflow.domain.errors import InvalidSettings

KEY_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_KEY_BYTES: Final = 32


def _is_key(text: str) -> str:
    """Refuse what is no key, in words that do not hold it."""
    try:
        key = base64.b64decode(text + "=", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != _KEY_BYTES or "=" in text:
        raise ValueError("must be the 32 bytes of a key in base64url without padding")
    return text


class _Key(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)

    kty: Literal["oct"] = "oct"
    kid: Annotated[str, Field(pattern=f"^{KEY_ID.pattern}$")]
    alg: Literal["A256GCM"] = "A256GCM"
    k: Annotated[str, AfterValidator(_is_key), Field(repr=False)]


class _KeySet(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)

    keys: tuple[_Key, ...] = Field(min_length=1)


@dataclass(frozen=True)
class KeyRing:
    """Keys by id, in the order of their set: `newest`, the last, encrypts; all of them decrypt."""

    _ciphers: dict[str, AESGCM] = field(repr=False)

    @classmethod
    def from_jwks(cls, raw: bytes, where: str) -> Self:
        """Read a JWK set of `oct` keys with `alg` A256GCM; `where` names it in errors.

        Raises `InvalidSettings` for anything else, two keys of one id included; its words never hold a key.
        """
        keys = read_model(_KeySet, raw, where).keys
        ids = [key.kid for key in keys]
        if twice := sorted({kid for kid in ids if ids.count(kid) > 1}):
            raise InvalidSettings(f"{where}: two keys have the id {twice[0]}")
        return cls({key.kid: AESGCM(base64.urlsafe_b64decode(key.k + "=")) for key in keys})

    @property
    def key_ids(self) -> tuple[str, ...]:
        """The id of each key, the newest last."""
        return tuple(self._ciphers)

    @property
    def newest(self) -> str:
        """The id of the key that encrypts."""
        return self.key_ids[-1]

    def cipher(self, key_id: str) -> AESGCM:
        """The cipher of a key of the ring. Raises `KeyError` for any other."""
        return self._ciphers[key_id]


def with_new_key(raw: bytes | None, key_id: str, where: str, *, first: bool = False) -> bytes:
    """The JWK set `raw`, or none, with a new random key: the last, which encrypts, or the `first`, which does not yet.

    Raises `InvalidSettings` for a set that cannot be read and an id that cannot be one, or is there already.
    """
    keys: Sequence[_Key] = read_model(_KeySet, raw, where).keys if raw is not None else ()
    if not KEY_ID.fullmatch(key_id):
        raise InvalidSettings(f"{key_id!r} cannot be the id of a key: letters, digits, and . _ - after the first")
    if key_id in {key.kid for key in keys}:
        raise InvalidSettings(f"{where}: there is a key {key_id} already")
    made = _Key(kid=key_id, k=secrets.token_urlsafe(_KEY_BYTES))
    changed = _KeySet(keys=(made, *keys) if first else (*keys, made))
    return changed.model_dump_json(indent=2).encode() + b"\n"
