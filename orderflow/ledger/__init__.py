"""The ledger remembers what has been done outside. This module holds its Protocol and records, nothing else."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Literal, Protocol

from orderflow.domain.effects import Absent, Act, EffectState, Found, Refused, Unavailable

Role = Literal["orderflow_worker", "orderflow_ingress"]
"""As whom a process uses the ledger: a database with users gives each role what its work takes, and no more."""

WORKER: Final = "orderflow_worker"
INGRESS: Final = "orderflow_ingress"


@dataclass(frozen=True)
class EffectRecord:
    """One effect as the ledger knows it. Times are aware UTC from the ledger's own clock; amounts are minor units.

    `age` is how long ago it was first claimed or voided, by that same clock when this was read.
    """

    key: str
    workflow_id: str
    step: str
    provider: str
    operation: str
    intent_digest: str
    state: EffectState
    token: int
    amount_minor: int | None
    currency: str | None
    reference: str | None
    captured_minor: int | None
    refunded_minor: int | None
    decline_code: str | None
    result_json: str | None
    created_at: datetime
    updated_at: datetime
    settled_at: datetime | None
    age: timedelta = field(default=timedelta(0), compare=False)


@dataclass(frozen=True)
class AttemptRecord:
    """One holder's try at an effect: who, when, and how it ended (`None` while it runs or when it died)."""

    key: str
    token: int
    holder: str
    started_at: datetime
    ended_at: datetime | None
    ended: str | None

    @property
    def may_have_acted(self) -> bool:
        """Whether the provider may have acted on it, as far as its holder lived to tell."""
        return self.ended is None or self.ended.partition(":")[0] not in _NOTHING_DONE


_NOTHING_DONE = frozenset(answer.model_fields["answer"].default for answer in (Absent, Refused, Unavailable))


@dataclass(frozen=True)
class Claim:
    """The right to act on `record.key` until the lease ends.

    `record.token` is the fencing token: each write is refused once a later claim exists. `fresh` means that nobody
    ever held the key before, so nothing can have been sent to the provider.
    """

    record: EffectRecord
    holder: str
    fresh: bool


class EffectLedger(Protocol):
    """Short transactions only; no transaction is open while a provider is called (D07).

    Every method raises `LedgerUnavailable` when the database cannot be used now. Leases run on the database's clock.
    """

    async def get(self, key: str) -> EffectRecord | None:
        """The effect under `key`, or `None`."""
        ...

    async def is_held(self, key: str) -> bool:
        """Whether somebody's lease on the effect under `key` is not over."""
        ...

    async def claim(
        self, act: Act, *, holder: str, lease: timedelta, claim_by: datetime | None = None
    ) -> Claim | EffectRecord:
        """Claim `act` for `lease`, or return the record when it is already COMMITTED or DECLINED.

        Raises `IntentConflict` (same key, other digest), `EffectReversed` (voided or undone), `EffectBusy` (live lease
        of another; `retry_after` is the rest of it) and `ChargeWindowClosed` (never claimed, and `claim_by` is past).
        """
        ...

    async def renew(self, claim: Claim, lease: timedelta) -> None:
        """Extend the lease. Raises `ClaimLost`."""
        ...

    async def settle(self, claim: Claim, answer: Found) -> EffectRecord:
        """Write down what came of it: done → COMMITTED, declined → DECLINED; every other answer keeps PENDING,
        notes how the attempt ended, and ends the lease so that a retry need not wait. Raises `ClaimLost`.
        """
        ...

    async def void(self, act: Act, claim: Claim | None = None) -> EffectRecord:
        """Write the tombstone: never seen, or PENDING under `claim` and proven absent → VOIDED.

        Without a claim an existing row is returned unchanged. Raises `ClaimLost`.
        """
        ...

    async def claim_undo(self, undo: Act, of: Act, *, holder: str, lease: timedelta) -> Claim | EffectRecord:
        """Begin to take `of` back: `of` becomes REVERSING and `undo` is claimed, in one transaction.

        A tombstone that was claimed before stays VOIDED, and `undo` is claimed: who held it may act late. Returns the
        record of `of` when there is nothing (more) to do: never seen (VOIDED is written first), VOIDED and never
        claimed or undone already, DECLINED or REVERSED. Raises `EffectBusy` while somebody holds `of` or `undo`,
        `EffectReversed` when a person has settled it, and `IntentConflict`.
        """
        ...

    async def settle_undo(self, claim: Claim, of: Act, answer: Found) -> EffectRecord:
        """Done → `undo` COMMITTED and `of` REVERSED with the refunded amount; every other answer keeps the undo
        PENDING and notes how the attempt ended: a refused undo can be tried again by an operator. A tombstone of which
        nothing was taken back (an amount of 0) stays VOIDED. Returns the record of `of`. Raises `ClaimLost`.
        """
        ...

    async def effects(self, workflow_id: str) -> list[EffectRecord]:
        """All effects of one order, undos included, oldest first."""
        ...

    async def attempts(self, workflow_id: str) -> list[AttemptRecord]:
        """All attempts at the effects of one order, oldest first."""
        ...

    async def check(self, role: Role = WORKER) -> str:
        """One line that says what and where this ledger is; proves that whoever does `role`'s work can write to it."""
        ...

    async def aclose(self) -> None:
        """Finish what runs and close the database."""
        ...
