"""What every measurement does again and again: one charge through a ledger, at a provider that answers at once."""

import asyncio
import hashlib
from collections.abc import Iterator
from datetime import datetime, timedelta

from orderflow.domain.effects import Absent, Act, Done, Found, Handle, Listed, Performed, Provider
from orderflow.ledger import EffectLedger
from orderflow.ledger.effects import EffectStore
from tests.support.ledger import charge

_LEASE = timedelta(seconds=15)
_PATIENCE = timedelta(seconds=8)
_HOLDER = "worker-1/01234567-89ab-cdef-0123-456789abcdef/1/1"


class AtOnce(Provider):
    """A provider that takes no time: what is measured is what stands around it."""

    async def perform(self, act: Act) -> Performed:
        """Do nothing, successfully."""
        return Done(reference=f"ch_{act.key[:16]}", amount_minor=act.amount_minor)

    async def lookup(self, act: Act, by: Handle = Handle.KEY) -> Found:
        """Never asked: every effect is a new one."""
        return Absent()

    async def undo(self, undo: Act, of: Act) -> Performed:
        """Never asked: nothing is undone."""
        return Done(reference=undo.key, amount_minor=0)

    async def list(self, since: datetime) -> "list[Listed] | None":
        """Never asked."""
        return None

    async def aclose(self) -> None:
        """Hold nothing."""


def order_name(series: str, number: int) -> str:
    """A Workflow ID as orders have it: its keys fall anywhere among those of other orders."""
    return f"order-{hashlib.sha256(f'{series} {number}'.encode()).hexdigest()[:32]}"


def acts(series: str) -> Iterator[Act]:
    """New charges without end; two series have none in common."""
    number = 0
    while True:
        yield charge(order_name(series, number))
        number += 1


async def perform(ledger: EffectLedger, act: Act) -> None:
    """Claim, call, settle: what an activity of the product does."""
    await EffectStore(ledger).perform(act, AtOnce(), holder=_HOLDER, lease=_LEASE, patience=_PATIENCE)


async def all_at(concurrency: int, ledger: EffectLedger, these: list[Act]) -> None:
    """Do each of `these`, `concurrency` at once."""
    left = iter(these)

    async def some() -> None:
        for act in left:
            await perform(ledger, act)

    await asyncio.gather(*(some() for _ in range(concurrency)))
