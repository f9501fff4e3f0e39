"""Whether the door can work: what it needs is asked at most once a second, for anybody may ask the door."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from temporalio.client import Client

from orderflow.callers import CallerRegistry
from orderflow.domain.deliveries import DeliveryRefused
from orderflow.ingress.availability import available
from orderflow.ingress.gate import Gate
from orderflow.ledger import INGRESS
from orderflow.ledger.review import Ledger

OK: Final = "ok"

_LASTS: Final = 1.0


class Readiness:
    """What the door needs, and how it is; `clock` gives steady seconds."""

    def __init__(
        self,
        *,
        client: Client,
        ledger: Ledger,
        callers: CallerRegistry,
        gate: Gate,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._ledger = ledger
        self._callers = callers
        self._gate = gate
        self._clock = clock
        self._looking = asyncio.Lock()
        self._looked_at = -_LASTS
        self._needs: Mapping[str, str] = {}

    async def checks(self) -> dict[str, str]:
        """Say how each thing is, in words that tell strangers nothing.

        Only `ledger` and `temporal` have to be `ok`: a closed gate answers, and so does a door with older callers.
        """
        async with self._looking:
            if self._clock() - self._looked_at >= _LASTS:
                self._needs = {
                    "ledger": await _answers(self._ledger.check(INGRESS)),
                    "temporal": await _answers(self._client.service_client.check_health()),
                }
                self._looked_at = self._clock()
        return {
            **self._needs,
            "callers": OK if self._callers.fault is None else "not as they should be; the log says more",
            "intake": "open" if self._gate.verdict() is None else "closed",
        }


async def _answers(asked: Awaitable[object]) -> str:
    try:
        async with available():
            await asked
    except DeliveryRefused:
        return "away"
    return OK
