"""What 200 slow senders and endless bodies cost a good sender, and memory.

`python -m bench.slow_senders` measures it at a server with nothing behind it, `bench.ingress` at the door.

A process is the server, another besieges it; this one is the good sender. Blocks of deliveries alternate between quiet
and besieged, and the ratio is of the medians of neighbours: one run of one machine compared with itself.
"""

import asyncio
import json
import multiprocessing
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from statistics import median, quantiles
from time import perf_counter
from typing import Annotated, Final

import psutil
import typer
from starlette.types import Receive, Scope, Send

from orderflow.serving import Limits, listen, served
from tests.support.raw_http import Peer, request

SLOW: Final = 200
ENDLESS_MEGABYTES: Final = 50
PAIRS: Final = 10
DELIVERIES: Final = 100
MOST_RATIO: Final = 1.5
MOST_MEGABYTES: Final = 20.0

_BYTE_EVERY: Final = 0.5
_MEGABYTE: Final = 1024 * 1024
_SPAWN: Final = multiprocessing.get_context("spawn")

Deliver = Callable[[], Awaitable[None]]


@dataclass(frozen=True)
class Besieged:
    """Milliseconds of a delivery, and megabytes by which the server's process grew at most."""

    quiet: float
    besieged: float
    ratio: float
    quiet_p95: float
    besieged_p95: float
    grown: float

    @property
    def late(self) -> float:
        """How much later those come that come last, one in twenty."""
        return self.besieged_p95 / self.quiet_p95

    @property
    def holds(self) -> bool:
        """Whether it is what is asked of the door."""
        return max(self.ratio, self.late) <= MOST_RATIO and self.grown < MOST_MEGABYTES


async def measure_siege(url: str, pid: int, deliver: Deliver, target: str = "/v1/events") -> Besieged:
    """Measure `deliver`, one good delivery to the server at `url` whose process is `pid`, in quiet and in siege.

    The slow senders and the endless body go to the path `target` of it.
    """
    server, quiet, besieged, ratios = psutil.Process(pid), list[float](), list[float](), list[float]()
    await _block(deliver)  # warm
    before = most = server.memory_info().rss

    def look() -> None:
        nonlocal most
        most = max(most, server.memory_info().rss)

    for _ in range(PAIRS):
        alone = await _block(deliver)
        with _siege(url, target):
            crowded = await _block(deliver, look)
        quiet += alone
        besieged += crowded
        ratios.append(median(crowded) / median(alone))
    return Besieged(
        quiet=median(quiet),
        besieged=median(besieged),
        ratio=median(ratios),
        quiet_p95=quantiles(quiet, n=20)[-1],
        besieged_p95=quantiles(besieged, n=20)[-1],
        grown=(most - before) / _MEGABYTE,
    )


async def _block(deliver: Deliver, after_each: Callable[[], None] = lambda: None) -> list[float]:
    times = []
    for _ in range(DELIVERIES):
        begun = perf_counter()
        await deliver()
        times.append((perf_counter() - begun) * 1000)
        after_each()
    return times


@contextmanager
def _siege(url: str, target: str) -> Iterator[None]:
    """All slow senders are connected when it begins; the endless body starts then, and again once it is refused."""
    there = _SPAWN.Event()
    besieger = _SPAWN.Process(target=_besiege, args=(url, target, there), daemon=True)
    besieger.start()
    try:
        if not there.wait(60):
            raise TimeoutError("the siege did not begin")
        yield
    finally:
        besieger.kill()
        besieger.join()


def _besiege(url: str, target: str, there: Event) -> None:
    asyncio.run(_attack(url, target, there))


async def _attack(url: str, target: str, there: Event) -> None:
    begun = 0

    async def slow(data: bytes) -> None:
        nonlocal begun
        first = True
        while True:  # who is hung up on comes again
            with suppress(OSError):
                peer = await Peer.to(url)
                await peer.send(data)
                begun, first = begun + first, False
                while True:
                    await asyncio.sleep(_BYTE_EVERY)
                    await peer.send(b"x")

    async def endless() -> None:
        chunk = b"%x\r\n%b\r\n" % (65536, b"x" * 65536)
        while True:
            with suppress(OSError):
                peer = await Peer.to(url)
                await peer.send(request("Transfer-Encoding: chunked", target=target))
                for _ in range(ENDLESS_MEGABYTES * 16):
                    await peer.send(chunk)
                peer.close()
            await asyncio.sleep(_BYTE_EVERY)

    head, body = request(target=target)[:-2] + b"X-Slow: ", request("Content-Length: 60000", target=target, body=b"{")
    async with asyncio.TaskGroup() as group:
        for number in range(SLOW):
            group.create_task(slow(head if number % 2 else body))
        while begun < SLOW:  # noqa: ASYNC110 - an event for each would say no more
            await asyncio.sleep(0.01)
        group.create_task(endless())
        there.set()


async def _tiny(scope: Scope, receive: Receive, send: Send) -> None:
    """A door without anything behind it: reads a body of at most 64 KiB within ten seconds."""
    size, more, status = 0, True, 202
    try:
        async with asyncio.timeout(10):
            while more and size <= 65536:
                message = await receive()
                size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    except TimeoutError:
        status = 408
    status = 413 if size > 65536 else status
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body"})


def _serve_tiny(told: Connection) -> None:
    async def serve() -> None:
        async with served(_tiny, listen("127.0.0.1", 0), Limits()) as url:
            told.send((url, os.getpid()))
            await asyncio.Event().wait()

    asyncio.run(serve())


@contextmanager
def _tiny_server() -> Iterator[tuple[str, int]]:
    """The URL and process id of a server without a door."""
    ours, theirs = _SPAWN.Pipe()
    server = _SPAWN.Process(target=_serve_tiny, args=(theirs,), daemon=True)
    server.start()
    try:
        yield ours.recv()
    finally:
        server.kill()
        server.join()


async def _measure_tiny() -> Besieged:
    with _tiny_server() as (url, pid):
        peer = await Peer.to(url)
        delivery = request("Content-Length: 600", target="/v1/events", body=b"x" * 600)

        async def deliver() -> None:
            answer = await peer.ask(delivery)
            if answer.status != 202:
                raise RuntimeError(f"a good delivery was answered {answer.status}")

        measured = await measure_siege(url, pid, deliver)
        peer.close()
    return measured


def main(as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False) -> None:
    """Measure the server alone; exit code 1 if it is slower or larger than asked of the door."""
    measured = asyncio.run(_measure_tiny())
    if as_json:
        print(json.dumps(asdict(measured) | {"holds": measured.holds}))
    else:
        print(f"{SLOW} slow senders and bodies of {ENDLESS_MEGABYTES} MB against one good sender")
        print(f"  quiet     {measured.quiet:6.2f} ms (95 % within {measured.quiet_p95:.2f})")
        print(f"  besieged  {measured.besieged:6.2f} ms (95 % within {measured.besieged_p95:.2f})")
        print(f"  ratio     {measured.ratio:6.2f}    (asked: at most {MOST_RATIO})")
        print(f"  memory    {measured.grown:+6.1f} MB (asked: less than {MOST_MEGABYTES:g})")
    sys.exit(not measured.holds)


if __name__ == "__main__":
    typer.run(main)
