"""The simulated world: inventory, risk, payments and notifications over one log that several processes share.

The log is the truth that tests and people look at (`SimulatedWorld.log`): an act stands in it as `done` once, however
often it was asked for; a repeated call stands there as `replayed`. It holds no personal data.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Final

from orderflow.domain.effects import (
    Absent,
    Act,
    Capabilities,
    Found,
    Handle,
    Listed,
    Performed,
    Provider,
    Undone,
    Unknown,
)
from orderflow.domain.errors import InvalidInput
from orderflow.providers.simulation import rules
from orderflow.providers.simulation.books import FORGOTTEN, Books, Entry, EntryState
from orderflow.providers.simulation.faults import Fault
from orderflow.providers.simulation.journal import Journal, Line, Turn
from orderflow.providers.simulation.replies import Reply

__all__ = ["PROVIDERS", "SIMULATED", "Fault", "Reply", "SimulatedProvider", "SimulatedWorld"]

PROVIDERS: Final = ("inventory", "risk", "payments", "notifications")

SIMULATED: Final = Capabilities(lookup_by=frozenset(Handle), lists=True)
"""What simulated providers declare unless told otherwise: keys for a day, and our reference for ever."""

Decision = Callable[[Turn[Books], int | None], Reply]


class SimulatedWorld:
    """The world whose log is the file at `path` (made, with its folder, if missing).

    `perform`, `undo` and `lookup` run off the event loop and give a `Reply`, which says whether its answer arrives at
    all; a call that is cancelled while a fault delays it goes on, as it would outside. Everything else is blocking
    and short. Any method raises `OSError` when the file cannot be used and `InvalidInput` when it is no such log.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._journal = Journal(path, Books)
        self._calls: set[asyncio.Task[Reply]] = set()

    async def perform(self, act: Act) -> Reply:
        """Do `act` once under its key."""
        return await self._call(lambda turn, started: rules.perform(turn, act, started))

    async def undo(self, undo: Act, of: Act) -> Reply:
        """Take back what stands of `of`, once under the key of `undo`."""
        return await self._call(lambda turn, started: rules.undo(turn, undo, of, started))

    async def lookup(self, act: Act, by: Handle = Handle.KEY) -> Reply:
        """Say what became of `act`."""
        return await self._call(lambda turn, started: rules.lookup(turn, act, started, by))

    async def aclose(self) -> None:
        """Drop the calls that a fault still delays."""
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    def provider(self, name: str, capabilities: Capabilities = SIMULATED) -> "SimulatedProvider":
        """One provider of this world; a name of your own gives one that just remembers what it did."""
        return SimulatedProvider(self, name, capabilities)

    def log(self) -> list[Line]:
        """Everything since the last reset (whose own line comes first), oldest first."""
        with self._journal.turn() as turn:
            return [dict(line) for line in turn.state.lines]

    def add_fault(self, fault: Fault) -> Line:
        """Order a fault; gives its line in the log."""
        with self._journal.turn() as turn:
            return turn.append({"kind": "fault", "injected": fault.model_dump(exclude_none=True)})

    def reset(self) -> Line:
        """Begin anew: full stock, no acts, no faults. The file keeps what was before."""
        with self._journal.turn() as turn:
            return turn.append({"kind": "reset"})

    def refund_by_hand(self, workflow_id: str, amount_minor: int) -> Line:
        """Refund a part of an order's charge as an operator would, outside our keys (M04).

        Raises:
            InvalidInput: when the order has no charge of which that much remains.
        """
        with self._journal.turn() as turn:
            for charge in _forward(turn.state, "payments", workflow_id):
                if 0 < amount_minor <= (charge.remaining_minor or 0):
                    return rules.refund_by_hand(turn, charge, amount_minor)
        raise InvalidInput(f"no charge of {workflow_id} has {amount_minor} left to refund", path="$.amount_minor")

    def stock(self, sku: str) -> int:
        """How many of `sku` are not reserved."""
        with self._journal.turn() as turn:
            return turn.state.in_stock(sku)

    def reserved(self, workflow_id: str) -> dict[str, int]:
        """What an order holds now: quantity by SKU."""
        with self._journal.turn() as turn:
            held = [entry.items for entry in turn.state.entries("inventory", workflow_id) if entry.holds]
        return {sku: sum(items.get(sku, 0) for items in held) for items in held for sku in items}

    def net_charged(self, workflow_id: str) -> int:
        """What an order has paid and not got back, in minor units."""
        with self._journal.turn() as turn:
            return sum(charge.remaining_minor or 0 for charge in _forward(turn.state, "payments", workflow_id))

    def messages(self, workflow_id: str) -> list[Line]:
        """The log lines of the messages that an order's customer was sent."""
        with self._journal.turn() as turn:
            return [dict(entry.line) for entry in _forward(turn.state, "notifications", workflow_id)]

    def acts(self, provider: str, since: datetime) -> list[Listed]:
        """What `provider` did since `since` (aware), also if it was undone later, oldest first."""
        with self._journal.turn() as turn:
            listed = [_listed(entry) for entry in turn.state.entries(provider) if _acted(entry)]
        return sorted((row for row in listed if row.at >= since), key=lambda row: row.at)

    async def _call(self, decide: Decision) -> Reply:
        call = asyncio.create_task(self._delayed(decide))
        self._calls.add(call)
        call.add_done_callback(self._forget)
        return await asyncio.shield(call)

    def _forget(self, call: asyncio.Task[Reply]) -> None:
        self._calls.discard(call)
        if not call.cancelled():
            call.exception()  # whoever asked may be gone; nobody else wants to hear of it

    async def _delayed(self, decide: Decision) -> Reply:
        reply = await asyncio.to_thread(self._decide, decide, None)
        if reply.delay is None:
            return reply
        await asyncio.sleep(reply.delay)
        return await asyncio.to_thread(self._decide, decide, reply.seq)

    def _decide(self, decide: Decision, started: int | None) -> Reply:
        with self._journal.turn() as turn:
            return decide(turn, started)


