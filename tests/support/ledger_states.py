"""How an effect gets into each state of a ledger."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

from orderflow.domain.effects import (
    Absent,
    Busy,
    Done,
    EffectState,
    Found,
    Pending,
    Refused,
    Unavailable,
    Undone,
    Unknown,
)
from orderflow.ledger import Claim, EffectLedger
from tests.support.ledger import CHARGE, LONG, NO_TIME, REFUND

DONE = Done(reference="ch_1", amount_minor=1000, result={"receipt": "r-1"})

GIVEN_BACK = Done(reference="re_1", amount_minor=1000)

OPEN_ANSWERS: list[Found] = [
    Pending(reference="ch_1"),
    Busy(),
    Unavailable(),
    Unknown(detail="timeout"),
    Absent(),
    Undone(),
]


async def claimed(ledger: EffectLedger, lease: timedelta = LONG) -> Claim:
    """Claim the charge."""
    claim = await ledger.claim(CHARGE, holder="one", lease=lease)
    assert isinstance(claim, Claim)
    return claim


async def undo_claimed(ledger: EffectLedger, lease: timedelta = LONG) -> Claim:
    """Claim the refund."""
    claim = await ledger.claim_undo(REFUND, CHARGE, holder="one", lease=lease)
    assert isinstance(claim, Claim)
    return claim


async def nothing(ledger: EffectLedger) -> None:
    """Leave the charge unseen."""


async def pending(ledger: EffectLedger) -> None:
    """Bring the charge to PENDING, its lease over."""
    await claimed(ledger, NO_TIME)


async def committed(ledger: EffectLedger) -> None:
    """Bring the charge to COMMITTED."""
    await ledger.settle(await claimed(ledger), DONE)


async def declined(ledger: EffectLedger) -> None:
    """Bring the charge to DECLINED."""
    await ledger.settle(await claimed(ledger), Refused(code="no_funds"))


async def voided(ledger: EffectLedger) -> None:
    """Bring the charge to VOIDED."""
    await ledger.void(CHARGE)


async def reversing(ledger: EffectLedger) -> None:
    """Bring the charge to REVERSING, the undo's lease over."""
    await committed(ledger)
    await undo_claimed(ledger, NO_TIME)


async def reversed_(ledger: EffectLedger) -> None:
    """Bring the charge to REVERSED."""
    await committed(ledger)
    await ledger.settle_undo(await undo_claimed(ledger), CHARGE, GIVEN_BACK)


REACH: dict[EffectState | None, Callable[[EffectLedger], Awaitable[None]]] = {
    None: nothing,
    EffectState.PENDING: pending,
    EffectState.COMMITTED: committed,
    EffectState.DECLINED: declined,
    EffectState.VOIDED: voided,
    EffectState.REVERSING: reversing,
    EffectState.REVERSED: reversed_,
}
