"""Standard Webhooks (standardwebhooks.com, 1.0): signing a delivery, and finding out who signed one.

Signed is `<webhook-id>.<webhook-timestamp>.<body>`, the bytes as they were received (W01): as `v1` with HMAC-SHA256 and
a shared secret, or as `v1a` with Ed25519.
"""

from orderflow.webhooks.keys import (
    SigningSecret,
    VerifyingKey,
    new_key_pair,
    new_secret,
    read_secret,
    read_verifying_key,
)
from orderflow.webhooks.verification import (
    HEADERS,
    MAX_AGE,
    MAX_CANDIDATES,
    MAX_ED25519_CANDIDATES,
    MAX_SKEW,
    Signed,
    signed_headers,
    verify,
)

__all__ = [
    "HEADERS",
    "MAX_AGE",
    "MAX_CANDIDATES",
    "MAX_ED25519_CANDIDATES",
    "MAX_SKEW",
    "Signed",
    "SigningSecret",
    "VerifyingKey",
    "new_key_pair",
    "new_secret",
    "read_secret",
    "read_verifying_key",
    "signed_headers",
    "verify",
]
