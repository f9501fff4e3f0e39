"""How a verb reaches Temporal: connect, do one piece of work, and say what is true when that is not possible."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from temporalio.client import Client
from temporalio.service import RPCError

from orderflow.cli.exits import NotReachable, Refused
from orderflow.client import UnknownOrder, connect
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
    return asyncio.run(_work(work, settings))


async def _work(work: Callable[[Client, Settings], Awaitable[T]], settings: Settings) -> T:
    client = await connect()
    try:
        return await work(client, settings)
    except UnknownOrder as error:
        raise Refused(f"unknown order: {error.message}") from None
    except RPCError as error:
        raise NotReachable(
            f"Temporal answered {error.status.name}: {error.message}; `orderflow doctor` says what is not as it should be"
        ) from None
