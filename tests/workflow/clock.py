"""The clock of the time-skipping server."""

import asyncio
from datetime import timedelta

from temporalio.testing import WorkflowEnvironment

from tests.support.shop import PATIENCE


class Clock:
    """Lets time pass: about a hundred times faster than outside, and by leaps.

    Only one sleep is asked for at a time: after two that overlap, the server (1.40.0) no longer skips. It never skips
    while an activity runs (T39).
    """

    def __init__(self, env: WorkflowEnvironment) -> None:
        self._env = env
        self._alone = asyncio.Lock()

    async def tick(self) -> None:
        """Let time pass for as long as this runs."""
        while True:
            await self._sleep(timedelta(seconds=1))
            await asyncio.sleep(0.01)

    async def skip(self, span: timedelta) -> None:
        """Leap forward by `span`, everything that is due by then included."""
        async with asyncio.timeout(PATIENCE):
            await self._sleep(span)

    async def _sleep(self, span: timedelta) -> None:
        async with self._alone:
            await self._env.sleep(span)
