"""How many durable effects a second one process gets through each ledger."""

import time
from dataclasses import dataclass
from itertools import islice
from statistics import median

from bench.databases import Databases, milliseconds_of_a_sync, opened
from bench.effects import acts, all_at

AT_LEAST = 1000
AT_ONCE = 50
_EFFECTS = 1000
_BLOCKS = 5


@dataclass(frozen=True)
class Throughput:
    """Effects a second, of the median block and the slowest; `sync` is what one fsync of the disk took just before, in
    milliseconds.
    """

    database: str
    at_once: int
    a_second: float
    slowest: float
    sync: float


async def measure_throughput(databases: Databases) -> list[Throughput]:
    """Fifty effects at once, and one at a time, on each database."""
    return [
        await _throughput(databases, name, url, at_once)
        for name, url in databases.urls("throughput").items()
        for at_once in (AT_ONCE, 1)
    ]


async def _throughput(databases: Databases, name: str, url: str, at_once: int) -> Throughput:
    these = acts(f"throughput {at_once}")
    sync = milliseconds_of_a_sync(databases.folder)
    ledger = await opened(url)
    try:
        await all_at(at_once, ledger, [*islice(these, 4 * at_once)])
        rates = []
        for _ in range(_BLOCKS):
            block = [*islice(these, _EFFECTS if at_once > 1 else _EFFECTS // 5)]
            before = time.perf_counter()
            await all_at(at_once, ledger, block)
            rates.append(len(block) / (time.perf_counter() - before))
    finally:
        await ledger.aclose()
    return Throughput(name, at_once, median(rates), min(rates), sync)
