"""A provider that does what it declares: it acts once under a key while it remembers the key, and no longer."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from orderflow.domain.effects import (
    Absent,
    Act,
    Capabilities,
    Done,
    Found,
    Handle,
    Listed,
    Performed,
    Refused,
    Undone,
    Unknown,
)

_Reference = tuple[str, str, str]


@dataclass
class Standing:
    """Something that was done outside, and how much of it was taken back."""

    reference: _Reference
    amount_minor: int
    back_minor: int = 0


Standings = list[Standing]


@dataclass
class ForgetfulProvider:
    """What it did stands in `done` and `back` whatever it forgets; `arrives` and `replies` say what a network loses.

    It answers a lookup only by a handle that it declares.
    """

    capabilities: Capabilities
    done: "Standings" = field(default_factory=list)
    back: "Standings" = field(default_factory=list)
    arrives: bool = True
    replies: bool = True
    refusal: Performed | None = None
    sent: int = 0
    _known: dict[str, Found] = field(default_factory=dict)
    _meant: dict[str, Standing] = field(default_factory=dict)

    @property
    def net_minor(self) -> int:
        """What stands now."""
        return sum(each.amount_minor - each.back_minor for each in self.done)

    def forget(self) -> None:
        """Know no key any more."""
        self._known.clear()
        self._meant.clear()

    def refund_by_hand(self, amount_minor: int) -> None:
        """Give back a part of the one charge, as an operator would: outside our keys."""
        self.done[0].back_minor += amount_minor

    async def perform(self, act: Act) -> Performed:
        return self._reply(act, self._known.get(act.key) or self._charge(act)) if self._received() else self._lost()

    async def undo(self, undo: Act, of: Act) -> Performed:
        if not self._received():
            return self._lost()
        return self._reply(undo, self._known.get(undo.key) or self._refund(undo, of))

    async def lookup(self, act: Act, by: Handle = Handle.KEY) -> Found:
        if by not in self.capabilities.lookup_by:
            raise NotImplementedError(f"lookup by {by}")
        if by is Handle.KEY:
            return self._known.get(act.key, Absent())
        return next((_told(each) for each in self._of(act)), Absent())

    async def list(self, since: datetime) -> "list[Listed] | None":
        return None

    async def aclose(self) -> None:
        return None

    def _received(self) -> bool:
        self.sent += 1
        return self.arrives and self.refusal is None

    def _lost(self) -> Performed:
        return self.refusal or Unknown(detail="timeout")

    def _charge(self, act: Act) -> Found:
        self.done.append(Standing(_reference(act), act.amount_minor or 0))
        self._meant[act.key] = self.done[-1]
        return Done(reference=act.key, amount_minor=act.amount_minor)

    def _refund(self, undo: Act, of: Act) -> Found:
        by_reference = self._of(of) if Handle.MERCHANT_REFERENCE in self.capabilities.lookup_by else []
        target = self._meant.get(of.key) or next(iter(by_reference), None)
        if target is None:
            self._known[of.key] = Undone()
            return Done(reference=undo.key, amount_minor=0)
        amount = target.amount_minor - target.back_minor
        target.back_minor += amount
        self._known[of.key] = Undone(amount_minor=target.amount_minor)
        self.back.append(Standing(_reference(undo), amount))
        return Done(reference=undo.key, amount_minor=amount)

    def _reply(self, act: Act, answer: Found) -> Performed:
        self._known[act.key] = answer
        if self.capabilities.key_horizon == timedelta(0):
            self.forget()
        if not self.replies:
            return Unknown(detail="timeout")
        return Refused(code="undone") if isinstance(answer, Absent | Undone) else answer

    def _of(self, act: Act) -> "Standings":
        return [each for each in (*self.done, *self.back) if each.reference == _reference(act)]


def _reference(act: Act) -> _Reference:
    return act.workflow_id, act.step, act.operation


def _told(standing: Standing) -> Found:
    if standing.back_minor and standing.back_minor == standing.amount_minor:
        return Undone(amount_minor=standing.back_minor)
    return Done(reference="by reference", amount_minor=standing.amount_minor)
