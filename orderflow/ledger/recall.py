"""What a provider can still tell of an act that may have been sent before, and what its answer proves (I07).

Whoever forgot a key answers *absent*, and would act again. So `Absent` counts only while the key is surely remembered,
or from a provider that finds acts by our own reference too; and "nothing to take back" only from one that knows what is
meant. Where there is no proof the outcome stays unknown, nothing is sent, and in the end a person looks.
"""

import asyncio
from collections.abc import Awaitable
from datetime import timedelta
from typing import Final

from orderflow.domain.effects import (
    Absent,
    Act,
    Done,
    Found,
    Handle,
    Pending,
    Provider,
    Refused,
    Undone,
    Unknown,
    capabilities_of,
)
from orderflow.domain.errors import OrderflowError
from orderflow.ledger import EffectRecord
from orderflow.ledger.leases import Deadline

NO_PROOF: Final = Unknown(detail="the provider cannot tell any more")
MORE_STANDS: Final = Unknown(detail="less was given back than stood")


class Recall:
    """What `provider` still knows of `act`, whose key was first used `age` ago by the ledger's clock.

    What passes after this was made counts by our own steady clock, so that a slow lookup cannot outlive the horizon.
    """

    def __init__(self, act: Act, provider: Provider, age: timedelta) -> None:
        self._act = act
        self._provider = provider
        self._capabilities = capabilities_of(provider)
        self._age = age
        self._since = _steady_seconds()

    @property
    def key_is_remembered(self) -> bool:
        """Whether the provider would know the key if it saw it again now."""
        passed = timedelta(seconds=_steady_seconds() - self._since)
        return self._capabilities.remembers(self._age + passed)

    @property
    def is_complete(self) -> bool:
        """Whether the provider knows what it ever did of this, by the key or by our reference."""
        return self.key_is_remembered or Handle.MERCHANT_REFERENCE in self._capabilities.lookup_by

    async def look(self) -> Found | None:
        """Ask what became of it; `Absent` only as proof, `None` where the provider cannot say."""
        handles = self._capabilities.lookup_by
        by_reference = Handle.MERCHANT_REFERENCE in handles
        if Handle.KEY in handles and (self.key_is_remembered or not by_reference):
            found = await answered(self._provider.lookup(self._act))
            if not isinstance(found, Absent) or self.key_is_remembered:
                return found
        if not by_reference:
            return None
        return await answered(self._provider.lookup(self._act, Handle.MERCHANT_REFERENCE))

    async def polled(self, answer: Found, deadline: Deadline, interval: float) -> Found:
        """Ask again every `interval` seconds while `answer` is pending and time is left.

        What a lookup cannot say changes nothing; a provider that cannot be asked is not waited for.
        """
        while isinstance(answer, Pending) and deadline.left():
            await asyncio.sleep(min(interval, deadline.left()))
            found = await self.look()
            if found is None:
                break
            if isinstance(found, Done | Refused | Undone | Pending):
                answer = found
        return answer


async def answered(asking: Awaitable[Found]) -> Found:
    """What a provider answers. An error of ours that it raises says nothing of what it did, so it is `Unknown`."""
    try:
        return await asking
    except OrderflowError as error:
        return Unknown(detail=f"the provider raised {type(error).__name__}"[:200])


async def as_taken_back(answer: Done, of: EffectRecord, recall: Recall) -> Found:
    """Give `answer` to an undo of `of`, as it was before the undo, if nothing can be left of it, else `Unknown`.

    "Nothing to take back" is believed of what may never have been done, if its provider knows what is meant. Where less
    came back than is known to stand, somebody else gave back the rest, or it stands: the state at the provider decides,
    not this one answer (M04).
    """
    given = answer.amount_minor
    if of.settled_at is None:
        return answer if given != 0 or recall.is_complete else NO_PROOF
    stood = 1 if of.captured_minor is None else of.captured_minor
    if given is None or given >= stood:
        return answer
    found = await recall.look()
    if isinstance(found, Undone):  # of a forgotten key this may be the tombstone that this very undo left
        believed = recall.is_complete or (found.amount_minor or 0) >= stood
    else:
        believed = found is None and recall.key_is_remembered
    return answer if believed else MORE_STANDS


def _steady_seconds() -> float:
    return asyncio.get_running_loop().time()
