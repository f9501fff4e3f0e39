"""How much one peer, and all of them, may ask of a server before any application is asked."""

from dataclasses import dataclass, replace
from typing import Final

BACKLOG: Final = 64
"""Connections that the system keeps until the server takes them, and that it takes at one go before it looks how many
it has. asyncio logs each that no descriptor is left for, with a traceback, as often as this says."""

_OWN: Final = 64
"""Descriptors that a process needs beside its connections: ledger, Temporal, files."""


@dataclass(frozen=True)
class Limits:
    """The limits of a server. The body is the application's to limit; what it leaves unread is never buffered.

    Of one connection:
        headers_within: seconds from its opening, or from the first byte of a further request, to the end of that head.
            A head that was begun is answered 408; a connection that said nothing is closed without a word.
        idle: seconds that it may say nothing between two requests.
        header_bytes: bytes of a request line and its headers; more is 431.
        headers: headers of a request; more is 431.
        chunks: chunks of a chunked body; more is 400. Each costs as much as a packet, however small it is.
        stalled: seconds that the peer may take nothing of an answer that waits for it.
        parting: seconds in which what a peer still sends is read and thrown away after an answer that came before the
            end of its request. Without them the network drops the answer together with the connection.

    Of the server:
        connections: connections at once. One more takes the place of the one that has waited for a head longest, so
            that silent peers cannot keep others out; when all are busy with requests it gets a 503 and is closed.
        in_flight: seconds that requests have to end when the server is told to. What is cut off then gets no answer:
            nobody knows how far it came, and its sender tries again.
    """

    headers_within: float = 10
    idle: float = 5
    header_bytes: int = 16 * 1024
    headers: int = 64
    chunks: int = 2048
    stalled: float = 10
    parting: float = 2
    connections: int = 512
    in_flight: float = 10


def within_descriptors(limits: Limits, descriptors: int) -> Limits:
    """Give `limits` with as many connections as a process of so many descriptors can take in, and at least one."""
    return replace(limits, connections=max(1, min(limits.connections, descriptors - _OWN - BACKLOG)))
