"""A provider for ledger tests whose own log is the truth."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from orderflow.domain.effects import Absent, Act, Capabilities, Done, Found, Handle, Listed, Performed, Undone


class Killed(BaseException):
    """Stands for a process that is gone: nothing below an entry point catches it."""


@dataclass
class Told:
    """How a bank answers one call: acts first or not, waits, then answers or raises."""

    answer: Found | BaseException
    acts: bool = False
    gate: asyncio.Event | None = None


@dataclass
class Bank:
    """A provider that acts *each* time it is asked, so that a second call is a second charge in `log`.

    `told` are the answers to perform and undo, one a call, then it does as it should; `finds` the same for lookups.
    """

    told: deque[Told] = field(default_factory=deque)
    finds: deque[Found | BaseException] = field(default_factory=deque)
    log: list[tuple[str, str, int]] = field(default_factory=list)
    calls: list[tuple[str, str]] = field(default_factory=list)
    entered: asyncio.Event = field(default_factory=asyncio.Event)
    on_call: Callable[[], None] = lambda: None
    capabilities: Capabilities = field(default_factory=lambda: Capabilities(key_horizon=None))
    taken_back: dict[str, str] = field(default_factory=dict)

    async def perform(self, act: Act) -> Performed:
        answer: Performed = await self._answer("perform", act.key, lambda: self._charge(act))
        return answer

    async def lookup(self, act: Act, by: Handle = Handle.KEY) -> Found:
        self.calls.append(("lookup", act.key))
        if self.finds:
            found = self.finds.popleft()
            if isinstance(found, BaseException):
                raise found
            return found
        return self._truth(act.key)

    async def undo(self, undo: Act, of: Act) -> Performed:
        answer: Performed = await self._answer("undo", undo.key, lambda: self._refund(undo, of))
        return answer

    async def list(self, since: datetime) -> list[Listed] | None:
        return None

    async def aclose(self) -> None:
        return None

    def refunded_by_hand(self, of: Act, amount_minor: int) -> None:
        self.log.append(("by hand", of.key, -amount_minor))

    def acts(self, operation: str) -> int:
        return sum(done == operation for done, _, _ in self.log)

    def net(self) -> int:
        return sum(amount for _, _, amount in self.log)

    async def _answer(self, method: str, key: str, act: Callable[[], Done]) -> Any:
        self.calls.append((method, key))
        self.on_call()
        told = self.told.popleft() if self.told else None
        done = act() if told is None or told.acts else None
        self.entered.set()
        if told is None:
            return done
        if told.gate is not None:
            await told.gate.wait()
        if isinstance(told.answer, BaseException):
            raise told.answer
        return told.answer

    def _charge(self, act: Act) -> Done:
        self.log.append((act.operation, act.key, act.amount_minor or 0))
        return Done(reference=f"ref-{act.key}", amount_minor=act.amount_minor, result={"receipt": act.key})

    def _refund(self, undo: Act, of: Act) -> Done:
        self.taken_back[of.key] = undo.key
        left = sum(amount for _, key, amount in self.log if key in (of.key, undo.key))
        if left:
            self.log.append((undo.operation, undo.key, -left))
        return Done(reference=f"ref-{undo.key}", amount_minor=left)

    def _truth(self, key: str) -> Found:
        amounts = [amount for _, logged, amount in self.log if logged == key]
        if not amounts:
            return Absent()
        back = sum(amount for _, logged, amount in self.log if logged == self.taken_back.get(key))
        if amounts[0] > 0 and sum(amounts) + back == 0:
            return Undone(reference=f"ref-{key}", amount_minor=0)
        return Done(reference=f"ref-{key}", amount_minor=abs(amounts[0]), result={"receipt": key})
