"""HTTP/1.1 by h11, stricter: bounded heads and chunks, one way to say how long a body is."""

import re
from typing import Final

import h11

from orderflow.serving.limits import Limits

_ABSOLUTE: Final = re.compile(rb"https?://[^/?]*", re.IGNORECASE)
_QUOTED: Final = re.compile(r":? (?:bytearray\(|b['\"])")
_CLOSE: Final = (b"connection", b"close")


class StrictConnection(h11.Connection):
    """A server's side of one connection. `refusal` keeps what the last request was refused for."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(h11.SERVER, limits.header_bytes)
        self.refusal: h11.RemoteProtocolError | None = None
        self._limits = limits
        self._chunks = 0
        self._head: list[bytes] = []

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """Give what h11 makes of the bytes. Raises `h11.RemoteProtocolError`, its hint being the status."""
        try:
            event = _in_origin_form(super().next_event())
            self._check(event)
        except h11.RemoteProtocolError as error:
            self.refusal = h11.RemoteProtocolError(_without_what_was_sent(str(error)), error.error_status_hint)
            raise self.refusal from None
        return event

    def send_with_data_passthrough(self, event: h11.Event) -> list[bytes] | None:
        """Give the bytes of `event`; an answer before the end of its request says that it is the last one.

        A head waits for what follows it, so that both are one packet and one call of the system.
        """
        if isinstance(event, h11.Response) and self.their_state is h11.SEND_BODY and _CLOSE not in event.headers:
            headers = [*event.headers.raw_items(), _CLOSE]
            event = h11.Response(status_code=event.status_code, headers=headers, reason=event.reason)
        sent = super().send_with_data_passthrough(event)
        if isinstance(event, h11.Response):
            self._head = sent or []
            return []
        head, self._head = self._head, []
        return [*head, *(sent or [])] if head else sent

    def _check(self, event: h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]) -> None:
        if isinstance(event, h11.Request):
            self._chunks = 0
            _check_head(event, self._limits)
        elif isinstance(event, h11.Data) and event.chunk_start:
            self._chunks += 1
            if self._chunks > self._limits.chunks:
                raise h11.RemoteProtocolError(f"more than {self._limits.chunks} chunks")


def _without_what_was_sent(message: str) -> str:
    """h11 quotes the line that it cannot read, which may be a token or a piece of somebody's order (W09)."""
    return _QUOTED.split(message, maxsplit=1)[0]


def _in_origin_form(
    event: h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED],
) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
    """Give a request that names the whole URL, as to a proxy, its path alone: servers take both (RFC 9112, 3.2.2)."""
    if not isinstance(event, h11.Request) or (found := _ABSOLUTE.match(event.target)) is None:
        return event
    target = event.target[found.end() :]
    return h11.Request(
        method=event.method,
        target=target if target.startswith(b"/") else b"/" + target,
        headers=event.headers,
        http_version=event.http_version,
    )


def _check_head(request: h11.Request, limits: Limits) -> None:
    """h11 bounds what it has to wait for alone: a head that came in one piece passes it by, whatever its size."""
    size = len(request.target) + sum(len(name) + len(value) for name, value in request.headers)
    if size > limits.header_bytes:
        raise h11.RemoteProtocolError(f"a head of more than {limits.header_bytes} bytes", error_status_hint=431)
    if len(request.headers) > limits.headers:
        raise h11.RemoteProtocolError(f"more than {limits.headers} headers", error_status_hint=431)
    if request.http_version not in (b"1.0", b"1.1"):
        raise h11.RemoteProtocolError("a version of HTTP other than 1.0 and 1.1")
    names = {name for name, _ in request.headers}
    if b"transfer-encoding" in names and (b"content-length" in names or request.http_version < b"1.1"):
        # two readers could disagree on where the next request begins: request smuggling (RFC 9112, 6.1)
        raise h11.RemoteProtocolError("Transfer-Encoding together with Content-Length, or in HTTP/1.0")
