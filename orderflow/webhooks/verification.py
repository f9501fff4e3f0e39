"""The headers of a delivery: making them, and finding out from them whose it is.

What stands in them is told to anybody who sends it in a wrong form, for that is public. Whether a timestamp is fresh is
told only to those whose signature is good: nobody else learns more than that theirs is not.
"""

import base64
import binascii
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from orderflow.domain.deliveries import Cause, DeliveryRefused
from orderflow.domain.errors import InvalidInput
from orderflow.webhooks.keys import SigningSecret, VerifyingKey

MAX_AGE: Final = timedelta(seconds=300)
"""How long ago a delivery may have been stamped (W04)."""

MAX_SKEW: Final = timedelta(seconds=60)
"""How far a sender's clock may be ahead of ours (W04)."""

MAX_CANDIDATES: Final = 10
"""Signatures that one delivery may carry (W03)."""

MAX_ED25519_CANDIDATES: Final = 2
"""Of them, those of Ed25519, each thirty times the work: a sender that rotates its key signs with both."""

HEADERS: Final = (b"webhook-id", b"webhook-timestamp", b"webhook-signature")

_MAX_SIGNATURES: Final = 4096
_SIGNATURE_BYTES: Final = 64
_ID: Final = re.compile(rb"[!-\-/-~]{1,256}")  # no ".": what is signed could be cut in two ways
_TIMESTAMP: Final = re.compile(rb"[0-9]{1,12}")
_NOBODY: Final = "no signature is that of a known caller; sign <webhook-id>.<webhook-timestamp>.<body>, byte by byte"


@dataclass(frozen=True)
class Signed:
    """A delivery that is genuine and fresh: whose it is, its id, and when it was stamped, in Unix seconds."""

    caller: str
    webhook_id: str
    timestamp: int


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
    off = math.ceil(abs(age))  # rounded to the nearest it could read as within the limits
    message = f"webhook-timestamp is {off} s {'old' if age > 0 else 'in the future'}"
    limits = f"at most {MAX_AGE.seconds} s old and {MAX_SKEW.seconds} s ahead is taken"
    advice = "look at your clock, and stamp and sign each attempt anew"
    raise DeliveryRefused(Cause.TIMESTAMP_OUTSIDE_WINDOW, f"{message}; {limits}: {advice}")


def _invalid(message: str) -> DeliveryRefused:
    return DeliveryRefused(Cause.SIGNATURE_INVALID, message)


def _seconds(now: datetime) -> float:
    if now.tzinfo is None:
        raise ValueError("a delivery needs an aware time")
    return now.timestamp()


def _signature_bytes(text: bytes) -> Iterable[bytes]:
    """The 64 bytes that `text` is the one base64 form of, if it is that."""
    try:
        raw = base64.b64decode(text, validate=True)
    except binascii.Error:
        return
    if len(raw) == _SIGNATURE_BYTES and base64.b64encode(raw) == text:
        yield raw
