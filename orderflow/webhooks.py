"""Standard Webhooks (standardwebhooks.com, 1.0): signing a delivery, and finding out who signed one.

Signed is `<webhook-id>.<webhook-timestamp>.<body>`, the bytes as they were received (W01): as `v1` with HMAC-SHA256 and
a shared secret `whsec_…`, or as `v1a` with Ed25519, `whsk_…` for the sender and `whpk_…` for the receiver.

What stands in the headers is told to anybody who sends it in a wrong form, for that is public. Whether a timestamp is
fresh is told only to those whose signature is good: nobody else learns more than that theirs is not.
"""

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, TypeVar

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from orderflow.domain.deliveries import Cause, DeliveryRefused
from orderflow.domain.errors import InvalidInput

MAX_AGE: Final = timedelta(seconds=300)
"""How long ago a delivery may have been stamped (W04)."""

MAX_SKEW: Final = timedelta(seconds=60)
"""How far a sender's clock may be ahead of ours (W04)."""

MAX_CANDIDATES: Final = 10
"""Signatures that one delivery may carry (W03)."""

MAX_ED25519_CANDIDATES: Final = 2
"""Of them, those of Ed25519, each a hundred times the work: a sender that rotates its key signs with both."""

HEADERS: Final = (b"webhook-id", b"webhook-timestamp", b"webhook-signature")

_SECRET, _PRIVATE, _PUBLIC = "whsec_", "whsk_", "whpk_"
_SECRET_BYTES: Final = range(24, 65)
_KEY_BYTES: Final = 32
_SIGNATURE_BYTES: Final = 64
_MAX_SIGNATURES: Final = 4096
_P: Final = 2**255 - 19
_ORDER_8: Final = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
_SIGN: Final = 1 << 255
_SMALL_ORDER: Final = frozenset({0, 1, _P - 1, _P, _P + 1, _ORDER_8, _P - _ORDER_8})
"""The y of each point of edwards25519 whose order divides 8 (RFC 7748, section 7): such a key proves nothing."""

_ID: Final = re.compile(rb"[!-\-/-~]{1,256}")  # no ".": what is signed could be cut in two ways
_TIMESTAMP: Final = re.compile(rb"[0-9]{1,12}")
_NOBODY: Final = "no signature is that of a known caller; sign <webhook-id>.<webhook-timestamp>.<body>, byte by byte"

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


@dataclass(frozen=True)
class Signed:
    """A delivery that is genuine and fresh: whose it is, its id, and when it was stamped, in Unix seconds."""

    caller: str
    webhook_id: str
    timestamp: int


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


def signed_headers(secret: SigningSecret, webhook_id: str, body: bytes, now: datetime) -> dict[str, str]:
    """Give the three headers of a delivery of `body` at `now` (aware); `webhook_id` stays the same when it is retried.

    Raises:
        InvalidInput: for an id that no receiver would take.
    """
    if not webhook_id.isascii() or not _ID.fullmatch(webhook_id.encode()):
        raise InvalidInput("a webhook-id has 1 to 256 printable ASCII characters without spaces and full stops")
    stamp = str(int(_seconds(now)))
    signed = b".".join((webhook_id.encode(), stamp.encode(), body))
    return {"webhook-id": webhook_id, "webhook-timestamp": stamp, "webhook-signature": secret.sign(signed)}


def verify(headers: Sequence[tuple[bytes, bytes]], body: bytes, keys: Sequence[VerifyingKey], now: datetime) -> Signed:
    """Find out who signed `body`, at `now` (aware). `headers` are pairs of raw bytes, names in any case.

    The work depends on the number of keys and on the form of the headers, never on which key or signature fits.

    Raises:
        DeliveryRefused: `SIGNATURE_MISSING` unless there is exactly one of each header (W11); `SIGNATURE_INVALID` for
            one in a wrong form (W02, W04) or when no active key, or those of two callers, made a signature (W03);
            `TIMESTAMP_OUTSIDE_WINDOW` for a genuine one that is too old or from the future (W04).
    """
    webhook_id, timestamp, signatures = _exactly_one_of_each(headers)
    _require_form(webhook_id, timestamp)
    candidates = _candidates(signatures)
    active = [key for key in keys if key.is_active(now)]
    callers = _signers(active, b".".join((webhook_id, timestamp, body)), candidates)
    if len(callers) != 1:
        raise _invalid(_NOBODY if not callers else "the signatures are those of more than one caller; send one's own")
    _require_fresh(int(timestamp), _seconds(now))
    return Signed(callers.pop(), webhook_id.decode(), int(timestamp))


