"""Secrets and keys of Standard Webhooks: `whsec_` for HMAC-SHA256 (`v1`), `whsk_` and `whpk_` for Ed25519 (`v1a`)."""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeVar

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from orderflow.domain.errors import InvalidInput

_SECRET, _PRIVATE, _PUBLIC = "whsec_", "whsk_", "whpk_"
_SECRET_BYTES: Final = range(24, 65)
_KEY_BYTES: Final = 32
_P: Final = 2**255 - 19
_ORDER_8: Final = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
_SIGN: Final = 1 << 255
_SMALL_ORDER: Final = frozenset({0, 1, _P - 1, _P, _P + 1, _ORDER_8, _P - _ORDER_8})
"""The y of each point of edwards25519 whose order divides 8 (RFC 7748, section 7): such a key proves nothing."""

_T = TypeVar("_T")
_Kinds = Mapping[str, Callable[[bytes], _T]]
"""By its prefix, what makes a key of a kind from its bytes."""


@dataclass(frozen=True, eq=False)
class SigningSecret:
    """What a sender signs with; made by `read_secret`, it shows nothing of itself."""

    _key: bytes | Ed25519PrivateKey = field(repr=False)

    def sign(self, signed: bytes) -> str:
        """Give the signature of these bytes as it stands in the header, `v1,…` or `v1a,…`."""
        if isinstance(self._key, bytes):
            return f"v1,{_hmac(self._key, signed).decode()}"
        return f"v1a,{base64.b64encode(self._key.sign(signed)).decode()}"


@dataclass(frozen=True, eq=False)
class VerifyingKey:
    """What a caller's signatures are verified with, until `until` (aware; not at that moment any more)."""

    caller: str
    until: datetime | None
    _key: bytes | Ed25519PublicKey = field(repr=False)

    @property
    def fingerprint(self) -> str:
        """The same for two keys that verify the same signatures, and no way back to the key."""
        raw = self._key if isinstance(self._key, bytes) else b"ed25519:" + self._key.public_bytes_raw()
        return hashlib.sha256(raw).hexdigest()

    def is_active(self, now: datetime) -> bool:
        """Whether it still counts at `now`, aware."""
        return self.until is None or now < self.until

    @property
    def algorithm(self) -> str:
        """`HMAC-SHA256` or `Ed25519`."""
        return "HMAC-SHA256" if isinstance(self._key, bytes) else "Ed25519"

    def made_any(self, signed: bytes, shared: Sequence[bytes], ed25519: Sequence[bytes]) -> bool:
        """Whether one of these signatures of `signed` is this key's: `v1` in base64, or `v1a` as raw bytes."""
        if not isinstance(self._key, bytes):
            return sum(_is_signature(self._key, raw, signed) for raw in ed25519) > 0
        made = _hmac(self._key, signed) if shared else b""
        return sum(hmac.compare_digest(made, text) for text in shared) > 0  # not any(), which stops at the first


def read_secret(text: str) -> SigningSecret:
    """Read `whsec_` or `whsk_` and base64; white space around it is no part of it.

    Raises:
        InvalidInput: says what is wrong, and never repeats the secret (W10).
    """
    kinds: _Kinds[bytes | Ed25519PrivateKey] = {_SECRET: _secret, _PRIVATE: _private_key}
    return SigningSecret(_read(text.strip(), kinds))


def read_verifying_key(text: str, caller: str, until: datetime | None) -> VerifyingKey:
    """Read what verifies the signatures of `caller`: the shared `whsec_…`, or the public `whpk_…`.

    Raises:
        InvalidInput: says what is wrong, and never repeats the secret (W10).
    """
    kinds: _Kinds[bytes | Ed25519PublicKey] = {_SECRET: _secret, _PUBLIC: _public_key}
    return VerifyingKey(caller, until, _read(text.strip(), kinds))


def new_secret() -> str:
    """Make a shared secret, `whsec_…`."""
    return _SECRET + base64.b64encode(secrets.token_bytes(32)).decode()


def new_key_pair() -> tuple[str, str]:
    """Make an Ed25519 key pair: `whsk_…` for the sender, `whpk_…` for the receiver."""
    key = Ed25519PrivateKey.generate()
    raw = (key.private_bytes_raw(), key.public_key().public_bytes_raw())
    private, public = (base64.b64encode(half).decode() for half in raw)
    return _PRIVATE + private, _PUBLIC + public


def _hmac(key: bytes, signed: bytes) -> bytes:
    return base64.b64encode(hmac.digest(key, signed, "sha256"))


def _is_signature(key: Ed25519PublicKey, signature: bytes, signed: bytes) -> bool:
    try:
        key.verify(signature, signed)
    except InvalidSignature:
        return False
    return True


def _read(text: str, kinds: _Kinds[_T]) -> _T:
    if not text:
        raise InvalidInput("is blank; give a secret such as `orderflow callers new NAME` makes")
    for prefix, read in kinds.items():
        if text.startswith(prefix):
            return read(_decoded(prefix, text.removeprefix(prefix)))
    raise InvalidInput(f"must begin with {' or '.join(kinds)}, followed by base64")


def _decoded(prefix: str, text: str) -> bytes:
    try:
        raw = base64.b64decode(text, validate=True)
    except ValueError:  # binascii.Error is one, and so is a character that is not ASCII
        raise InvalidInput(f"must be {prefix} and then base64 with its padding (RFC 4648, section 4)") from None
    return raw


def _secret(raw: bytes) -> bytes:
    if len(raw) not in _SECRET_BYTES:
        limits = f"{_SECRET_BYTES.start} to {_SECRET_BYTES.stop - 1}"
        raise InvalidInput(f"must hold {limits} random bytes in base64 after {_SECRET}, not {len(raw)}")
    if not any(raw):
        raise InvalidInput("is a placeholder of zeros; put a random secret there")
    return raw


def _private_key(raw: bytes) -> Ed25519PrivateKey:
    """The 32 bytes of RFC 8032, or those followed by the public key, as some libraries keep both."""
    if len(raw) not in {_KEY_BYTES, 2 * _KEY_BYTES}:
        raise InvalidInput(f"must hold the {_KEY_BYTES} bytes of an Ed25519 private key in base64 after {_PRIVATE}")
    key = Ed25519PrivateKey.from_private_bytes(raw[:_KEY_BYTES])
    if raw[_KEY_BYTES:] not in {b"", key.public_key().public_bytes_raw()}:
        raise InvalidInput("holds a private and a public key that do not belong together")
    return key


def _public_key(raw: bytes) -> Ed25519PublicKey:
    if len(raw) != _KEY_BYTES:
        raise InvalidInput(f"must hold the {_KEY_BYTES} bytes of an Ed25519 public key in base64 after {_PUBLIC}")
    if int.from_bytes(raw, "little") & ~_SIGN in _SMALL_ORDER:
        raise InvalidInput("is a public key for which anybody can make signatures, such as a placeholder of zeros")
    return Ed25519PublicKey.from_public_bytes(raw)
