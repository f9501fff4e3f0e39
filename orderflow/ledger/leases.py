"""Holding a claim: waiting for it, renewing it while a provider is asked, letting it go whatever happens."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar

from orderflow.domain.effects import Absent, Found, Unknown
from orderflow.domain.errors import (
    ClaimLost,
    EffectBusy,
    LedgerUnavailable,
    OrderflowError,
    OutcomeUnknown,
    TransientError,
)
from orderflow.ledger import Claim, EffectLedger, EffectRecord

T = TypeVar("T")

_SHORTEST_RENEWAL = 0.05  # seconds; a lease of nothing must not become a busy loop


class Deadline:
    """A moment `patience` from now, on the event loop's own clock."""

    def __init__(self, patience: timedelta) -> None:
        self._at = asyncio.get_running_loop().time() + patience.total_seconds()

    def left(self) -> float:
        """Seconds until then; 0 when it is past."""
        return max(0.0, self._at - asyncio.get_running_loop().time())


async def claim_in_turn(
    ledger: EffectLedger,
    claim: Callable[[], Coroutine[Any, Any, Claim | EffectRecord]],
    deadline: Deadline,
    poll_interval: float,
) -> Claim | EffectRecord:
    """Claim; while another holds the effect, try again every `poll_interval` seconds until `deadline`.

    Raises:
        EffectBusy: if it is still held then; everything else that `claim` raises.
    """
    while True:
        try:
            return await _claim_or_let_go(ledger, claim())
        except EffectBusy:
            if not deadline.left():
                raise
            await asyncio.sleep(min(poll_interval, deadline.left()))


async def ask_while_held(
    ledger: EffectLedger,
    claim: Claim,
    lease: timedelta,
    ask: Callable[[], Awaitable[Found]],
    write: Callable[[Found], Coroutine[Any, Any, EffectRecord]],
) -> tuple[Found, EffectRecord]:
    """Renew `claim` while `ask` asks the provider, and `write` down the answer, also when `ask` is cut short.

    Raises:
        OutcomeUnknown: if `ask` raised what is no error of ours, which no provider should.
        ClaimLost, LedgerUnavailable: if the answer could not be written.
    """
    renewal = asyncio.create_task(_renew(ledger, claim, lease))
    try:
        answer = await _ask(ask, write)
        return answer, await to_the_end(write(answer))
    finally:
        renewal.cancel()


async def to_the_end(work: Coroutine[Any, Any, T] | asyncio.Task[T]) -> T:
    """Await `work` to its end, however often this task is cancelled meanwhile; the cancellation is raised after it."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return task.result()
    task.exception()
    raise cancelled


async def _ask(
    ask: Callable[[], Awaitable[Found]], write: Callable[[Found], Coroutine[Any, Any, EffectRecord]]
) -> Found:
    try:
        return await ask()
    except asyncio.CancelledError:
        await _write_if_possible(write(Unknown(detail="cancelled")))
        raise
    except OrderflowError:  # not wanted any more: nothing was sent
        await _write_if_possible(write(Absent()))
        raise
    except Exception as error:
        what = f"the provider raised {type(error).__name__}"
        await _write_if_possible(write(Unknown(detail=what[:200])))
        raise OutcomeUnknown(what) from error


async def _write_if_possible(writing: Coroutine[Any, Any, EffectRecord]) -> None:
    with suppress(TransientError):  # then the lease ends by itself
        await to_the_end(writing)


async def _claim_or_let_go(
    ledger: EffectLedger, claiming: Coroutine[Any, Any, Claim | EffectRecord]
) -> Claim | EffectRecord:
    """Claim; when cancelled meanwhile, give back what was claimed, so that an undo need not wait for the lease."""
    claim = asyncio.create_task(claiming)
    try:
        return await to_the_end(claim)
    except asyncio.CancelledError:
        if claim.exception() is None and isinstance(claimed := claim.result(), Claim):
            await _write_if_possible(ledger.settle(claimed, Absent()))
        raise


async def _renew(ledger: EffectLedger, claim: Claim, lease: timedelta) -> None:
    while True:
        await asyncio.sleep(max(lease.total_seconds() / 3, _SHORTEST_RENEWAL))
        try:
            await ledger.renew(claim, lease)
        except ClaimLost:  # the fencing token will refuse what comes of it
            return
        except LedgerUnavailable:
            continue
