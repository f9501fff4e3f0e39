"""Bytes to an HTTP server as no client library would send them, and what comes back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

PATIENCE = 10.0
"""Seconds that any answer, or the end of a connection, may take."""


@dataclass(frozen=True)
class Answer:
    """One HTTP answer; names of headers in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class Peer:
    """One connection to a server, by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def to(cls, url: str) -> Self:
        """Connect."""
        address = urlsplit(url)
        return cls(*await asyncio.open_connection(address.hostname, address.port))

    async def send(self, data: bytes) -> None:
        """Send bytes; waits while the server takes no more."""
        self._writer.write(data)
        await self._writer.drain()

    async def answer(self, *, to: str = "POST") -> Answer:
        """Read one answer, to a request of the method `to`."""
        async with asyncio.timeout(PATIENCE):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            pairs = [line.split(": ", 1) for line in head[1:] if line]
            headers = {name.lower(): value for name, value in pairs}
            length = 0 if to == "HEAD" else int(headers.get("content-length", 0))
            return Answer(int(head[0].split()[1]), headers, await self._reader.readexactly(length))

    async def ask(self, data: bytes) -> Answer:
        """Send bytes and read one answer."""
        await self.send(data)
        return await self.answer()

    async def rest(self) -> bytes:
        """Everything until the server has closed, which it has to, without a reset."""
        async with asyncio.timeout(PATIENCE):
            return await self._reader.read()

    @property
    def url(self) -> str:
        """Where it is connected to."""
        host, port = self._writer.get_extra_info("peername")
        return f"http://{host}:{port}"

    def pause(self) -> None:
        """Take nothing from the network any more."""
        self._writer.transport.pause_reading()  # type: ignore[attr-defined]

    def close(self) -> None:
        """Hang up."""
        self._writer.close()


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Peer]:
    """Give a connection that is closed at the end."""
    peer = await Peer.to(url)
    try:
        yield peer
    finally:
        peer.close()


def request(*headers: str, method: str = "POST", target: str = "/", version: str = "1.1", body: bytes = b"") -> bytes:
    """A request with exactly these headers and the one for its host."""
    lines = (f"{method} {target} HTTP/{version}", "Host: door", *headers, "", "")
    return "\r\n".join(lines).encode() + body
