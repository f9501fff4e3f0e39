"""Requests to the door, made and signed beforehand, and a load that costs little: raw streams, kept alive."""

import asyncio
import json
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from orderflow.domain.deliveries import MAX_EVENT_BYTES, MEDIA_TYPE
from orderflow.webhooks import SigningSecret, new_secret, read_secret, signed_headers

EVENTS: Final = "/v1/events"
ACCEPTED: Final = 202
REFUSED: Final = 401

_EXAMPLE: Final = Path(__file__).parents[1] / "examples" / "order.json"


def bodies(series: str) -> Iterator[bytes]:
    """The shipped example under new ids without end; two series have none in common."""
    event: dict[str, Any] = json.loads(_EXAMPLE.read_bytes())
    number = 0
    while True:
        yield json.dumps({**event, "id": f"{series}-{number}"}).encode()
        number += 1


def largest(body: bytes) -> bytes:
    """The same event with as much white space behind it as the door takes."""
    return body.ljust(MAX_EVENT_BYTES)


def stranger() -> SigningSecret:
    """A secret that the door does not know."""
    return read_secret(new_secret())


def delivery_headers(body: bytes, secret: SigningSecret) -> dict[str, str]:
    """The headers of a delivery of `body`, stamped now, under an id of its own."""
    return {
        "host": "localhost",
        "content-type": MEDIA_TYPE,
        "content-length": str(len(body)),
        **signed_headers(secret, f"msg_{uuid.uuid4().hex}", body, datetime.now(UTC)),
    }


def signed(body: bytes, secret: SigningSecret) -> bytes:
    """One delivery as it goes over the wire."""
    head = "".join(f"{name}: {value}\r\n" for name, value in delivery_headers(body, secret).items())
    return f"POST {EVENTS} HTTP/1.1\r\n{head}\r\n".encode() + body


def healthy() -> bytes:
    """A request for which the door does nothing but HTTP."""
    return b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"


class Connection:
    """One connection to the door, kept open."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def status(self, request: bytes) -> int:
        """Send one request, read all of its answer, and give the status."""
        self._writer.write(request)
        try:
            head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
            await self._reader.readexactly(int(head.partition(b"content-length:")[2].partition(b"\r\n")[0]))
        except asyncio.IncompleteReadError as error:
            raise ConnectionResetError("the door closed a connection without an answer") from error
        return int(head.split(b" ", 2)[1])

    @property
    def is_over(self) -> bool:
        """Whether the door has closed it, as it does with one that says nothing for some seconds."""
        return self._reader.at_eof()

    async def aclose(self) -> None:
        """Close it."""
        self._writer.close()
        await self._writer.wait_closed()


async def connect_to(url: str) -> Connection:
    """One connection to the door."""
    split = urlsplit(url)
    return Connection(*await asyncio.open_connection(split.hostname, split.port))


@asynccontextmanager
async def connected(url: str, connections: int) -> AsyncIterator[list[Connection]]:
    """So many connections to the door."""
    opened = [await connect_to(url) for _ in range(connections)]
    try:
        yield opened
    finally:
        for connection in opened:
            await connection.aclose()


@dataclass(frozen=True)
class Unexpected(Exception):
    """The door gave other answers than the measurement is about: their number, by status."""

    answers: Counter[int]


async def send_all(connections: Sequence[Connection], requests: Sequence[bytes], expected: int) -> float:
    """Send all requests, one at a time on each connection; gives the seconds. Raises `Unexpected`."""
    left, answers = iter(requests), Counter[int]()

    async def some(connection: Connection) -> None:
        for request in left:
            answers[await connection.status(request)] += 1

    before = time.perf_counter()
    await asyncio.gather(*map(some, connections))
    seconds = time.perf_counter() - before
    if answers != {expected: len(requests)}:
        raise Unexpected(answers)
    return seconds
