"""The bank of the model: what it really did is the truth, and it keeps no more than a provider has to promise.

The idempotency key is honoured between calls that overlap and not beyond (I07): whoever claimed an effect *after* the
bank had decided on it and sends it again is charged again. So it is the store that has to look first, and the bank
replays only for a late holder, who could not know. What else is taken on trust, from the `Provider` protocol:

- a request that has left its sender and did not arrive yet makes a lookup `Busy`, never `Absent`;
- once the bank has handled an undo, a late perform of what it undid is refused;
- once a last look was told `Absent`, it stays so: a perform of somebody who claimed before that look is refused. No
  real provider can know who sleeps between a claim and a request; with `keeps_absence` off the model shows what comes
  of that: a holder that wakes up after the tombstone was written charges, and nothing gives it back.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Final, Protocol

from orderflow.domain.effects import (
    Absent,
    Act,
    Busy,
    Done,
    Found,
    Pending,
    Performed,
    Refused,
    Unavailable,
    Undone,
    Unknown,
)


class Told(StrEnum):
    """How the bank takes one call: what it does, then what it says."""

    DONE = "done"
    OTHER_AMOUNT = "takes less than it was asked to"
    DECLINED = "declined"
    PENDING = "accepted, done when it is asked again"
    PENDING_LONGER = "accepted, done when it is asked a third time"
    PENDING_DECLINED = "accepted, declined when it is asked again"
    BUSY = "busy"
    UNAVAILABLE = "unavailable"
    TIMEOUT = "not done, no reply"
    LOST_REPLY = "done, no reply"
    FAULT_BEFORE = "not done, the adapter raises"
    FAULT_AFTER = "done, the adapter raises"


SILENT: Final[dict[Told, Performed]] = {Told.TIMEOUT: Unknown(), Told.BUSY: Busy(), Told.UNAVAILABLE: Unavailable()}
"""What says nothing about the effect, as an answer to a perform, an undo or a lookup."""

_DO, _UNDO = ".do", ".undo"
_POLLS = {Told.PENDING: 0, Told.PENDING_DECLINED: 0, Told.PENDING_LONGER: 2}


class AdapterFault(Exception):
    """A bug in an adapter: no provider should raise."""


class Caller(Protocol):
    """Who asks: when the claim was granted under which it does so, and whether it takes the last look."""

    claimed_at: int
    takes_last_look: bool


@dataclass
class Entry:
    """What the bank knows under one key. `moved`: each amount that it took or gave back; there must be one at most."""

    key: str
    decided_at: int | None = None
    denied_at: int | None = None
    moved: list[int] = field(default_factory=list)
    refused: bool = False
    was_refused: bool = False
    polls: int | None = None
    then: Told = Told.DONE
    closed: bool = False
    given_back: int = 0

    @property
    def is_charge(self) -> bool:
        """Or else it is an undo."""
        return self.key.endswith(_DO)

    @property
    def left(self) -> int:
        """What of a charge has not been given back."""
        return sum(self.moved) - self.given_back


@dataclass(eq=False)
class Request:
    """A perform, or an undo `of` something, on its way."""

    caller: Caller
    act: Act
    told: Told
    of: Act | None = None


class ModelBank:
    """Charges and refunds, the requests on their way, and `wrong`: what the store should never have asked."""

    keeps_absence: ClassVar[bool] = True

    def __init__(self) -> None:
        self.now = 0
        self.in_flight: list[Request] = []
        self.wrong: list[str] = []
        self._entries: dict[str, Entry] = {}

    def tick(self) -> int:
        """Let a moment pass; gives it."""
        self.now += 1
        return self.now

    def entry(self, key: str) -> Entry:
        """What is known under `key`."""
        return self._entries.setdefault(key, Entry(key))

    @property
    def entries(self) -> list[Entry]:
        """All that is known."""
        return list(self._entries.values())

    def undo_of(self, charge: Entry) -> Entry:
        """What is known of the undo of `charge`."""
        return self.entry(charge.key.removesuffix(_DO) + _UNDO)

    def post(self, caller: Caller, act: Act, told: Told, of: Act | None = None) -> Request:
        """Send a request off."""
        request = Request(caller, act, told, of)
        self.in_flight.append(request)
        return request

    def lose(self, request: Request) -> None:
        """The network drops a request, and everybody knows (its connection is gone)."""
        self.in_flight.remove(request)

    def receive(self, request: Request) -> Performed:
        """A request arrives. Raises `AdapterFault`."""
        self.in_flight.remove(request)
        self.tick()
        entry, told = self.entry(request.act.key), request.told
        replayed = self._replayed(request, entry)
        if told in SILENT:
            return SILENT[told]
        if told is Told.FAULT_BEFORE:
            raise AdapterFault
        answer = replayed or self._decide(request, entry)
        if told is Told.FAULT_AFTER:
            raise AdapterFault
        return Unknown() if told is Told.LOST_REPLY else answer

    def look_up(self, caller: Caller, act: Act, noise: Told) -> Found:
        """Say what became of a key; `noise` in its place, if the bank has nothing to say now."""
        self.tick()
        if noise in SILENT:
            return SILENT[noise]
        if any(request.act.key == act.key for request in self.in_flight):
            return Busy()
        entry = self.entry(act.key)
        if entry.polls:
            entry.polls -= 1
        elif entry.polls is not None:
            self._come_to(entry, entry.then, act.amount_minor or 0)
        answer = _known(entry)
        if isinstance(answer, Absent) and caller.takes_last_look and self.keeps_absence:
            entry.denied_at = self.now
        return answer

    def refund_by_hand(self, key: str, amount: int) -> None:
        """A person gives back up to `amount` of a charge, outside our keys (M04)."""
        entry = self.entry(key)
        entry.given_back += min(amount, entry.left)

    def _replayed(self, request: Request, entry: Entry) -> Performed | None:
        """What a key that was used, closed or denied answers to somebody who could not know that."""
        knew = f"{request.act.key} was sent again by one who claimed it after"
        claimed_at = request.caller.claimed_at
        if entry.decided_at is not None and not (entry.refused and request.of):
            if entry.decided_at > claimed_at:
                return _replay(entry)
            self.wrong.append(f"{knew} the bank had decided on it")
        if entry.denied_at is not None and claimed_at < entry.denied_at:
            return Refused(code="denied")
        return None

    def _decide(self, request: Request, entry: Entry) -> Performed:
        charge = self.entry(request.of.key) if request.of else None
        entry.decided_at, entry.refused, entry.closed = self.now, False, False
        if charge is not None and request.told is not Told.DECLINED:
            charge.closed, charge.polls = True, None
            charge.decided_at = charge.decided_at or self.now
        asked = charge.left if charge else request.act.amount_minor or 0
        if request.told in _POLLS:
            entry.polls, entry.then = _POLLS[request.told], request.told
            return _replay(entry)
        self._come_to(entry, request.told, asked, charge)
        return _replay(entry)

    def _come_to(self, entry: Entry, told: Told, asked: int, charge: Entry | None = None) -> None:
        """Move the money, or refuse to. A refund gives back what remains of its charge."""
        entry.polls = None
        if told in {Told.DECLINED, Told.PENDING_DECLINED}:
            entry.refused = entry.was_refused = True
            return
        charge = charge or self._charge_of(entry)
        amount = charge.left if charge else asked - (100 if told is Told.OTHER_AMOUNT else 0)
        entry.moved.append(amount)
        if charge:
            charge.given_back += amount

    def _charge_of(self, entry: Entry) -> Entry | None:
        return None if entry.is_charge else self.entry(entry.key.removesuffix(_UNDO) + _DO)


def _known(entry: Entry) -> Done | Pending | Refused | Absent | Undone:
    if entry.polls is not None:
        return Pending(reference=f"ref-{entry.key}")
    if entry.refused:
        return Refused(code="no_funds")
    if entry.closed or (entry.moved and entry.given_back and not entry.left):
        return Undone(amount_minor=entry.given_back)
    if entry.moved:
        return _done(entry)
    return Absent()


def _replay(entry: Entry) -> Done | Pending | Refused:
    """What a perform or an undo under a key that was decided on answers: what was undone is refused."""
    if entry.closed:
        return Refused(code="taken_back")
    if entry.moved:
        return _done(entry)
    known = _known(entry)
    return known if isinstance(known, Pending) else Refused(code="no_funds")


def _done(entry: Entry) -> Done:
    return Done(reference=f"ref-{entry.key}", amount_minor=entry.moved[0])
