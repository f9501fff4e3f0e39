"""Faults to order: what shall go wrong, at which operation, how often, and for whose order."""

from dataclasses import dataclass
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

FaultKind = Literal[
    "decline", "unavailable", "busy", "pending", "lost_reply", "hang", "delay", "manual_review", "forget_keys"
]

LOOKUP: Final = "lookup"

SETTLED_KINDS: Final = frozenset({"unavailable", "busy", "lost_reply", "hang", "delay"})
"""Kinds that can strike a lookup, and a call about a key that is settled: what was done stays done."""

_NAME: Final = r"^[a-z][a-z0-9_]{0,79}$"
_WITH_TIME: Final = frozenset({"unavailable", "busy", "delay"})
_AFTER_THE_ACT: Final = frozenset({"lost_reply", "hang"})

Name = Annotated[str, Field(pattern=_NAME)]


class Fault(BaseModel):
    """One fault. It waits in the log until a call matches it, oldest first, and is used up after `times` calls.

    `forget_keys` does not wait: the provider forgets the keys of what it has done so far, and what it did stands (I07).

    kind: `decline` a definitive no with `code` (a risk check answers the decision `decline`); `unavailable` and `busy`
        nothing done, come back after `milliseconds` (rounded up to seconds); `pending` accepted, and settled when
        `times` lookups have said pending; `lost_reply` acts, then the connection is cut; `hang` acts, then never
        answers; `delay` acts and answers after `milliseconds`; `manual_review` the decision of a risk check.
    operation: the provider's verb (`reserve`, `check`, `charge`, `notify`, `release`, `refund`) or `lookup`.
    order: the workflow id of the only order it is for. `provider`: the only provider it is for.
    commit: `false` makes `lost_reply` and `hang` lose the request instead: nothing is done.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    kind: FaultKind
    operation: Name
    times: int = Field(default=1, ge=1, le=1_000_000)
    order: str | None = Field(default=None, max_length=200)
    provider: Name | None = None
    milliseconds: int | None = Field(default=None, ge=0, le=86_400_000)
    commit: bool = True
    code: Name | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        rules = (
            (self.operation == LOOKUP and self.kind not in SETTLED_KINDS, f"{self.kind} cannot happen to a lookup"),
            (self.kind == "manual_review" and self.operation != "check", "manual_review is for the operation check"),
            (self.kind == "delay" and self.milliseconds is None, "delay needs milliseconds"),
            (self.milliseconds is not None and self.kind not in _WITH_TIME, f"{self.kind} takes no milliseconds"),
            (not self.commit and self.kind not in _AFTER_THE_ACT, f"{self.kind} takes no commit"),
            (self.code is not None and self.kind != "decline", f"{self.kind} takes no code"),
            (self.kind == "forget_keys" and self.times != 1, "forget_keys happens at once, so it takes no times"),
        )
        for broken, sentence in rules:
            if broken:
                raise ValueError(sentence)
        return self

    def is_for(self, provider: str, operation: str, workflow_id: str) -> bool:
        """Tell whether it strikes this call."""
        return self.operation == operation and self.provider in (None, provider) and self.order in (None, workflow_id)


@dataclass
class Waiting:
    """A fault in the log at `seq` that can strike `left` times more."""

    seq: int
    fault: Fault
    left: int


class FaultQueue:
    """The faults that are not used up, oldest first."""

    def __init__(self) -> None:
        self._waiting: list[Waiting] = []

    def add(self, seq: int, fault: Fault) -> None:
        """Append the fault that stands in the log at `seq`."""
        calls = 1 if fault.kind == "pending" else fault.times  # the times of `pending` are lookups, not acts
        self._waiting.append(Waiting(seq, fault, calls))

    def use(self, seq: int) -> None:
        """Count one strike of the fault at `seq`."""
        for waiting in self._waiting:
            waiting.left -= waiting.seq == seq
        self._waiting = [waiting for waiting in self._waiting if waiting.left]

    def match(self, provider: str, operation: str, workflow_id: str, kinds: frozenset[str] | None) -> Waiting | None:
        """Give the oldest fault for this call, among `kinds` if given."""
        return next(
            (
                waiting
                for waiting in self._waiting
                if waiting.fault.is_for(provider, operation, workflow_id)
                and (kinds is None or waiting.fault.kind in kinds)
            ),
            None,
        )
