"""A door that answers as a test says: a real HTTP server on loopback that keeps everything it was sent."""

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any, Final

import pytest

from orderflow.domain.events import workflow_id
from tests.order_events import EXAMPLE
from tests.support.command_line import unconfigure

ORDER: Final = workflow_id("/shop", "order-placed-1001")
PROBLEM: Final = "application/problem+json"
SECRET: Final = "whsec_" + base64.b64encode(bytes(range(32))).decode()
"""What the sender of `as_a_sender` signs with."""


def as_a_sender(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let commands run in `folder` with the secret of a caller, and with the example as `event.json`."""
    unconfigure(folder, monkeypatch)
    monkeypatch.setenv("ORDERFLOW_CALLER_SECRET", SECRET)
    (folder / "event.json").write_bytes(EXAMPLE)
    return folder


@dataclass(frozen=True)
class Received:
    """One request: its path, its headers by lower-case name, its body, and which one it was, from 1."""

    path: str
    headers: Mapping[str, str]
    body: bytes
    number: int


@dataclass(frozen=True)
class Reply:
    """An answer; with `raw` these very bytes instead, after which the connection is closed."""

    status: int = 200
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    raw: bytes | None = None


Script = Callable[[Received], Reply]


def taken(order: str = ORDER, *, duplicate: bool = False) -> Reply:
    """What the door answers to an event that has an order."""
    return _reply(200 if duplicate else 202, {"order": order, "duplicate": duplicate}, "application/json")


def refused(
    status: int, cause: str, *problems: tuple[str, str], detail: str = "It is so.", retry_after: str | None = None
) -> Reply:
    """What the door answers to an event that it does not take."""
    document: dict[str, Any] = {
        "type": f"urn:orderflow:problem:{cause}",
        "title": f"Title of {cause}",
        "status": status,
        "detail": detail,
    }
    if problems:
        document["problems"] = [{"path": path, "message": message} for path, message in problems]
    return _reply(status, document, PROBLEM, retry_after)


def _reply(status: int, content: object, media_type: str, retry_after: str | None = None) -> Reply:
    wait = () if retry_after is None else (("Retry-After", retry_after),)
    return Reply(status, json.dumps(content).encode(), (("Content-Type", media_type), *wait))


class ScriptedDoor:
    """The server at `url`, and what it `received` so far."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.received: list[Received] = []


@contextmanager
def scripted_door(script: Script, port: int = 0) -> Iterator[ScriptedDoor]:
    """Answer every request as `script` says."""
    lock = Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 30.0

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            with lock:
                received = Received(self.path, headers, body, len(door.received) + 1)
                door.received.append(received)
            self._answer(script(received))

        def _answer(self, reply: Reply) -> None:
            if reply.raw is not None:
                self.close_connection = True
                self.wfile.write(reply.raw)
                return
            self.send_response(reply.status)
            for name, value in (*reply.headers, ("Content-Length", str(len(reply.body)))):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(reply.body)

        def log_message(self, *_: Any) -> None:
            """Tests look at what was received instead."""

    class Server(ThreadingHTTPServer):
        request_queue_size = 128
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            """A client that goes away is part of the test."""

    server = Server(("127.0.0.1", port), Handler)
    door = ScriptedDoor(f"http://127.0.0.1:{server.server_port}")
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield door
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
