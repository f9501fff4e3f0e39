"""Eight processes that all want the same effects: each is done once, and nobody sees an error."""

import asyncio
import sys
import time
from asyncio.subprocess import PIPE
from dataclasses import dataclass
from pathlib import Path

from bench.databases import Databases, opened
from bench.effects import order_name

PROCESSES = 8
EFFECTS = 400
_WITHIN = 120.0


@dataclass(frozen=True)
class Contention:
    """What the provider was asked to do, by its own log; `errors` are processes that did not end well."""

    database: str
    seconds: float
    calls: int
    effects: int
    errors: int


async def measure_contention(databases: Databases) -> list[Contention]:
    """Let them loose on each database."""
    return [
        await _contention(name, url, _empty(databases.folder / f"{name}.log"))
        for name, url in databases.urls("contention").items()
    ]


async def _contention(name: str, url: str, log: Path) -> Contention:
    await (await opened(url)).aclose()
    orders = [order_name("contention", number) for number in range(EFFECTS)]
    all_ready = asyncio.Barrier(PROCESSES)
    ended = await asyncio.gather(*(_contender(url, log, orders, all_ready) for _ in range(PROCESSES)))
    seconds = max(seconds for seconds, _ in ended)
    calls = await asyncio.to_thread(_lines, log)
    return Contention(name, seconds, len(calls), len(set(calls)), sum(not well for _, well in ended))


def _empty(log: Path) -> Path:
    log.touch()
    return log


def _lines(log: Path) -> list[str]:
    return log.read_text(encoding="utf-8").splitlines()


async def _contender(url: str, log: Path, orders: list[str], all_ready: asyncio.Barrier) -> tuple[float, bool]:
    """Charge every order in a process of its own, once all are ready; gives the seconds from then on, and whether it
    ended well and without a word.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.contender", url, str(log), *orders),
        cwd=Path(__file__).parents[1],
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
    )
    try:
        async with asyncio.timeout(_WITHIN):
            ready = await process.stdout.readline() if process.stdout else b""
            await all_ready.wait()
            before = time.perf_counter()
            said = await process.communicate(b"go\n")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return time.perf_counter() - before, (process.returncode, ready, said) == (0, b"ready\n", (b"", b""))