def _exactly_one_of_each(headers: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
    given: dict[bytes, list[bytes]] = {name: [] for name in HEADERS}
    for name, value in headers:
        if (known := name.lower()) in given:
            given[known].append(value)
    if wrong := [name.decode() for name, values in given.items() if len(values) != 1]:
        message = f"each of {', '.join(name.decode() for name in HEADERS)} must be sent exactly once"
        raise DeliveryRefused(Cause.SIGNATURE_MISSING, f"{message}; missing or repeated: {', '.join(wrong)}")
    return [values[0] for values in given.values()]


def _require_form(webhook_id: bytes, timestamp: bytes) -> None:
    if not _ID.fullmatch(webhook_id):
        raise _invalid("webhook-id must have 1 to 256 printable ASCII characters without spaces and full stops")
    if not _TIMESTAMP.fullmatch(timestamp):
        raise _invalid("webhook-timestamp must be the Unix time in whole seconds, as at most 12 decimal digits")


def _candidates(signatures: bytes) -> list[tuple[bytes, bytes]]:
    """The signatures by version; versions that are not known are for others (W03)."""
    if len(signatures) > _MAX_SIGNATURES or signatures.count(b" ") >= MAX_CANDIDATES:
        raise _invalid(f"webhook-signature may hold at most {MAX_CANDIDATES} signatures and {_MAX_SIGNATURES} bytes")
    split = [(version, text) for version, _, text in (part.partition(b",") for part in signatures.split(b" "))]
    candidates = [(version, text) for version, text in split if version in {b"v1", b"v1a"}]
    if not candidates:
        raise _invalid("webhook-signature must hold v1,<base64> or v1a,<base64>; several are set apart by one space")
    if sum(version == b"v1a" for version, _ in candidates) > MAX_ED25519_CANDIDATES:
        raise _invalid(f"webhook-signature may hold at most {MAX_ED25519_CANDIDATES} signatures v1a")
    return candidates


def _signers(keys: Iterable[VerifyingKey], signed: bytes, candidates: list[tuple[bytes, bytes]]) -> set[str]:
    """The callers one of whose keys made one of the signatures; every pair is tried, whatever came of the others."""
    shared = [text for version, text in candidates if version == b"v1"]
    ed25519 = [raw for version, text in candidates if version == b"v1a" for raw in _signature_bytes(text)]
    return {key.caller for key in keys if key.made_any(signed, shared, ed25519)}


def _require_fresh(timestamp: int, now: float) -> None:
    age = now - timestamp
    if -MAX_SKEW.total_seconds() <= age <= MAX_AGE.total_seconds():
        return
    message = f"webhook-timestamp is {age:.0f} s old" if age > 0 else f"webhook-timestamp is {-age:.0f} s in the future"
    limits = f"at most {MAX_AGE.seconds} s old and {MAX_SKEW.seconds} s ahead is taken"
    advice = "look at your clock, and stamp and sign each attempt anew"
    raise DeliveryRefused(Cause.TIMESTAMP_OUTSIDE_WINDOW, f"{message}; {limits}: {advice}")


def _invalid(message: str) -> DeliveryRefused:
    return DeliveryRefused(Cause.SIGNATURE_INVALID, message)


def _seconds(now: datetime) -> float:
    if now.tzinfo is None:
        raise ValueError("a delivery needs an aware time")
    return now.timestamp()


def _hmac(key: bytes, signed: bytes) -> bytes:
    return base64.b64encode(hmac.digest(key, signed, "sha256"))


def _is_signature(key: Ed25519PublicKey, signature: bytes, signed: bytes) -> bool:
    try:
        key.verify(signature, signed)
    except InvalidSignature:
        return False
    return True


def _signature_bytes(text: bytes) -> Iterable[bytes]:
    """The 64 bytes that `text` is the one base64 form of, if it is that."""
    try:
        raw = base64.b64decode(text, validate=True)
    except binascii.Error:
        return
    if len(raw) == _SIGNATURE_BYTES and base64.b64encode(raw) == text:
        yield raw


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
