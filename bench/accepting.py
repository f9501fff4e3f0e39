"""Events a second through the whole door, against the same process starting the same orders bare."""

from dataclasses import dataclass
from itertools import islice
from statistics import median
from typing import Final

from bench.databases import cpu_seconds
from bench.deliveries import ACCEPTED, bodies, connected, healthy, send_all, signed
from bench.doors import MeasuredDoor
from bench.round_trip import interval_of_median

AT_LEAST: Final = 0.8
AT_ONCE: Final = 16
_BLOCK: Final = 80
_ALONE: Final = 300


@dataclass(frozen=True)
class Block:
    """Events a second, and milliseconds of CPU for one, in the door's process and in Temporal's."""

    a_second: float
    cpu: float
    temporal: float


@dataclass(frozen=True)
class Accepting:
    """Medians of all blocks; `ratio` is that of the door to bare starts, of the two blocks of a pair.

    `parts` is the CPU of each step alone, one after another, in milliseconds.
    """

    database: str
    door: Block
    bare: Block
    ratio: float
    ratio_low: float
    ratio_high: float
    parts: dict[str, float]

    @property
    def apart(self) -> float:
        """CPU of all steps, each alone, in milliseconds."""
        return sum(self.parts.values())


async def measure_accepting(door: MeasuredDoor, database: str, pairs: int) -> Accepting:
    """Alternate blocks through the door and bare ones, and change which goes first."""
    blocks: dict[str, list[Block]] = {"door": [], "bare": []}
    for pair in range(-1, pairs):  # what is slow the first time is not counted
        for name in ("door", "bare") if pair % 2 else ("bare", "door"):
            block = await (_through if name == "door" else _bare)(door, f"{name}-{database}-{pair}")
            if pair >= 0:
                blocks[name].append(block)
    ratios = [door.a_second / bare.a_second for door, bare in zip(blocks["door"], blocks["bare"], strict=True)]
    low, high = interval_of_median(ratios)
    return Accepting(
        database,
        _medians(blocks["door"]),
        _medians(blocks["bare"]),
        median(ratios),
        low,
        high,
        await _parts(door, f"parts-{database}"),
    )


async def _through(door: MeasuredDoor, series: str) -> Block:
    requests = [signed(body, door.secret) for body in islice(bodies(series), _BLOCK)]
    async with connected(door.url, AT_ONCE) as connections:
        before, temporal = await door.cpu(), cpu_seconds(door.temporal_pid)
        seconds = await send_all(connections, requests, ACCEPTED)
        used, of_temporal = await door.cpu() - before, cpu_seconds(door.temporal_pid) - temporal
    return _block(seconds, used, of_temporal)


async def _bare(door: MeasuredDoor, series: str) -> Block:
    temporal = cpu_seconds(door.temporal_pid)
    done = await door.ask("bare", series=series, count=_BLOCK, at_once=AT_ONCE)
    return _block(done["seconds"], done["cpu"], cpu_seconds(door.temporal_pid) - temporal)


def _block(seconds: float, cpu: float, temporal: float) -> Block:
    return Block(_BLOCK / seconds, 1000 * cpu / _BLOCK, 1000 * temporal / _BLOCK)


def _medians(blocks: list[Block]) -> Block:
    return Block(
        median([block.a_second for block in blocks]),
        median([block.cpu for block in blocks]),
        median([block.temporal for block in blocks]),
    )


async def _parts(door: MeasuredDoor, series: str) -> dict[str, float]:
    """What each step takes alone, once more after a first time."""
    await door.ask("parts", series=f"{series}-first", count=_ALONE)
    return {"HTTP, to an answer and back": await _http(door), **await door.ask("parts", series=series, count=_ALONE)}


async def _http(door: MeasuredDoor) -> float:
    async with connected(door.url, 1) as connections:
        before = await door.cpu()
        await send_all(connections, [healthy()] * _ALONE, 200)
        return 1000 * (await door.cpu() - before) / _ALONE
