"""Deliveries as a sender makes them, and what the door's side says of them."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from orderflow.domain.deliveries import Cause, DeliveryRefused
from orderflow.webhooks import Signed, VerifyingKey, read_secret, read_verifying_key, signed_headers, verify

NOW: Final = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)
SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo="
OTHER_SECRET: Final = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oDC2FVsBQIhrs="
WEBHOOK_ID: Final = "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W"

Headers = list[tuple[bytes, bytes]]


def key(text: str = SECRET, caller: str = "shop", until: datetime | None = None) -> VerifyingKey:
    """What verifies the signatures of `caller`."""
    return read_verifying_key(text, caller, until)


def headers_of(
    body: bytes, *secrets: str, now: datetime = NOW, webhook_id: str = WEBHOOK_ID, timestamp: bytes | None = None
) -> Headers:
    """The headers of a delivery signed with each of `secrets` at `now`, or truly with another text as timestamp."""
    made = [signed_headers(read_secret(secret), webhook_id, body, now) for secret in secrets or (SECRET,)]
    stamp = made[0]["webhook-timestamp"].encode() if timestamp is None else timestamp
    signed = b".".join((webhook_id.encode(), stamp, body))
    signatures = " ".join(read_secret(secret).sign(signed) for secret in secrets or (SECRET,))
    return [
        (b"webhook-id", webhook_id.encode()),
        (b"webhook-timestamp", stamp),
        (b"webhook-signature", signatures.encode()),
    ]


def replaced(headers: Headers, name: bytes, value: bytes) -> Headers:
    """These headers with one of them changed."""
    return [(known, value if known == name else old) for known, old in headers]


def said(
    headers: Sequence[tuple[bytes, bytes]],
    body: bytes = b"{}",
    keys: Iterable[VerifyingKey] | None = None,
    now: datetime = NOW,
) -> Cause | Signed:
    """What `verify` says: whose the delivery is, or why it is refused. Any other exception is a finding."""
    try:
        return verify(headers, body, [key()] if keys is None else list(keys), now)
    except DeliveryRefused as refused:
        return refused.cause
