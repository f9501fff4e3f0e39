"""Providers as a reconciliation asks them: each answer has to come in time, and one that is out is soon left alone."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Final, TypeVar

from orderflow.domain.effects import (
    Act,
    Capabilities,
    Found,
    Handle,
    Listed,
    Performed,
    Provider,
    Unavailable,
    Unknown,
    capabilities_of,
)

T = TypeVar("T")

log = logging.getLogger(__name__)

SILENCES: Final = 5
"""After so many calls in a row that nobody answered, a provider is not asked again in this run."""

_LISTS_WITHIN: Final = 6
"""A list may take so many times as long as any other answer."""


class PatientProvider(Provider):
    """A provider that is given `within` for each answer. What is late, or an exception, is an outage and never a "no".

    It performs nothing: reconciling looks and takes back.
    """

    def __init__(self, inner: Provider, within: timedelta) -> None:
        self._inner = inner
        self._within = within.total_seconds()
        self._silent = 0

    @property
    def capabilities(self) -> Capabilities:
        """Those of the provider itself."""
        return capabilities_of(self._inner)

    async def perform(self, act: Act) -> Performed:
        """Nothing is ever done anew here."""
        return Unavailable()

    async def lookup(self, act: Act, by: Handle = Handle.KEY) -> Found:
        """See `Provider`."""
        return await self._answered(lambda: self._inner.lookup(act, by), late=Unavailable())

    async def undo(self, undo: Act, of: Act) -> Performed:
        """See `Provider`."""
        return await self._answered(lambda: self._inner.undo(undo, of), late=Unknown(detail="timeout"))

    async def list(self, since: datetime) -> "list[Listed] | None":
        """See `Provider`; `None` also when it did not answer in time."""
        try:
            async with asyncio.timeout(self._within * _LISTS_WITHIN):
                return await self._inner.list(since)
        except TimeoutError:
            return None
        except Exception as error:  # noqa: BLE001 - another team's provider may raise anything
            log.warning("a provider raised %s instead of a list", type(error).__name__)
            return None

    async def aclose(self) -> None:
        """Whoever opened it closes it."""

    async def _answered(self, ask: Callable[[], Awaitable[T]], late: T) -> T | Unavailable:
        if self._silent >= SILENCES:
            return Unavailable()
        try:
            async with asyncio.timeout(self._within):
                answer = await ask()
        except TimeoutError:
            self._silent += 1
            return late
        except Exception as error:  # noqa: BLE001 - another team's provider may raise anything
            log.warning("a provider raised %s instead of an answer", type(error).__name__)
            self._silent += 1
            return late
        self._silent = self._silent + 1 if isinstance(answer, Unavailable) else 0
        return answer
