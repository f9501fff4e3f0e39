"""Connecting to Temporal as its own environment variables and TOML profile say (`temporalio.envconfig`)."""

import asyncio
import math
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from temporalio.client import Client
from temporalio.converter import DataConverter
from temporalio.envconfig import ClientConfigProfile, ClientConnectConfig
from temporalio.service import RPCError, RPCStatusCode

from orderflow.client.converter import data_converter
from orderflow.domain.errors import InvalidSettings, TransientError
from orderflow.settings import Settings, is_loopback

DEFAULT_ADDRESS = "localhost:7233"

_ONE_TRY = timedelta(seconds=5)
_PAUSE = 1.0
_QUOTED_REASON = re.compile(r'(?:message|error): "([^"]+)"')
_UNREACHABLE = frozenset(
    {
        RPCStatusCode.UNAVAILABLE,
        RPCStatusCode.DEADLINE_EXCEEDED,
        RPCStatusCode.CANCELLED,  # how the SDK reports that its own deadline passed
        RPCStatusCode.PERMISSION_DENIED,
        RPCStatusCode.UNAUTHENTICATED,
    }
)


class ServerUnreachable(TransientError):
    """Temporal does not answer, or does not let us in; the message says where, why, and what to do."""


async def connect(
    settings: Settings | None = None,
    *,
    address: str | None = None,
    namespace: str | None = None,
    use_profile: bool = True,
    say: Callable[[str], None] | None = None,
) -> Client:
    """Connect to Temporal. `address` (`host:port`) and `namespace` count more than Temporal's profile.

    One try; with `settings`, as many as `wait_for_server` has time for, and `say` hears once that we are waiting. A
    server that this process has started itself is reached without `use_profile`: no TLS, no API key, whatever is set.
    Payloads are encrypted as `settings` say, those of the environment if none are given.

    Raises:
        InvalidSettings: if Temporal's profile, the address or the payload keys cannot be used.
        ServerUnreachable: if it does not answer in time.
    """
    config = profile() if use_profile else ClientConnectConfig()
    config["target_host"] = address or config.get("target_host") or DEFAULT_ADDRESS
    config["namespace"] = namespace or config.get("namespace") or "default"
    seconds: float | None = 0 if settings is None else settings.wait_for_server
    converter = data_converter(settings)
    give_up_at = math.inf if seconds is None else time.monotonic() + seconds
    while True:
        try:
            return await _connect_once(config, converter)
        except ServerUnreachable as error:
            if time.monotonic() + _PAUSE > give_up_at:
                raise
            if say is not None:
                say(f"{error.message}; still trying")
                say = None
        await asyncio.sleep(_PAUSE)


def address_of(client: Client) -> str:
    """Give the `host:port` that `client` talks to."""
    return client.service_client.config.target_host


@contextmanager
def reachable(client: Client) -> Iterator[None]:
    """Turn the refusals that any call to Temporal can meet into `ServerUnreachable` or `InvalidSettings`."""
    try:
        yield
    except RPCError as error:
        if error.status in _UNREACHABLE:
            raise _unreachable(address_of(client), error.message) from None
        if error.status is RPCStatusCode.NOT_FOUND and "namespace" in error.message.casefold():
            raise InvalidSettings(_no_namespace(client), path="TEMPORAL_NAMESPACE") from None
        raise


def profile() -> ClientConnectConfig:
    """Give what Temporal's own profile and variables say, without connecting. Raises `InvalidSettings`."""
    try:
        return ClientConfigProfile.load().to_client_connect_config()
    except (RuntimeError, OSError, ValueError) as error:
        fault = " ".join(str(error).split())
        raise InvalidSettings(f"Temporal's own profile or TEMPORAL_* variables cannot be used: {fault}") from None


async def _connect_once(config: ClientConnectConfig, converter: DataConverter) -> Client:
    address = config["target_host"]
    try:
        async with asyncio.timeout(2 * _ONE_TRY.total_seconds()):
            return await Client.connect(**config, data_converter=converter, connect_timeout=_ONE_TRY)
    except ValueError as error:
        raise InvalidSettings(f"TEMPORAL_ADDRESS: {address} is not host:port ({error})") from None
    except TimeoutError:
        raise _unreachable(address, "no answer") from None
    except RuntimeError as error:  # the SDK has no narrower type for this
        raise _unreachable(address, str(error)) from None


def _unreachable(address: str, error: str) -> ServerUnreachable:
    reasons = _QUOTED_REASON.findall(error)
    advice = (
        "start one with `temporal server start-dev`, or set TEMPORAL_ADDRESS"
        if is_loopback(address)
        else "check TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, TLS and the API key"
    )
    return ServerUnreachable(
        f"Temporal cannot be used at {address} ({reasons[-1] if reasons else error[:200]}); {advice}"
    )


def _no_namespace(client: Client) -> str:
    address, namespace = address_of(client), client.namespace
    create = f"temporal operator namespace create --address {address} --namespace {namespace}"
    return f"the namespace {namespace} does not exist at {address}: set TEMPORAL_NAMESPACE, or run: {create}"
