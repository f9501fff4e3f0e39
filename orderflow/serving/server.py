"""Listen, serve an application within limits, and stop when told: no signal of its own, no lifespan, no access log."""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from orderflow.domain.errors import InvalidSettings
from orderflow.serving.connections import LimitedConfig
from orderflow.serving.limits import Limits, within_descriptors

_LAST_WORDS: Final = 1.0
"""Seconds in which requests that were cut off have to end."""


def listen(host: str, port: int) -> socket.socket:
    """Listen on an address of this machine; port 0 takes a free one.

    Raises:
        InvalidSettings: when the address cannot be listened on.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise InvalidSettings(f"cannot listen on {host} port {port}: {error}; choose another port") from None
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # head and body are two writes: 40 ms without it
    return listener


def url_of(listener: socket.socket) -> str:
    """Give the base URL of what listens, without a slash at its end."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def run_server(
    app: ASGIApp,
    listener: socket.socket,
    limits: Limits,
    stop: asyncio.Event,
    *,
    log_level: str = "error",
) -> None:
    """Serve `app` on the running loop until `stop` is set, then close `listener` and let requests in flight end.

    Connections are answered from the moment of `listen` on. What `app` needs is opened and closed by whoever calls:
    its lifespan is not run, and after the return nothing of it runs any more. Errors of `app` go to the logger
    `uvicorn.error`, from `log_level` on.
    """
    if (descriptors := _descriptors()) is not None:
        limits = within_descriptors(limits, descriptors)
    server = _Server(LimitedConfig(_cancellable(app), limits, log_level))
    serving, told = asyncio.create_task(server.serve(sockets=[listener])), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({serving, told}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        told.cancel()
        await server.end(serving, limits.in_flight)


@asynccontextmanager
async def served(
    app: ASGIApp, listener: socket.socket, limits: Limits, *, log_level: str = "error"
) -> AsyncIterator[str]:
    """Serve `app` as `run_server` does for as long as the context lasts, and give its base URL."""
    stop, url = asyncio.Event(), url_of(listener)
    task = asyncio.create_task(run_server(app, listener, limits, stop, log_level=log_level))
    try:
        yield url
    finally:
        stop.set()
        await task


def _descriptors() -> int | None:
    """How many files and sockets this process may have open, where a system limits that."""
    if sys.platform == "win32":
        return None
    import resource  # of POSIX

    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if most == resource.RLIM_INFINITY else most


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to `orderflow.stopping`: uvicorn raises them once more after it has shut down."""
        yield

    async def end(self, serving: asyncio.Task[None], in_flight: float) -> None:
        """Stop serving. uvicorn's own way would answer 500 to requests that are cut off, and not wait for them."""
        self.should_exit = True
        await asyncio.wait({serving}, timeout=in_flight)
        if not serving.done():
            for connection in list(self.server_state.connections):
                connection.transport.abort()
            for task in list(self.server_state.tasks):
                task.cancel()
            await asyncio.wait({serving}, timeout=_LAST_WORDS)
            self.force_exit = True
        await serving


def _cancellable(app: ASGIApp) -> ASGIApp:
    """To uvicorn a cancellation is an error of the application, which it logs with a traceback."""

    async def cancellable(scope: Scope, receive: Receive, send: Send) -> None:
        with suppress(asyncio.CancelledError):
            await app(scope, receive, send)

    return cancellable
