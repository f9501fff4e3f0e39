"""How a process of ours is told to stop, and how what it was doing gives way."""

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

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
