"""How a verb reaches Temporal: connect, do one piece of work, and say what is true when that is not possible."""

import asyncio
import shlex
import shutil
from collections.abc import Awaitable, Callable
from functools import cache
from typing import TypeVar

from temporalio.client import Client
from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter
from temporalio.service import RPCError

from orderflow.cli.exits import NotReachable, Refused
from orderflow.client import UnknownOrder, connect
from orderflow.client.connection import DEFAULT_ADDRESS, profile
from orderflow.domain.errors import InvalidSettings
from orderflow.embedded import find_temporal
from orderflow.settings import Settings, load_settings

T = TypeVar("T")


def with_temporal(work: Callable[[Client, Settings], Awaitable[T]]) -> T:
    """Run `work` with a client and the settings. One try to connect: a person is waiting.

    Raises:
        InvalidSettings, ServerUnreachable: as `orderflow.client.connect` does.
        Refused: if there is no such order.
        NotReachable: if Temporal answers with an error that nobody expected.
    """
    settings = load_settings()
    quieten_client()
    return asyncio.run(_work(work, settings))


@cache
def quieten_client() -> None:
    """Keep the client library's own notes about retries off standard error: what matters comes back as an error."""
    only_errors = TelemetryFilter(core_level="ERROR", other_level="ERROR")
    telemetry = TelemetryConfig(logging=LoggingConfig(filter=only_errors))
    Runtime.set_default(Runtime(telemetry=telemetry), error_if_already_set=False)


async def _work(work: Callable[[Client, Settings], Awaitable[T]], settings: Settings) -> T:
    client = await connect()
    try:
        return await work(client, settings)
    except UnknownOrder as error:
        raise Refused(f"unknown order: {error.message}") from None
    except RPCError as error:
        answer = f"Temporal answered {error.status.name}: {error.message}"
        raise NotReachable(f"{answer}; `orderflow doctor` says what is not as it should be") from None


def runnable(command: str, settings: Settings) -> str:
    """Give a `temporal …` command that runs as it stands: with the program's own path when PATH does not lead to it."""
    if shutil.which("temporal"):
        return command
    try:
        program = find_temporal(settings.temporal_binary)
    except InvalidSettings:  # whoever runs it may well have one
        return command
    return shlex.quote(str(program)) + command.removeprefix("temporal")


def temporal_target() -> tuple[str, str]:
    """Give `host:port` and namespace that Temporal's own profile and variables name, without connecting.

    Raises `InvalidSettings` if they cannot be used.
    """
    config = profile()
    return config.get("target_host") or DEFAULT_ADDRESS, config.get("namespace") or "default"
