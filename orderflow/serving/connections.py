"""One connection of a server, with limits that uvicorn has not: slow heads, silence, crowds, stalled readers."""

import asyncio
import json
import math
from http import HTTPStatus
from typing import Any, cast

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from orderflow.serving.limits import BACKLOG, Limits
from orderflow.serving.parsing import StrictConnection
from orderflow.serving.parting import PartingTransport


class LimitedConfig(uvicorn.Config):
    """What uvicorn runs `app` with, and what all its connections share: the limits, and who waits for a head."""

    def __init__(self, app: ASGIApp, limits: Limits, log_level: str) -> None:
        super().__init__(
            app,
            http=LimitedConnection,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level=log_level,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # anybody may write X-Forwarded-For
            backlog=BACKLOG,
            timeout_keep_alive=math.ceil(limits.idle) + 1,  # ours comes first
        )
        self.limits = limits
        self.waiting: dict[LimitedConnection, None] = {}


class LimitedConnection(H11Protocol):
    """uvicorn's connection within `Limits`. While it waits for a head it has a deadline, and may be evicted."""

    def __init__(
        self,
        config: LimitedConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limits = config.limits
        self._waiting = config.waiting
        self._strict = self.conn = StrictConnection(config.limits)
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._idle = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn narrows it too
        """Take the connection in, at the cost of one that only waits if there are too many."""
        self._parting = PartingTransport(transport, self._is_unfinished, self._limits.parting)
        super().connection_made(self._parting)
        if len(self.connections) > self._limits.connections:
            if not self._waiting:
                self._turn_away(transport)
                return
            next(iter(self._waiting))._drop()
        self._await_head(self._limits.headers_within)

    def data_received(self, data: bytes) -> None:
        """Read on; what comes after the last answer is thrown away."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_waiting()
        elif self._idle:
            self._await_head(self._limits.headers_within)

    def eof_received(self) -> bool:  # type: ignore[override]  # uvicorn closes, answered or not
        """Answer a peer that has ended its side after a whole request: it may listen still (RFC 9293, 3.6)."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is None or cycle.response_complete or self.conn.their_state not in (h11.DONE, h11.MUST_CLOSE):
            return False
        cycle.keep_alive = False
        return True

    def on_response_complete(self) -> None:
        """Go on to what was sent ahead, or wait for the next request."""
        super().on_response_complete()
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            begun, _ = self.conn.trailing_data
            self._await_head(self._limits.headers_within if begun else self._limits.idle, idle=not begun)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_waiting()
        self._parting.lost()
        if self._stalled is not None:
            self._stalled.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Give a peer that takes nothing a while."""
        super().pause_writing()
        self._stalled = self.loop.call_later(self._limits.stalled, self.transport.abort)

    def resume_writing(self) -> None:
        """See that it took something."""
        if self._stalled is not None:
            self._stalled.cancel()
        super().resume_writing()

    def shutdown(self) -> None:
        """End with the answer that is under way; who has its answer, or no whole request, is not waited for."""
        if self.transport.is_closing() or self in self._waiting:
            self._drop()
        else:
            super().shutdown()

    def send_400_response(self, msg: str) -> None:
        """Refuse what h11 does not understand, in its words; uvicorn calls it so whatever the status."""
        refusal = self._strict.refusal
        hint = 400 if refusal is None else refusal.error_status_hint
        # h11 suggests 501 for unknown transfer encodings, and this fault is the sender's
        self._refuse(hint if hint < 500 else 400, msg if refusal is None else str(refusal))

    def _is_unfinished(self) -> bool:
        begun, _ = self.conn.trailing_data
        return self.conn.their_state in (h11.SEND_BODY, h11.ERROR) or bool(begun)

    def _await_head(self, within: float, *, idle: bool = False) -> None:
        self._stop_waiting()
        self._idle = idle
        self._waiting[self] = None
        self._deadline = self.loop.call_later(within, self._too_late)

    def _stop_waiting(self) -> None:
        self._waiting.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()

    def _too_late(self) -> None:
        begun, _ = self.conn.trailing_data
        if begun:
            self._stop_waiting()
            self._refuse(408, f"the head of the request was not complete within {self._limits.headers_within:g} s")
        else:
            self._drop()

    def _drop(self) -> None:
        self._stop_waiting()
        self.connections.discard(self)  # now, not when the loop comes to it: it makes room
        self.transport.abort()

    def _turn_away(self, transport: asyncio.Transport) -> None:
        self.connections.discard(self)
        self.transport.write(_problem(503, "too many connections", (b"retry-after", b"1")))
        self._parting.lost()
        transport.close()

    def _refuse(self, status: int, detail: str) -> None:
        cycle = cast("RequestResponseCycle | None", self.cycle)  # there is none before the first request
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True  # the application learns it at once, and writes nothing after us
            cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(_problem(status, detail))
        self.transport.close()


def _problem(status: int, detail: str, *headers: tuple[bytes, bytes]) -> bytes:
    """A whole answer, a problem document (RFC 9457), after which the connection ends."""
    title = HTTPStatus(status).phrase
    body = json.dumps({"type": "about:blank", "title": title, "status": status, "detail": detail}).encode()
    given = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
        *headers,
    ]
    lines = [f"HTTP/1.1 {status} {title}".encode(), *(name + b": " + value for name, value in given), b"", body]
    return b"\r\n".join(lines)
