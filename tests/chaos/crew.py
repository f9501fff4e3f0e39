"""Worker processes side by side, on one ledger and one server of simulated providers; who dies is replaced at once."""

import asyncio
import signal
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Self

from temporalio.client import Client

from orderflow.domain.effects import EffectState
from orderflow.domain.orders import Stage
from orderflow.ledger import AttemptRecord, EffectRecord
from orderflow.providers.simulation.journal import Line
from tests.support.invariants import Books, check_books
from tests.support.observing import at_stage, eventually
from tests.support.processes import Child, simulator_of, worker_of
from tests.support.shop import Change, Ending, Order, Shop, open_shop, quick

PATIENCE: Final = 120.0
"""Seconds that any wait of a test may take, such as that for the end of an order, on a machine that is busy."""

TIMED_OUT: Final = frozenset({"I-5 in time"})
"""What does not hold for orders of workers that die: a workflow task that was meant for a dead one times out."""


def hurried(attempts: int) -> Change:
    """A change of the packaged definition: heartbeats of one second, attempts of ten seconds, one second apart."""

    def change(value: dict[str, Any]) -> None:
        quick(value)
        value["version"] = "1.0.1"  # so that a worker can publish it beside the packaged one
        for step in value["steps"]:
            for policy in (step, step.get("compensation") or {}):
                if "retry" in policy:
                    policy["retry"]["attempts"] = attempts
                    policy["start_to_close"], policy["schedule_to_close"] = "PT10S", "PT10M"

    return change


class Crew:
    """`async with Crew(shop, ...) as crew`: worker processes for the orders of `shop`; `settings` are theirs."""

    def __init__(self, shop: Shop, size: int, **settings: Any) -> None:
        self.shop = shop
        self._size = size
        self._settings = settings
        self._stack = AsyncExitStack()
        self._hired = 0
        self._working: dict[int, Child] = {}

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            workers = [await self._hire(stack) for _ in range(self._size)]
            await asyncio.gather(*(worker.until_said("worker ready", PATIENCE) for worker in workers))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _hire(self, stack: AsyncExitStack) -> Child:
        self._hired += 1
        worker = worker_of(self.shop, f"worker-{self._hired}", **self._settings)
        await stack.enter_async_context(worker)
        self._working[worker.pid] = worker
        return worker

    async def replace(self, pid: int) -> None:
        """SIGKILL the worker with this process id, unless it is gone already, and start another one."""
        if (worker := self._working.pop(pid, None)) is None:
            return
        if (code := await worker.stop(signal.SIGKILL)) != -signal.SIGKILL:
            raise AssertionError(f"a worker had ended with {code} before it was killed: {worker.said}")
        await self._hire(self._stack)

    def worker(self, pid: int) -> Child:
        """The worker with this process id."""
        return self._working[pid]

    async def until_said(self, words: str) -> None:
        """Wait until one of the workers has printed `words`."""

        async def look() -> bool:
            return any(words in worker.said for worker in self._working.values())

        await eventually(look, PATIENCE)

    def wake_up(self) -> None:
        """Let all workers that were stopped go on."""
        for worker in self._working.values():
            worker.send(signal.SIGCONT)

    def require_alive(self) -> None:
        """Raise `AssertionError` unless every worker that was not killed still runs (I-6)."""
        if dead := [worker.said for worker in self._working.values() if not worker.is_alive]:
            raise AssertionError(f"I-6: a worker ended by itself: {dead}")

    async def holder(self, line: Line) -> int:
        """The process id of the worker whose call of a provider `line` of the log is about."""
        attempts = await attempts_at(self.shop, str(line["workflow_id"]), str(line["key"]))
        return int(attempts[-1].holder.partition("/")[0].rpartition("-")[2])

    async def kill_whoever_waits(self, line: Line) -> None:
        """SIGKILL the worker to which the provider gave no answer, as `line` of the log says."""
        await self.replace(await self.holder(line))


@asynccontextmanager
async def open_crew(
    client: Client, folder: Path, change: Change, *, size: int = 2, ledger_url: str = "", **settings: Any
) -> AsyncIterator[Crew]:
    """A shop with `size` workers and its providers as processes; `settings` are more of the workers'."""
    opened = open_shop(client, folder, change=change, ledger_url=ledger_url, patience=PATIENCE)
    async with opened as shop, simulator_of(shop) as url:
        configured = {"providers": "http", "providers_url": url, "providers_timeout": 30, **settings}
        if ledger_url:
            configured["ledger_url"] = ledger_url
        async with Crew(shop, size, **configured) as crew:
            yield crew


async def start(shop: Shop) -> Order:
    """Start an order whose workflow tasks are soon given to another worker when theirs has died."""
    return await shop.start(task_timeout=timedelta(seconds=3))


async def approve_when_asked(order: Order) -> None:
    """Wait for the approval request, without a question to the order, and approve it."""
    await at_stage(order.handle, Stage.AWAITING_APPROVAL, PATIENCE, pause=0.25)
    await order.approve()


async def approved(order: Order) -> Ending:
    """Approve the order when it asks, and wait for its end."""
    await approve_when_asked(order)
    return await order.ending()


async def seen(shop: Shop, order: Order, operation: str, outcome: str, **more: object) -> Line:
    """Wait for a line of the providers' log, and give it."""

    async def look() -> Line | None:
        wanted = {"workflow_id": order.id, "operation": operation, "outcome": outcome, **more}
        return next((line for line in shop.world.log() if wanted.items() <= line.items()), None)

    return await eventually(look, PATIENCE)


async def attempts_at(shop: Shop, order: str, key: str) -> list[AttemptRecord]:
    """Who tried to do an effect, the first one first."""
    attempts = [attempt for attempt in await shop.ledger.attempts(order) if attempt.key == key]
    return sorted(attempts, key=lambda attempt: attempt.token)


async def check_order(order: Order, exempt: Collection[str] = TIMED_OUT) -> Books:
    """Compare the providers' log, the ledger and the history of an order; gives its books."""
    await check_books(books := await order.books(), exempt)
    _nothing_asked_twice(books)
    for record in books.effects:
        _same_reference(books, record)
    return books


def _nothing_asked_twice(books: Books) -> None:
    """I05: what a provider has done it is not asked to do again, though it would know: it is looked up."""
    again = [line for line in books.log if line["outcome"] == "replayed" and line["operation"] != "check"]
    if again:
        raise AssertionError(f"I05: asked again for what was done: {again}")


def _same_reference(books: Books, record: EffectRecord) -> None:
    """I05: of what stands the ledger has the provider's own id."""
    if record.state is EffectState.COMMITTED:
        acts = [line for line in books.log if line["kind"] == "act" and line["key"] == record.key]
        references = [line["reference"] for line in acts if "reference" in line]
        if references != [record.reference]:
            raise AssertionError(f"I05: the ledger has {record.reference} for {record.key}, the provider {references}")
