"""What is true in the simulated world: the fold over its log."""

from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, cast

from orderflow.domain.effects import Act
from orderflow.providers.simulation.faults import Fault, FaultQueue
from orderflow.providers.simulation.journal import Line

STOCK: Final = 1000
"""How many of each SKU there are when nothing is reserved."""

FORGOTTEN: Final = "#"
"""What follows the key of an act whose provider forgot it: the line of the log that says so."""

_GRACE: Final = timedelta(seconds=5)


class EntryState(StrEnum):
    """Where an act stands at its provider."""

    STARTED = "started"
    PENDING = "pending"
    DONE = "done"
    DECLINED = "declined"
    VOIDED = "voided"
    UNDONE = "undone"


@dataclass
class Entry:
    """What a provider knows under one key. `line` is the log line that it follows from."""

    line: Line
    state: EntryState
    polls_left: int = 0
    refunded_minor: int = 0
    late_after: datetime | None = None

    @property
    def is_undo(self) -> bool:
        """Whether it takes another act back."""
        return "of" in self.line

    @property
    def amount_minor(self) -> int | None:
        """What was captured or refunded, in minor units; `None`: no money."""
        return cast("int | None", self.line.get("amount_minor"))

    @property
    def remaining_minor(self) -> int | None:
        """What was captured and not refunded, in minor units."""
        return None if self.amount_minor is None else self.amount_minor - self.refunded_minor

    @property
    def items(self) -> dict[str, int]:
        """Quantity by SKU."""
        return cast("dict[str, int]", self.line.get("items", {}))

    @property
    def holds(self) -> bool:
        """Whether its items are taken from stock."""
        return not self.is_undo and self.state in (EntryState.PENDING, EntryState.DONE)

    def is_in_flight(self, now: datetime) -> bool:
        """Whether its provider may still be about to act; long after its time, whoever delayed it is gone."""
        return self.state is EntryState.STARTED and self.late_after is not None and now <= self.late_after


_STATE_BY_OUTCOME: Final = {
    "started": EntryState.STARTED,
    "pending": EntryState.PENDING,
    "done": EntryState.DONE,
    "voided": EntryState.DONE,
    "already_undone": EntryState.DONE,
    "declined": EntryState.DECLINED,
}
"""The outcomes that change what a provider knows; every other one is only told."""


class Books:
    """All entries by provider and key, the stock, and the faults that wait."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self.lines: list[Line] = []
        self.faults = FaultQueue()
        self._entries: dict[tuple[str, str], Entry] = {}
        self._held: Counter[str] = Counter()

    def apply(self, line: Line) -> None:
        """Take in the next line of the log."""
        if line["kind"] == "reset":
            self._clear()
        self.lines.append(line)
        if isinstance(seq := line.get("fault_seq"), int):
            self.faults.use(seq)
        match line["kind"]:
            case "fault":
                self._fault(cast("int", line["seq"]), Fault.model_validate(line["injected"]))
            case "act":
                self._act(line)
            case "lookup":
                self._looked_up(line)

    def entry(self, provider: str, key: str) -> Entry | None:
        """What `provider` knows under `key`."""
        return self._entries.get((provider, key))

    def key_of(self, act: Act) -> str | None:
        """The key under which `act` stands in these books: its own, or, once that was forgotten, by our reference."""
        if (act.provider, act.key) in self._entries:
            return act.key
        reference: Line = {"step": act.step, "operation": act.operation}
        of_order = (entry.line for entry in self.entries(act.provider, act.workflow_id))
        return next((str(line["key"]) for line in of_order if reference.items() <= line.items()), None)

    def entries(self, provider: str, workflow_id: str | None = None) -> list[Entry]:
        """What `provider` knows, of one order if given, in the order of the log."""
        return [
            entry
            for (owner, _), entry in self._entries.items()
            if owner == provider and workflow_id in (None, entry.line["workflow_id"])
        ]

    def in_stock(self, sku: str) -> int:
        """How many of `sku` are not reserved."""
        return STOCK - self._held[sku]

    def _fault(self, seq: int, fault: Fault) -> None:
        if fault.kind == "forget_keys":
            known = (_without_key(entry, seq) if _is_about(fault, entry) else entry for entry in self._entries.values())
            self._entries = {(str(entry.line["provider"]), str(entry.line["key"])): entry for entry in known}
        else:
            self.faults.add(seq, fault)

    def _act(self, line: Line) -> None:
        provider, key, outcome = str(line["provider"]), str(line["key"]), str(line["outcome"])
        state = _STATE_BY_OUTCOME.get(outcome)
        if state is None:
            return
        if state is EntryState.DECLINED and "of" in line:  # a refused undo can be asked for again under its key
            self._entries.pop((provider, key), None)
            return
        self._put(provider, key, Entry(line, state, _polls(line), late_after=_late_after(line)))
        if "of" in line and state is EntryState.DONE:
            self._take_back(line, self._entries.get((provider, str(line["of"]))))

    def _take_back(self, undo: Line, target: Entry | None) -> None:
        provider, of = str(undo["provider"]), str(undo["of"])
        if undo["outcome"] == "voided":
            base: Line = {"key": of, "provider": provider, "workflow_id": undo["workflow_id"]}
            self._put(provider, of, Entry(target.line if target else base, EntryState.VOIDED))
        elif undo["outcome"] == "done" and target is not None:
            back = Entry(target.line, target.state, refunded_minor=target.refunded_minor + _amount(undo))
            if not back.remaining_minor:
                back.state = EntryState.UNDONE
            self._put(provider, of, back)

    def _put(self, provider: str, key: str, entry: Entry) -> None:
        before = self._entries.get((provider, key))
        if before is not None and before.holds:
            self._held.subtract(before.items)
        if entry.holds:
            self._held.update(entry.items)
        self._entries[provider, key] = entry

    def _looked_up(self, line: Line) -> None:
        provider, key = str(line["provider"]), str(line["key"])
        entry = self.entry(provider, key)
        if entry is None:
            return
        if line["outcome"] == "pending":
            entry.polls_left -= 1
        elif line["outcome"] == "absent":  # whoever started it is gone
            del self._entries[provider, key]


def _is_about(fault: Fault, entry: Entry) -> bool:
    line = entry.line
    return fault.is_for(str(line["provider"]), str(line.get("operation")), str(line["workflow_id"]))


def _without_key(entry: Entry, seq: int) -> Entry:
    """The same act under a key that nobody will ask for: a key of ours holds no such sign."""
    return replace(entry, line={**entry.line, "key": f"{entry.line['key']}{FORGOTTEN}{seq}"})


def _amount(line: Line) -> int:
    amount = line.get("amount_minor")
    return amount if isinstance(amount, int) else 0


def _polls(line: Line) -> int:
    polls = line.get("polls")
    return polls if isinstance(polls, int) else 0


def _late_after(line: Line) -> datetime | None:
    milliseconds = line.get("milliseconds")
    if line["outcome"] != "started" or not isinstance(milliseconds, int):
        return None
    return datetime.fromisoformat(str(line["at"])) + timedelta(milliseconds=milliseconds) + _GRACE