class SimulatedProvider(Provider):
    """One provider of a simulated world, in process. A lost reply is `Unknown`; a hanging one never comes.

    What it is declared not to look up it does not say, whatever stands in the log.
    """

    def __init__(self, world: SimulatedWorld, name: str, capabilities: Capabilities = SIMULATED) -> None:
        self._world = world
        self._capabilities = capabilities
        self.name = name

    @property
    def capabilities(self) -> Capabilities:
        """See `Provider`."""
        return self._capabilities

    async def perform(self, act: Act) -> Performed:
        """See `Provider`."""
        return _performed(await _arrived(self._world.perform(act)))

    async def lookup(self, act: Act, by: Handle = Handle.KEY) -> Found:
        """See `Provider`."""
        if by not in self._capabilities.lookup_by:
            return Unknown(detail=f"no lookup by {by}")
        return await _arrived(self._world.lookup(act, by))

    async def undo(self, undo: Act, of: Act) -> Performed:
        """See `Provider`."""
        return _performed(await _arrived(self._world.undo(undo, of)))

    async def list(self, since: datetime) -> "list[Listed] | None":
        """See `Provider`; `None` when the log cannot be read."""
        try:
            return await asyncio.to_thread(self._world.acts, self.name, since)
        except (OSError, InvalidInput):
            return None

    async def aclose(self) -> None:
        """Drop the calls that a fault still delays, at all providers of this world."""
        await self._world.aclose()


async def _arrived(asked: Awaitable[Reply]) -> Found:
    try:
        reply = await asked
    except OSError as error:  # a full disk may or may not have kept the line
        return Unknown(detail=f"the simulator's log cannot be used: {error.strerror}"[:200])
    except InvalidInput:  # its message names the file, which is nothing for an order's history
        return Unknown(detail="the simulator's log is corrupt; `orderflow doctor` says where")
    if reply.delivery == "never":
        await asyncio.get_running_loop().create_future()
    return reply.answer if reply.delivery == "sent" else Unknown(detail="lost_reply")


def _performed(answer: Found) -> Performed:
    """Narrow the type: an act is never answered with what only a lookup can say."""
    return Unknown(detail=answer.answer) if isinstance(answer, Absent | Undone) else answer


def _forward(books: Books, provider: str, workflow_id: str) -> list[Entry]:
    """What was done for an order and was no undo, also if it was undone later."""
    return [entry for entry in books.entries(provider, workflow_id) if _acted(entry) and not entry.is_undo]


def _acted(entry: Entry) -> bool:
    return entry.state in (EntryState.DONE, EntryState.UNDONE) and entry.line["outcome"] == "done"


def _listed(entry: Entry) -> Listed:
    return Listed(
        key=str(entry.line["key"]).partition(FORGOTTEN)[0],
        operation=str(entry.line["operation"]),
        reference=str(entry.line["reference"]),
        at=datetime.fromisoformat(str(entry.line["at"])),
        amount_minor=entry.amount_minor,
    )
