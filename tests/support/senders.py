"""Senders as the world has them: they sign by hand or with the library of the standard, never with our own code."""

import base64
import hashlib
import hmac
import json
import os
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.order_events import event

MEDIA_TYPE: Final = "application/cloudevents+json"

CANARIES: Final = ("canary-customer-5f1c", "canary-5f1c@example.org", "canary note 5f1c")
"""Customer, e-mail address and note of every event that a test sends: what nothing may repeat."""

Text = str | bytes
Headers = Sequence[tuple[Text, Text]]


def new_secret() -> str:
    """A `whsec_` secret."""
    return "whsec_" + base64.b64encode(os.urandom(24)).decode()


def placed(**changes: object) -> dict[str, Any]:
    """A valid event with an id of its own, full of canaries; `changes` are members by path, see `order_events`."""
    customer, email, note = CANARIES
    told = {"data__customer__id": customer, "data__customer__email": email, "data__note": note}
    return event(**{"id": uuid.uuid4().hex, **told, **changes})


def as_bytes(value: object) -> bytes:
    """JSON as most senders write it; bytes as they are."""
    return value if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False).encode()


def hmac_signature(secret: str, webhook_id: Text, stamp: Text, body: bytes) -> str:
    """`v1,…` over id, timestamp and body."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    return "v1," + base64.b64encode(hmac.new(key, _signed(webhook_id, stamp, body), hashlib.sha256).digest()).decode()


def _signed(*parts: Text) -> bytes:
    return b".".join(part if isinstance(part, bytes) else part.encode() for part in parts)


@dataclass(frozen=True)
class Sender:
    """One caller: what it signs with, where its events come from, and its token for questions."""

    name: str
    source: str
    secret: str | Ed25519PrivateKey = field(repr=False, default_factory=new_secret)
    token: str = field(repr=False, default_factory=lambda: base64.urlsafe_b64encode(os.urandom(24)).decode())

    def sign(self, webhook_id: Text, stamp: Text, body: bytes) -> str:
        """One signature."""
        if isinstance(self.secret, str):
            return hmac_signature(self.secret, webhook_id, stamp, body)
        return "v1a," + base64.b64encode(self.secret.sign(_signed(webhook_id, stamp, body))).decode()

    def headers(
        self,
        body: bytes,
        *,
        webhook_id: str | None = None,
        stamp: int | str | None = None,
        signature: Text | None = None,
        media_type: Text | None = MEDIA_TYPE,
    ) -> list[tuple[Text, Text]]:
        """The headers of one delivery of `body`, with a nonce of its own and the time of now unless they are given."""
        number = webhook_id or f"msg_{uuid.uuid4().hex}"
        second = str(int(time.time()) if stamp is None else stamp)
        signed = self.sign(number, second, body) if signature is None else signature
        named = [("webhook-id", number), ("webhook-timestamp", second), ("webhook-signature", signed)]
        return [*named, *([("content-type", media_type)] if media_type is not None else [])]

    def placed(self, **changes: object) -> dict[str, Any]:
        """A valid event of this caller."""
        return placed(**{"source": self.source, **changes})


def public_key(sender: Sender) -> str:
    """The `whpk_` half of a sender's Ed25519 key."""
    if isinstance(sender.secret, str):
        raise TypeError(f"{sender.name} signs with a shared secret")
    return "whpk_" + base64.b64encode(sender.secret.public_key().public_bytes_raw()).decode()


def without(headers: Headers, *names: str) -> list[tuple[Text, Text]]:
    """These headers, but for some."""
    return [(name, value) for name, value in headers if name not in names]


def changed(headers: Headers, **values: Text) -> list[tuple[Text, Text]]:
    """These headers with other values, `webhook_id` for `webhook-id`."""
    new = {name.replace("_", "-"): value for name, value in values.items()}
    return [(name, new.get(str(name), value)) for name, value in headers]


def write_json(path: Path, value: object) -> None:
    """Write a file at once, as whoever rotates secrets should."""
    written = path.with_name(f"{path.name}.new")
    written.write_text(json.dumps(value), encoding="utf-8")
    written.replace(path)
