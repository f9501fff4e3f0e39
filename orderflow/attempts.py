"""One attempt of one activity: who holds what it claims and for how long, what time it is, and its heartbeat."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import monotonic
from typing import TypedDict

from temporalio import activity

_MARGIN = timedelta(seconds=1)
"""A lease outlives the heartbeat by this much, so that a live holder never loses it to a slow renewal."""

_PATIENCE = 0.8
"""The share of one attempt's time that may pass in waiting, so that the attempt can still say how it ended."""


class Terms(TypedDict):
    """What every call of the effect store is told."""

    holder: str
    lease: timedelta
    patience: timedelta


@dataclass(frozen=True)
class Attempt:
    """This attempt of this activity: who holds the claims it makes, for how long, and what time it is.

    The time is the Temporal server's at the start of the attempt plus what has passed since on our own steady clock, so
    that deadlines hold whatever the worker's wall clock says, and in a server that skips time too.
    """

    holder: str
    lease: timedelta
    patience: timedelta
    started: datetime
    since: float

    @classmethod
    def current(cls, worker: str) -> "Attempt":
        """The attempt that runs here; `worker` names this process."""
        info = activity.info()
        span = info.start_to_close_timeout or timedelta(seconds=10)
        return cls(
            holder=f"{worker}/{info.workflow_run_id}/{info.activity_id}/{info.attempt}",
            lease=(info.heartbeat_timeout or span) + _MARGIN,
            patience=span * _PATIENCE,
            started=info.started_time,
            since=monotonic(),
        )

    def now(self) -> datetime:
        """What time it is, aware."""
        return self.started + timedelta(seconds=monotonic() - self.since)

    def terms(self) -> Terms:
        """On which terms this attempt acts through the ledger."""
        return {"holder": self.holder, "lease": self.lease, "patience": self.patience}


@contextlib.asynccontextmanager
async def heartbeats(told: Callable[[], Sequence[object]] = tuple) -> AsyncIterator[None]:
    """Heartbeat from the background, so that a dead worker is noticed and a cancellation heard (T26).

    `told` gives what each heartbeat tells whoever looks at the activity.
    """
    timeout = activity.info().heartbeat_timeout
    ticker = asyncio.create_task(_beat(timeout.total_seconds() / 3, told)) if timeout else None
    try:
        yield
    finally:
        if ticker is not None:
            ticker.cancel()


async def _beat(interval: float, told: Callable[[], Sequence[object]]) -> None:
    while True:
        activity.heartbeat(*told())
        await asyncio.sleep(interval)
