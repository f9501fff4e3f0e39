"""Whose deliveries count: the configured callers file, or a development caller.

The development caller exists for an orderflow with nothing configured beside a Temporal on this machine, and nowhere
else.
"""

from pathlib import Path

from orderflow.callers.development import (
    CALLERS_FILE,
    DEVELOPMENT_CALLER,
    development_folder,
    development_secret,
    ensure_development_caller,
)
from orderflow.callers.registry import CallerRegistry, Warn
from orderflow.domain.errors import InvalidInput, InvalidSettings
from orderflow.settings import Settings, authority_of, is_loopback
from orderflow.webhooks import SigningSecret, read_secret

__all__ = [
    "CALLERS_FILE",
    "CallerRegistry",
    "caller_registry",
    "development_folder",
    "file_in_use",
    "sender_secret",
]


def caller_registry(settings: Settings, address: str, warn: Warn) -> CallerRegistry:
    """Give the callers whose deliveries count.

    `address` is Temporal's `host:port`; `warn` is told in one sentence of what is not as it should be, and whenever
    the development caller is in use.

    Raises:
        InvalidSettings: if the configured file cannot be used, or there is none and Temporal is elsewhere (W10).
    """
    file = file_in_use(settings, address)
    if settings.callers_file is None:
        ensure_development_caller(file.parent)
        warn(f"a development caller is in use, anyone who reads {file.parent} can send events as {DEVELOPMENT_CALLER}")
    return CallerRegistry(file, warn)


def file_in_use(settings: Settings, address: str) -> Path:
    """Where the callers file lies: the configured one, or that of the development caller.

    Raises `InvalidSettings` if none is configured and Temporal, at `address`, is on another machine (W10).
    """
    if settings.callers_file is not None:
        return settings.callers_file
    if not is_loopback(address):
        raise InvalidSettings(
            f"ORDERFLOW_CALLERS_FILE is not set and Temporal is at {address}: set it to the file of those who may send"
            " events; `orderflow callers new NAME` makes a secret and shows what to write"
        )
    return development_folder(settings) / CALLERS_FILE


def sender_secret(settings: Settings) -> SigningSecret:
    """Give what `orderflow submit` signs with.

    Raises:
        InvalidSettings: if there is none, or one that cannot be used; says what to do (W10).
    """
    if settings.caller_secret is not None:
        try:
            return read_secret(settings.caller_secret.get_secret_value())
        except InvalidInput as error:
            raise InvalidSettings(f"ORDERFLOW_CALLER_SECRET: {error.message}", path="ORDERFLOW_CALLER_SECRET") from None
    if settings.callers_file is not None or not is_loopback(authority_of(settings.ingress_url)):
        raise InvalidSettings(
            f"ORDERFLOW_CALLER_SECRET is not set: set it to a secret that the door at {settings.ingress_url} knows"
        )
    return development_secret(development_folder(settings))
