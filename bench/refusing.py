"""What a delivery with a bad signature costs the door, against one that it accepts."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import median
from typing import Final

from bench.accepting import AT_ONCE
from bench.deliveries import ACCEPTED, REFUSED, bodies, connected, largest, send_all, signed, stranger
from bench.doors import MeasuredDoor
from bench.round_trip import interval_of_median

AT_MOST: Final = 0.1
_BLOCKS: Final = 10
_ACCEPTED: Final = 100
_REFUSED: Final = 300


@dataclass(frozen=True)
class Cost:
    """Milliseconds of one delivery: of time (several are under way at once), and of the door's CPU."""

    time: float
    cpu: float


@dataclass(frozen=True)
class Refusing:
    """Deliveries of `size` bytes, medians of all blocks; ratios are refused to accepted, of the blocks of a pair."""

    size: int
    accepted: Cost
    refused: Cost
    time_ratio: float
    time_high: float
    cpu_ratio: float
    cpu_high: float


async def measure_refusing(door: MeasuredDoor) -> list[Refusing]:
    """Alternate blocks of good and of bad signatures: on usual bodies, and on the largest that the door takes."""
    return [await _refusing(door, f"refusing-{large}", large=large) for large in (False, True)]


async def _refusing(door: MeasuredDoor, series: str, *, large: bool) -> Refusing:
    sent = (largest(body) if large else body for body in bodies(series))
    unknown, pairs = stranger(), []
    for block in range(_BLOCKS + 1):  # what is slow the first time is not counted
        good = [signed(body, door.secret) for body in islice(sent, _ACCEPTED)]
        bad = [signed(body, unknown) for body in islice(sent, _REFUSED)]
        pair = await _cost(door, good, ACCEPTED), await _cost(door, bad, REFUSED)
        if block:
            pairs.append(pair)
    times = [refused.time / accepted.time for accepted, refused in pairs]
    cpus = [refused.cpu / accepted.cpu for accepted, refused in pairs]
    return Refusing(
        size=len(next(sent)),
        accepted=_medians([accepted for accepted, _ in pairs]),
        refused=_medians([refused for _, refused in pairs]),
        time_ratio=median(times),
        time_high=interval_of_median(times)[1],
        cpu_ratio=median(cpus),
        cpu_high=interval_of_median(cpus)[1],
    )


async def _cost(door: MeasuredDoor, requests: Sequence[bytes], expected: int) -> Cost:
    async with connected(door.url, AT_ONCE) as connections:
        before = await door.cpu()
        seconds = await send_all(connections, requests, expected)
        used = await door.cpu() - before
    return Cost(1000 * seconds / len(requests), 1000 * used / len(requests))


def _medians(costs: list[Cost]) -> Cost:
    return Cost(median([cost.time for cost in costs]), median([cost.cpu for cost in costs]))
