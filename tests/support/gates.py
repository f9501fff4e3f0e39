"""Gates at the providers: a call waits at a closed one, so that a test knows where an order stands."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from orderflow.domain.effects import Act, Capabilities, Found, Handle, Listed, Performed, Provider, capabilities_of


@dataclass
class Gate:
    """One closed gate: `reached` is set once a call waits at it, `opened` lets it and all later ones pass."""

    operation: str
    order: str | None
    after: bool
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    opened: asyncio.Event = field(default_factory=asyncio.Event)

    def stands_before(self, act: Act, *, after: bool) -> bool:
        """Whether this call has to wait here."""
        return self.operation == act.operation and self.order in (None, act.workflow_id) and self.after is after

    def open(self) -> None:
        """Let through who waits."""
        self.opened.set()


class Gates:
    """All gates of one shop."""

    def __init__(self) -> None:
        self._gates: list[Gate] = []

    def close(self, operation: str, order: str | None = None, *, after: bool = False) -> Gate:
        """Make calls of `operation` (of one order) wait before they act, or `after` they acted, before the reply."""
        gate = Gate(operation, order, after)
        self._gates.append(gate)
        return gate

    async def wait(self, act: Act, *, after: bool) -> None:
        """Wait at every closed gate that stands before this call."""
        for gate in self._gates:
            if gate.stands_before(act, after=after):
                gate.reached.set()
                await gate.opened.wait()


class GatedProvider(Provider):
    """A provider behind gates. `reached`, called with each act that is let in, may raise in the provider's place."""

    def __init__(self, inner: Provider, gates: Gates, reached: Callable[[Act], None] = lambda _: None) -> None:
        self._inner = inner
        self._gates = gates
        self._reached = reached

    @property
    def capabilities(self) -> Capabilities:
        """What the provider behind the gates declares."""
        return capabilities_of(self._inner)

    async def perform(self, act: Act) -> Performed:
        """See `Provider`."""
        await self._gates.wait(act, after=False)
        self._reached(act)
        answer = await self._inner.perform(act)
        await self._gates.wait(act, after=True)
        return answer

    async def lookup(self, act: Act, by: Handle = Handle.KEY) -> Found:
        """See `Provider`."""
        return await self._inner.lookup(act, by)

    async def undo(self, undo: Act, of: Act) -> Performed:
        """See `Provider`."""
        await self._gates.wait(undo, after=False)
        self._reached(undo)
        answer = await self._inner.undo(undo, of)
        await self._gates.wait(undo, after=True)
        return answer

    async def list(self, since: datetime) -> "list[Listed] | None":
        """See `Provider`."""
        return await self._inner.list(since)

    async def aclose(self) -> None:
        """See `Provider`."""
        await self._inner.aclose()
