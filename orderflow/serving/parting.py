"""A transport that takes leave: a peer gets the answer that it has not waited for, and nobody stays for ever."""

import asyncio
from collections.abc import Callable
from typing import Any


class PartingTransport(asyncio.Transport):
    """Another transport, which is closed in peace.

    When the peer still sends (`unfinished` says so), `close` ends our side alone and what comes is left to the
    protocol to throw away: a socket that is closed with unread bytes resets the connection, and the peer may lose what
    was written to it last. Either way it is over after `within` seconds.
    """

    def __init__(self, transport: asyncio.Transport, unfinished: Callable[[], bool], within: float) -> None:
        super().__init__()
        self._transport = transport
        self._unfinished = unfinished
        self._within = within
        self._closing = False
        self._last_call: asyncio.TimerHandle | None = None

    def close(self) -> None:
        """Send what was written, then close."""
        if self._closing:
            return
        self._closing = True
        if self._unfinished() and self._transport.can_write_eof():
            self._transport.write_eof()
            self._transport.resume_reading()
        else:
            self._transport.close()
        self._last_call = asyncio.get_running_loop().call_later(self._within, self._transport.abort)

    def lost(self) -> None:
        """Learn that the connection is gone."""
        self._closing = True
        if self._last_call is not None:
            self._last_call.cancel()

    def abort(self) -> None:
        """Close at once."""
        self._closing = True
        self._transport.abort()

    def is_closing(self) -> bool:
        """Whether nothing may be read or written any more."""
        return self._closing or self._transport.is_closing()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send `data`, unless it is too late for it."""
        if not self._closing:
            self._transport.write(data)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Give what the transport knows of its socket."""
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        """Let the peer wait, unless we only wait for it to end."""
        if not self._closing:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read on."""
        self._transport.resume_reading()
