"""How a process of ours runs and ends: what it was doing gives way when it is told to stop, and it leaves for good."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn, TypeVar

from orderflow.domain.errors import OrderflowError, TransientError
from orderflow.settings import Settings, load_settings
from orderflow.telemetry import configure_logging

T = TypeVar("T")


async def unless_stopped(stopping: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """Give what `work` comes to; once `stopping` is set, cancel it, wait for its end and give `None`."""
    working, told = asyncio.create_task(work), asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait({working, told}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        working.cancel()
        told.cancel()
        await asyncio.wait({working, told})


@contextmanager
def stopped_by_signals(stopping: asyncio.Event) -> Iterator[None]:
    """Let SIGTERM, SIGINT and SIGHUP set `stopping`, by the interpreter where an event loop knows no signals (T51)."""
    loop = asyncio.get_running_loop()
    numbers = [signal.SIGTERM, signal.SIGINT]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup means it
        numbers.append(signal.SIGHUP)
    try:
        for number in numbers:
            loop.add_signal_handler(number, stopping.set)
    except NotImplementedError:
        before = {number: signal.signal(number, _setter(loop, stopping)) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        return
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def _setter(loop: asyncio.AbstractEventLoop, stopping: asyncio.Event) -> Callable[[int, FrameType | None], None]:
    def stop(_number: int, _frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(stopping.set)

    return stop


def exit_code_of(server: Callable[[Settings], Coroutine[Any, Any, None]]) -> int:
    """Run a server with the settings of the environment; gives its exit code: 0, 2 (settings), 3 (not reachable)."""
    try:
        settings = load_settings()
        configure_logging(settings.log_format)
        asyncio.run(server(settings))
    except OrderflowError as error:
        print(error, file=sys.stderr)
        return 3 if isinstance(error, TransientError) else 2
    return 0


def leave(code: int) -> NoReturn:
    """End this process at once: an interpreter that ends beside the SDK's threads may abort instead (134, 139)."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
