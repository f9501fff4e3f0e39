"""A door as a process of its own, and a client that sends it any bytes, malformed ones too.

Every answer that comes back is looked at, whichever test it is for: it is one that the door's own document announces,
it is no 5xx but 503, and it has no word of what an event carries.
"""

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import psutil

from tests.support.answers import Answer, parsed
from tests.support.openapi import Document
from tests.support.processes import Child, bare_environment
from tests.support.senders import CANARIES, Headers, Sender, Text, as_bytes

INGRESS: Final = (sys.executable, "-m", "orderflow.ingress")
EVENTS: Final = "/v1/events"
PATIENCE: Final = 40.0


class Door:
    """A running door at `url`."""

    def __init__(self, url: str, child: Child) -> None:
        self.url = url
        self.child = child
        self.document: Document | None = None

    @property
    def memory(self) -> int:
        """Bytes that it has in memory now."""
        return int(psutil.Process(self.child.pid).memory_info().rss)

    async def post(self, event: object, sender: Sender, **signed: Any) -> Answer:
        """Deliver an event, or any bytes, as `sender` signs it; `signed` are options of `Sender.headers`."""
        body = as_bytes(event)
        return await self.send(body, sender.headers(body, **signed))

    async def send(
        self,
        body: bytes | Iterable[bytes] = b"",
        headers: Headers = (),
        *,
        method: str = "POST",
        target: str = EVENTS,
    ) -> Answer:
        """Send one request: a body of several pieces goes out chunked, and no more of it once an answer is there."""
        if isinstance(body, bytes):
            framed = [("content-length", str(len(body)))] if body or method == "POST" else []
            heard = await self.talk(self.head(method, target, [*headers, *framed]) + body)
        else:
            head = self.head(method, target, [*headers, ("transfer-encoding", "chunked")])
            heard = await self.talk(head, more=_chunked(body))
        answer = parsed(heard).check()
        if self.document is None or answer.is_of_http:
            return answer
        if faults := self.document.faults(method, target.partition("?")[0], answer):
            raise AssertionError(f"{answer} is not as the document says: {faults}")
        return answer

    async def ask(self, target: str, token: Text | None = None) -> Answer:
        """GET something, with a bearer token if one is given."""
        bearer = token.encode() if isinstance(token, str) else token
        headers: Headers = [] if bearer is None else [("authorization", b"Bearer " + bearer)]
        return await self.send(b"", headers, method="GET", target=target)

    async def order(self, order: str, sender: Sender) -> Answer:
        """Ask for an order as its caller may."""
        return await self.ask(f"/v1/orders/{order}", sender.token)

    def head(self, method: str, target: str, headers: Headers) -> bytes:
        """The first part of a request, up to its body; nothing in it is checked or escaped."""
        lines = [f"{method} {target} HTTP/1.1", f"host: {urlsplit(self.url).netloc}", "connection: close"]
        named = [_raw(name) + b": " + _raw(value) for name, value in headers]
        return b"\r\n".join([*map(str.encode, lines), *named, b"", b""])

    async def talk(self, first: bytes, more: Iterable[bytes] = (), pause: float = 0) -> bytes:
        """Write these bytes, then `more` of them with pauses, until the door closes; gives all that it said."""
        reader, writer = await asyncio.open_connection(urlsplit(self.url).hostname, urlsplit(self.url).port)
        heard = asyncio.create_task(_all_of(reader))
        try:
            async with asyncio.timeout(PATIENCE):
                await self._write(writer, heard, chain([first], more), pause)
                return await heard
        finally:
            heard.cancel()
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _write(
        self, writer: asyncio.StreamWriter, heard: "asyncio.Task[bytes]", pieces: Iterable[bytes], pause: float
    ) -> None:
        with suppress(ConnectionError):  # the door has had enough; what it said is in `heard`
            for piece in pieces:
                if heard.done():
                    return
                writer.write(piece)
                await writer.drain()
                await asyncio.wait([heard], timeout=pause)


def _chunked(pieces: Iterable[bytes]) -> Iterable[bytes]:
    for piece in pieces:
        yield f"{len(piece):x}\r\n".encode() + piece + b"\r\n"
    yield b"0\r\n\r\n"


def _raw(text: Text) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


async def _all_of(reader: asyncio.StreamReader) -> bytes:
    """What came before the end, however rude the end was."""
    heard = bytearray()
    with suppress(ConnectionError):
        while piece := await reader.read(65536):
            heard += piece
    return bytes(heard)


@asynccontextmanager
async def open_door(
    folder: Path, environment: Mapping[str, str], *, name: str = "door", port: int = 0
) -> AsyncIterator[Door]:
    """A door with these settings, its state in `folder`; when it closes, its log must be as clean as its answers."""
    command = (*INGRESS, "--port", str(port))
    settings = bare_environment(**{"ORDERFLOW_STATE_DIR": str(folder), "ORDERFLOW_LOG_FORMAT": "json", **environment})
    async with Child(command, folder, settings, name=name) as child:
        door = Door(await _url_of(child), child)
        door.document = Document((await door.ask("/openapi.json")).json)
        yield door
        _check_log(child.said)


async def _url_of(child: Child) -> str:
    await child.until_said("http://")
    await child.until_said("\n")
    (url,) = re.findall(r"http://[\w.\[\]:]+", child.said)[:1]
    return str(url)


def _check_log(said: str) -> None:
    found = [word for word in (*CANARIES, "Traceback", "whsec_") if word in said]
    if found:
        raise AssertionError(f"the door's log holds {found}: {said}")
