"""A call of the effect store that stops where the model wants it to, and everything that it does on the way.

A call passes *boundaries*: before and after each method of the ledger (`before claim`, `after claim`, …), and for each
request to the bank `sending` (nothing has left), `on its way` (it left and has not arrived), `replying` (the bank has
decided), for each lookup `asking` and `told`. Between two boundaries nothing else runs, so a call that is stopped at
one stands for a process that is preempted, stopped or killed there, while the others go on.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, TypeVar

from orderflow.domain.effects import Act, Busy, Capabilities, Found, Handle, Listed, Performed
from orderflow.domain.errors import EffectBusy, LedgerUnavailable, OrderflowError
from orderflow.ledger import Claim, EffectLedger, EffectRecord
from tests.model.bank import ModelBank, Told
from tests.model.reference import Expected, Reference, answered
from tests.support.bank import Killed

T = TypeVar("T")

_ENDLESS: Final = 500
"""Boundaries that no call passes: each look at the bank or the ledger brings it nearer to its end, or stops it."""

_HUNG: Final = 120.0
"""Seconds that not even a disk under load takes for one step."""


class Fate(StrEnum):
    """What becomes of a call at the boundary where it stops."""

    WAITS = "waits"
    DIES = "dies"
    IS_CANCELLED = "is cancelled"
    LOSES_THE_LEDGER = "loses the ledger"


@dataclass
class World:
    """What all calls of one example share: the bank, the reference, and what was found to be `wrong`."""

    bank: ModelBank = field(default_factory=ModelBank)
    reference: Reference = field(default_factory=Reference)
    wrong: list[str] = field(default_factory=list)


class Call:
    """One call of the store by one worker. `told` is how the bank takes its request, `noise` its lookups."""

    def __init__(self, world: World, told: Told = Told.DONE, noise: list[Told] | None = None) -> None:
        self.world = world
        self.told = told
        self.noise = list(noise or [])
        self.claim: Claim | None = None
        self.claimed_at = 0
        self.takes_last_look = False
        self.is_patient = False
        self.where = ""
        self.looked_away = False
        self._task: asyncio.Task[EffectRecord | None] | None = None
        self._left: int | None = None
        self._fate = Fate.WAITS
        self._dead = False
        self._passed = 0
        self._stopped = asyncio.Event()
        self._go = asyncio.Event()

    async def begin(self, work: Coroutine[Any, Any, EffectRecord | None], left: int | None, fate: Fate) -> None:
        """Start, and run as `go_on` says."""
        self._left, self._fate = left, fate
        self._task = asyncio.create_task(work)
        await self._until_it_stops()

    async def go_on(self, left: int | None, fate: Fate) -> None:
        """Run through `left` boundaries more and meet `fate` at the next; `None`: run to the end."""
        self._left, self._fate = left, fate
        self._stopped.clear()
        self._go.set()
        await self._until_it_stops()

    async def kill(self) -> None:
        """End a call that nobody looks at any more."""
        while not self.is_over:
            await self.go_on(0, Fate.DIES)

    @property
    def is_over(self) -> bool:
        """Whether it has answered, raised, or died."""
        return self._task is not None and self._task.done()

    def outcome(self) -> EffectRecord | BaseException | None:
        """What it gave or raised."""
        assert self._task is not None
        try:
            return self._task.exception() or self._task.result()
        except asyncio.CancelledError as cancelled:
            return cancelled

    async def boundary(self, where: str, *, busy: bool = False) -> None:
        """Pass, or stop here. A patient call that found the effect `busy` always stops: somebody else has to go on."""
        self.where = where
        self._passed += 1
        if self._passed == _ENDLESS:
            self.world.wrong.append(f"a call goes round and round: {where}")
            self._dead = True
        if self._dead:
            raise Killed
        if busy and self.is_patient:
            self._left, self._fate = 0, Fate.WAITS
        if self._left is None:
            return
        if self._left:
            self._left -= 1
            return
        await self._meet_fate()

    async def _meet_fate(self) -> None:
        if self._fate is Fate.LOSES_THE_LEDGER:
            if self.where.startswith(("before", "after")):
                self._left = None
                raise LedgerUnavailable(f"lost {self.where}")
            return
        self.looked_away = True
        if self._fate is Fate.WAITS:
            self._go.clear()
            self._stopped.set()
            await self._go.wait()
            await self.boundary(self.where)
            return
        self._left = None
        if self._fate is Fate.DIES:
            self._dead = True
            raise Killed
        assert self._task is not None
        self._task.cancel()
        await asyncio.sleep(0)

    async def _until_it_stops(self) -> None:
        assert self._task is not None
        stopped = asyncio.create_task(self._stopped.wait())
        async with asyncio.timeout(_HUNG):
            await asyncio.wait({self._task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()


class FollowedLedger:
    """The ledger as one call sees it: a boundary before and after each method, each answer compared."""

    def __init__(self, inner: EffectLedger, call: Call) -> None:
        self._inner = inner
        self._call = call
        self._reference = call.world.reference

    async def get(self, key: str) -> EffectRecord | None:
        return await self._follow("get", lambda: self._reference.get(key), lambda: self._inner.get(key))

    async def claim(
        self, act: Act, *, holder: str, lease: timedelta, claim_by: datetime | None = None
    ) -> Claim | EffectRecord:
        return await self._follow(
            "claim",
            lambda: self._reference.claim(act),
            lambda: self._inner.claim(act, holder=holder, lease=lease, claim_by=claim_by),
        )

    async def claim_undo(self, undo: Act, of: Act, *, holder: str, lease: timedelta) -> Claim | EffectRecord:
        return await self._follow(
            "claim undo",
            lambda: self._reference.claim_undo(undo, of),
            lambda: self._inner.claim_undo(undo, of, holder=holder, lease=lease),
        )

    async def renew(self, claim: Claim, lease: timedelta) -> None:
        await self._follow(
            "renew", lambda: self._reference.renew(claim), lambda: self._inner.renew(claim, lease), stops=False
        )

    async def settle(self, claim: Claim, answer: Found) -> EffectRecord:
        return await self._follow(
            "settle", lambda: self._reference.settle(claim, answer), lambda: self._inner.settle(claim, answer)
        )

    async def settle_undo(self, claim: Claim, of: Act, answer: Found) -> EffectRecord:
        return await self._follow(
            "settle undo",
            lambda: self._reference.settle_undo(claim, of, answer),
            lambda: self._inner.settle_undo(claim, of, answer),
        )

    async def void(self, act: Act, claim: Claim | None = None) -> EffectRecord:
        return await self._follow(
            "void", lambda: self._reference.void(act, claim), lambda: self._inner.void(act, claim)
        )

    async def _follow(
        self, what: str, expect: Callable[[], Expected], do: Callable[[], Awaitable[T]], *, stops: bool = True
    ) -> T:
        if stops:
            await self._call.boundary(f"before {what}")
        expected, error = expect(), None
        try:
            result: Any = await do()
        except OrderflowError as raised:
            result = error = raised
        if answered(result) != expected:
            self._call.world.wrong.append(f"{what} gave {answered(result)}, and has to give {expected}")
        if isinstance(result, Claim):
            self._call.claim, self._call.claimed_at = result, self._call.world.bank.tick()
        if stops:
            await self._call.boundary(f"after {what}", busy=isinstance(error, EffectBusy))
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]  # what `do` gave


class BankLine:
    """The bank as one call reaches it."""

    capabilities = Capabilities(key_horizon=None)

    def __init__(self, call: Call) -> None:
        self._call = call
        self._bank = call.world.bank

    async def perform(self, act: Act) -> Performed:
        return await self._send(act)

    async def undo(self, undo: Act, of: Act) -> Performed:
        return await self._send(undo, of)

    async def lookup(self, act: Act, by: Handle = Handle.KEY) -> Found:
        await self._call.boundary("asking")
        self._call.looked_away = False
        found = self._bank.look_up(self._call, act, self._call.noise.pop(0) if self._call.noise else Told.DONE)
        await self._call.boundary("told", busy=isinstance(found, Busy))
        return found

    async def list(self, since: datetime) -> list[Listed] | None:
        return None

    async def aclose(self) -> None:
        return None

    async def _send(self, act: Act, of: Act | None = None) -> Performed:
        await self._call.boundary("sending")
        request = self._bank.post(self._call, act, self._call.told, of)
        await self._call.boundary("on its way")
        try:
            return self._bank.receive(request)
        finally:
            await self._call.boundary("replying")
