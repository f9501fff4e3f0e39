"""What one effect through the ledger costs, as a share of the CPU of the activity round trip that it rides on."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import median

from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Worker

from bench.activity_workflow import BARE, THROUGH_LEDGER, OneActivity
from bench.databases import Databases, cpu_seconds, opened
from bench.effects import AtOnce, acts, all_at, order_name, perform
from orderflow.client import connect
from orderflow.embedded import EmbeddedServer, find_temporal
from orderflow.ledger import EffectLedger
from tests.support.ledger import charge

AT_MOST = {"SQLite": 0.05, "PostgreSQL": 0.08}
AT_ONCE = 5
_BLOCK = 10
_ALONE = 400
_QUEUE = "bench"


@dataclass(frozen=True)
class Cost:
    """CPU in milliseconds, of one round trip without ledger and of one effect; see `bench/README.md` for each."""

    database: str
    worker: float
    temporal: float
    in_worker: float
    in_worker_low: float
    in_worker_high: float
    alone: float
    in_database: float

    @property
    def share(self) -> float:
        """Of all processes: what the ledger adds to worker and database server, to what Temporal and worker take."""
        return (self.in_worker + self.in_database) / (self.worker + self.temporal)

    @property
    def share_of_worker(self) -> tuple[float, float, float]:
        """Of the worker's process alone: the median, and its 95 % interval."""
        return self.in_worker / self.worker, self.in_worker_low / self.worker, self.in_worker_high / self.worker


class RoundTrips:
    """One worker whose activity calls a provider, bare or through `ledger`."""

    def __init__(self, client: Client, temporal_pid: int) -> None:
        self.ledger: EffectLedger | None = None
        self._client = client
        self._temporal_pid = temporal_pid
        self._done = 0

    def activities(self) -> list[Callable[..., object]]:
        """The same call to a provider that answers at once, without and with the ledger around it."""

        @activity.defn(name=BARE)
        async def bare(order: str) -> str:
            act = charge(order)
            await AtOnce().perform(act)
            return act.key

        @activity.defn(name=THROUGH_LEDGER)
        async def through_ledger(order: str) -> str:
            act = charge(order)
            if self.ledger is not None:
                await perform(self.ledger, act)
            return act.key

        return [bare, through_ledger]

    async def block(self, name: str) -> tuple[float, float]:
        """Run some workflows; gives the CPU in milliseconds of one in this process, and in Temporal's."""
        before, temporal = time.process_time(), cpu_seconds(self._temporal_pid)
        left = iter([order_name(name, self._done + number) for number in range(_BLOCK)])
        self._done += _BLOCK

        async def some() -> None:
            for order in left:
                await self._client.execute_workflow(
                    OneActivity.run, args=[name, order], id=f"{name}-{order}", task_queue=_QUEUE
                )

        await asyncio.gather(*(some() for _ in range(AT_ONCE)))
        used, of_temporal = time.process_time() - before, cpu_seconds(self._temporal_pid) - temporal
        return 1000 * used / _BLOCK, 1000 * of_temporal / _BLOCK


async def measure_costs(databases: Databases, pairs: int) -> list[Cost]:
    """Measure both databases, one after the other, with `pairs` of blocks each."""
    async with _round_trips(databases.folder) as trips:
        return [await _cost(databases, trips, name, url, pairs) for name, url in databases.urls("cost").items()]


async def _cost(databases: Databases, trips: RoundTrips, name: str, url: str, pairs: int) -> Cost:
    ledger = await opened(url)
    trips.ledger = ledger
    try:
        bare, added, temporal = await _paired(trips, pairs)
        alone, in_database = await _alone(ledger, databases.postgres.pid if name == "PostgreSQL" else None)
    finally:
        trips.ledger = None
        await ledger.aclose()
    low, high = interval_of_median(added)
    return Cost(
        database=name,
        worker=median(bare),
        temporal=sum(temporal) / len(temporal),
        in_worker=median(added),
        in_worker_low=low,
        in_worker_high=high,
        alone=alone,
        in_database=in_database,
    )


async def _paired(trips: RoundTrips, pairs: int) -> tuple[list[float], list[float], list[float]]:
    """Alternate, and change who goes first, so that what else the machine does meets both alike."""
    bare, added, temporal = [], [], []
    for name in (BARE, THROUGH_LEDGER) * 2:  # what is slow the first time
        await trips.block(name)
    for pair in range(pairs):
        order = (BARE, THROUGH_LEDGER) if pair % 2 else (THROUGH_LEDGER, BARE)
        used = {name: await trips.block(name) for name in order}
        bare.append(used[BARE][0])
        added.append(used[THROUGH_LEDGER][0] - used[BARE][0])
        temporal.append(used[BARE][1])
    return bare, added, temporal


async def _alone(ledger: EffectLedger, postgres: int | None) -> tuple[float, float]:
    """The CPU in milliseconds of one effect with nothing around it, here and in the server of the database, if any."""
    await all_at(1, ledger, [*islice(acts("warm"), _ALONE // 4)])
    server = cpu_seconds(postgres, with_children=True) if postgres else 0.0
    before = time.process_time()
    await all_at(1, ledger, [*islice(acts("alone"), _ALONE)])
    used = time.process_time() - before
    in_server = cpu_seconds(postgres, with_children=True) - server if postgres else 0.0
    return 1000 * used / _ALONE, 1000 * in_server / _ALONE


def interval_of_median(values: list[float]) -> tuple[float, float]:
    """Between which of `values` their median lies with 95 % confidence, whatever their distribution."""
    ranked = sorted(values)
    away = round(0.98 * len(ranked) ** 0.5)
    middle = len(ranked) // 2
    return ranked[max(0, middle - away)], ranked[min(len(ranked) - 1, middle + away)]


@asynccontextmanager
async def _round_trips(folder: Path) -> AsyncIterator[RoundTrips]:
    async with EmbeddedServer(binary=find_temporal(), log=folder / "temporal.log") as server:
        client = await connect(address=server.address, namespace="default", use_profile=False)
        trips = RoundTrips(client, server.pid or 0)
        async with Worker(client, task_queue=_QUEUE, workflows=[OneActivity], activities=trips.activities()):
            yield trips
