"""What ledger tests share: acts, a provider whose log is the truth, and a ledger that dies, waits or is watched."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from orderflow.domain.effects import Absent, Act, Done, Found, Listed, Performed, Undone
from orderflow.domain.intents import Direction, digest, idempotency_key
from orderflow.domain.strict_json import JsonValue
from orderflow.ledger import EffectLedger

NO_TIME = timedelta(0)
LONG = timedelta(minutes=5)


def charge(workflow_id: str = "order-1", amount_minor: int = 1000) -> Act:
    """The charge of one order."""
    return _act(workflow_id, Direction.DO, "charge", amount_minor)


def refund(workflow_id: str = "order-1", amount_minor: int = 1000) -> Act:
    """The refund of the same charge."""
    return _act(workflow_id, Direction.UNDO, "refund", amount_minor)


def _act(workflow_id: str, direction: Direction, operation: str, amount_minor: int) -> Act:
    intent: dict[str, JsonValue] = {"operation": operation, "amount_minor": amount_minor, "currency": "EUR"}
    return Act(
        key=idempotency_key(workflow_id, "charge", direction),
        workflow_id=workflow_id,
        step="charge",
        provider="payments",
        operation=operation,
        intent=intent,
        intent_digest=digest(intent),
        amount_minor=amount_minor,
        currency="EUR",
    )


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

    async def perform(self, act: Act) -> Performed:
        answer: Performed = await self._answer("perform", act.key, lambda: self._charge(act))
        return answer

    async def lookup(self, act: Act) -> Found:
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
        left = sum(amount for _, key, amount in self.log if key in (of.key, undo.key))
        if left:
            self.log.append((undo.operation, undo.key, -left))
        return Done(reference=f"ref-{undo.key}", amount_minor=left)

    def _truth(self, key: str) -> Found:
        amounts = [amount for _, logged, amount in self.log if logged == key]
        if not amounts:
            return Absent()
        if amounts[0] > 0 and sum(amounts) == 0:
            return Undone(reference=f"ref-{key}", amount_minor=0)
        return Done(reference=f"ref-{key}", amount_minor=abs(amounts[0]), result={"receipt": key})


class WatchedLedger:
    """A ledger with a hook `before` and `after` its methods, by name; `count` says how often each was called."""

    def __init__(self, inner: EffectLedger) -> None:
        self._inner = inner
        self.before: dict[str, Callable[[], Awaitable[None]]] = {}
        self.after: dict[str, Callable[[], Awaitable[None]]] = {}
        self.failed: dict[str, asyncio.Event] = {}
        self.count: dict[str, int] = {}

    def __getattr__(self, method: str) -> Any:
        async def watched(*args: Any, **named: Any) -> Any:
            self.count[method] = self.count.get(method, 0) + 1
            if method in self.before:
                await self.before[method]()
            try:
                result = await getattr(self._inner, method)(*args, **named)
            except Exception:
                self.failed.setdefault(method, asyncio.Event()).set()
                raise
            if method in self.after:
                await self.after[method]()
            return result

        return watched


async def dies() -> None:
    """A hook: the process is killed here."""
    raise Killed
