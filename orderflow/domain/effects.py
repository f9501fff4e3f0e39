"""Effects: what is done outside, the states the ledger gives them, and the answers providers give.

(none) ── claim ──► PENDING ── commit ──► COMMITTED ── undo claimed ──► REVERSING ──► REVERSED
   │                  │                     ▲───── a person: kept ─────┘
   │                  ├── definitive no ──► DECLINED
   │                  └── absence proven ──► VOIDED ── a sleeper's act was taken back ──► REVERSED
   └── undo came first ──► VOIDED
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from orderflow.domain.strict_json import JsonValue


class EffectState(StrEnum):
    """Where an effect stands in the ledger."""

    PENDING = "pending"
    COMMITTED = "committed"
    DECLINED = "declined"
    VOIDED = "voided"
    REVERSING = "reversing"
    REVERSED = "reversed"


TRANSITIONS: Mapping[EffectState | None, frozenset[EffectState]] = MappingProxyType(
    {
        None: frozenset({EffectState.PENDING, EffectState.VOIDED}),
        EffectState.PENDING: frozenset(
            {EffectState.COMMITTED, EffectState.DECLINED, EffectState.REVERSING, EffectState.VOIDED}
        ),
        EffectState.COMMITTED: frozenset({EffectState.REVERSING}),
        EffectState.DECLINED: frozenset(),
        EffectState.VOIDED: frozenset({EffectState.REVERSED}),
        EffectState.REVERSING: frozenset({EffectState.REVERSED, EffectState.COMMITTED}),
        EffectState.REVERSED: frozenset(),
    }
)
"""Which state may follow which; `None` is an effect that the ledger has never seen.

VOIDED is final, but for what a holder did that woke up after its absence was proven: that can be taken back. Only a
person's word (`Resolution.KEPT`) leads from REVERSING to COMMITTED, and that effect is never taken back any more.
"""

STANDING = frozenset({EffectState.PENDING, EffectState.COMMITTED, EffectState.REVERSING})
"""States in which something may stand outside that an order which failed must not leave behind."""

UNDONE = frozenset({EffectState.VOIDED, EffectState.REVERSING, EffectState.REVERSED})
"""States on which a forward claim is refused; nothing leads out of them to COMMITTED but a person's word."""


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Done(_Answer):
    """The provider did it, now or earlier under the same key.

    `reference` is the provider's own id; `amount_minor` what it really captured or refunded (`None`: no money);
    `result` what else the step needs (bounded, no personal data).
    """

    answer: Literal["done"] = "done"
    reference: str = Field(max_length=200)
    amount_minor: int | None = Field(default=None, ge=0)
    result: dict[str, JsonValue] = Field(default_factory=dict)


class Pending(_Answer):
    """Accepted, not settled: poll it by lookup; never book it as done."""

    answer: Literal["pending"] = "pending"
    reference: str = Field(max_length=200)


class Refused(_Answer):
    """A definitive no, with the provider's short code (no free text: it would reach event history, T46)."""

    answer: Literal["declined"] = "declined"
    code: str = Field(max_length=80)


class Busy(_Answer):
    """The provider works on this very key now, or asks to come back later (409, 429): same key, later (I08)."""

    answer: Literal["busy"] = "busy"
    retry_after: float | None = Field(default=None, ge=0, description="seconds")


class Unavailable(_Answer):
    """The provider did not act and said so (503), or was never reached."""

    answer: Literal["unavailable"] = "unavailable"
    retry_after: float | None = Field(default=None, ge=0, description="seconds")


class Unknown(_Answer):
    """No answer that says whether it acted (timeout, cut connection, 504): never "failed" (I06)."""

    answer: Literal["unknown"] = "unknown"
    detail: str = Field(default="", max_length=200)


class Absent(_Answer):
    """A lookup's word that the provider never acted and no longer can be acting, as far as its memory goes back."""

    answer: Literal["absent"] = "absent"


class Undone(_Answer):
    """A lookup's word that the effect was done and has been taken back, or was voided before it was done.

    `amount_minor` is what was given back of it in all, by whomever.
    """

    answer: Literal["undone"] = "undone"
    reference: str = Field(default="", max_length=200)
    amount_minor: int | None = Field(default=None, ge=0)


Performed = Done | Pending | Refused | Busy | Unavailable | Unknown
"""What `perform` and `undo` answer."""

Found = Performed | Absent | Undone
"""What `lookup` answers."""

Answer = Annotated[Found, Field(discriminator="answer")]
"""Any answer, for decoding one from JSON."""


class Act(_Answer):
    """One thing to do outside, as the ledger and a provider see it.

    `key` is the idempotency key; `operation` the provider's verb (`charge`); `workflow_id` and `step`: whose it is;
    `intent` is the canonical intent, `intent_digest` its digest; `amount_minor` and `currency`: where money moves.
    """

    key: str
    workflow_id: str
    step: str
    provider: str
    operation: str
    intent: dict[str, JsonValue]
    intent_digest: str
    amount_minor: int | None = None
    currency: str | None = None


class Listed(_Answer):
    """One row of `Provider.list`: an act that the provider knows under `key`."""

    key: str
    operation: str
    reference: str
    at: datetime
    amount_minor: int | None = None


class Handle(StrEnum):
    """By what a provider finds an act again: its key, or workflow id, step and operation, which it keeps for ever."""

    KEY = "key"
    MERCHANT_REFERENCE = "merchant_reference"


@dataclass(frozen=True)
class Capabilities:
    """What a provider declares that it can do. The ledger relies on nothing else (I07), so declare too little.

    `key_horizon` is how long a key is surely remembered after its first use: `None` for ever, zero where keys mean
    nothing. `lookup_by` holds the handles by which `lookup` finds an act; none where it cannot say. `lists`: whether
    `list` tells of every act. The defaults are what is believed of a provider that declares nothing.
    """

    key_horizon: timedelta | None = timedelta(hours=24)
    lookup_by: frozenset[Handle] = frozenset({Handle.KEY})
    lists: bool = False

    def remembers(self, age: timedelta) -> bool:
        """Tell whether a key that was first used `age` ago is surely known.

        The last tenth of the horizon does not count: it is the margin for what is on its way, and for other clocks.
        """
        return self.key_horizon is None or age < self.key_horizon - self.key_horizon / 10


class Provider(Protocol):
    """A system outside. Every call carries the idempotency key; the same key with the same intent acts once.

    No method raises for what a provider or a network can answer: that is an answer (`Unknown`, `Unavailable`).
    """

    @property
    def capabilities(self) -> Capabilities:
        """What this provider can do; it stays the same as long as the process runs."""
        return Capabilities()

    async def perform(self, act: Act) -> Performed:
        """Do `act` once under `act.key`, or answer what it came to when it was done before."""
        ...

    async def lookup(self, act: Act, by: Handle = Handle.KEY) -> Found:
        """Say what became of `act`, without doing anything; only asked by a handle that `capabilities` names."""
        ...

    async def undo(self, undo: Act, of: Act) -> Performed:
        """Take back what still stands of `of`, once under `undo.key`; later performs of `of.key` are refused.

        Nothing ever done, or already taken back in full, is `Done` with `amount_minor=0` (M04): it succeeded.
        """
        ...

    async def list(self, since: datetime) -> "list[Listed] | None":
        """What was done since `since` (aware), or `None` when this provider cannot say."""
        ...

    async def aclose(self) -> None:
        """Give back connections."""
        ...


def capabilities_of(provider: Provider) -> Capabilities:
    """What `provider` declares; the defaults for a class that has no such attribute."""
    declared: Capabilities = getattr(provider, "capabilities", Capabilities())
    return declared
