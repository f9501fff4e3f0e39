"""The gate of one door: it looks at Temporal again and again, and closes by itself while orders could not go on.

What an operator paused stands in the ledger, and `receive` reads it in its own transaction: this gate does not judge by
it, it only logs who said what. Nothing here touches an order that runs.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import Final

from temporalio.client import Client

from orderflow.client import backlog
from orderflow.domain.errors import LedgerUnavailable
from orderflow.domain.intake import ALL_DOORS, LOOK_EVERY, Closure, Intake, Look, after
from orderflow.ledger.events import EventLedger, IntakeRecord
from orderflow.settings import Settings

log = logging.getLogger(__name__)

TELL_EVERY: Final = timedelta(seconds=20)
"""How often a door says in the ledger that it still stands as it does: well within the two minutes after which
`orderflow intake status` takes it for gone."""

FORGET_EVERY: Final = timedelta(minutes=1)
"""How often a door has old nonces forgotten: a minute's worth of them is few."""

NONCES_KEPT: Final = timedelta(hours=1)
"""A nonce counts for as long as its timestamp would be accepted, six minutes. The clocks of doors and ledger may differ
by what is more than that."""


@dataclass(frozen=True)
class Closed:
    """Why no event is taken in, in words for senders, and after how many seconds they may try again."""

    reason: str
    retry_after: float


_FOR_SENDERS: Final = MappingProxyType(
    {
        # the door needs 8 s of good looks to open
        Closure.TEMPORAL_AWAY: Closed("no order can be started at the moment", 10),
        # the tasks that wait take longer to be worked off
        Closure.BACKLOG: Closed("orders already wait for longer than they should", 30),
    }
)


class Gate:
    """The gate of the door `name`. Run `watch` as long as the door is open for requests; `verdict` is free to ask.

    `settings` give the task queue and the limit. `observe` looks at Temporal, `clock` tells steady seconds: for tests.
    """

    def __init__(
        self,
        ledger: EventLedger,
        client: Client,
        settings: Settings,
        name: str,
        *,
        observe: Callable[[], Awaitable[Look]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledger = ledger
        self._observe = observe or (lambda: backlog.look(client, settings.task_queue))
        self._limit = settings.backlog_limit
        self._queue = settings.task_queue
        self._name = name
        self._clock = clock
        self._intake = Intake()
        self._reason = self._ledger_fault = ""
        self._operators: IntakeRecord | None = None
        self._told: Closure | None = None
        self._tell_at = self._forget_at = -float("inf")

    def verdict(self) -> Closed | None:
        """Why this door takes nothing in now, `None` while it does. What it knows already; asks nobody."""
        return _FOR_SENDERS[self._intake.closed] if self._intake.closed else None

    async def watch(self) -> None:
        """Look, and tell, until cancelled; nothing that happens to Temporal or to the ledger ends it."""
        await asyncio.gather(_repeatedly(self.look), _repeatedly(self.tell))

    async def look(self) -> None:
        """Look at Temporal once, and open or close."""
        seen = await self._observe()
        before, self._intake = self._intake, after(self._intake, seen, self._limit)
        closed = self._intake.closed
        if closed is before.closed:
            return
        self._reason = self._why(closed, seen)
        if closed:
            log.warning("this door takes no events in: %s", self._reason)
        else:
            log.info("this door takes events in again")

    def _why(self, closed: Closure | None, seen: Look) -> str:
        """Why this door closed, for operators; empty when it opened."""
        if closed is Closure.BACKLOG and self._limit is not None:
            span = f"{self._limit.total_seconds():g}"
            return f"a task in {self._queue} waited for a worker longer than {span} s; opens below half of that"
        return seen.fault or ""

    async def tell(self) -> None:
        """Say in the ledger how this door stands, if that has changed or was said long ago; forget old nonces.

        Log what operators said meanwhile: who, and why. A ledger that cannot be used now is told by a later turn.
        """
        now, closed = self._clock(), self._intake.closed
        try:
            if closed is not self._told or now >= self._tell_at:
                paused, reason = closed is not None, self._reason
                await self._ledger.set_intake(self._name, paused=paused, reason=reason, changed_by=self._name)
                self._told, self._tell_at = closed, now + TELL_EVERY.total_seconds()
            if now >= self._forget_at:
                await self._ledger.forget_nonces(NONCES_KEPT)
                self._forget_at = now + FORGET_EVERY.total_seconds()
            self._log_operators(await self._ledger.intake())
            self._ledger_fault = ""
        except LedgerUnavailable as error:
            if error.message != self._ledger_fault:  # said once, not every two seconds
                log.warning("the ledger does not hear of this door: %s", error.message)
            self._ledger_fault = error.message

    def _log_operators(self, gates: Sequence[IntakeRecord]) -> None:
        before, self._operators = self._operators, next((gate for gate in gates if gate.scope == ALL_DOORS), None)
        now = self._operators
        if now is None or (before is not None and before.changed_at == now.changed_at):
            return
        if now.paused:
            log.warning("%s paused intake at %s: %s", now.changed_by, now.changed_at, now.reason)
        else:
            log.info("%s opened intake at %s", now.changed_by, now.changed_at)


async def _repeatedly(turn: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            await turn()
        except Exception:  # a watch that ended would leave the door as it stands, for ever
            log.exception("the gate of this door could not %s; it tries again", getattr(turn, "__name__", "go on"))
        await asyncio.sleep(LOOK_EVERY.total_seconds())
