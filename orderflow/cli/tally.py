"""What came of many events, counted: the answers, the first lines that failed, and the worst of all as an exit code."""

from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

from orderflow.cli.exits import ExitCode
from orderflow.cli.output import print_line, print_table
from orderflow.cli.sending_page import exit_code, first_reason
from orderflow.domain.deliveries import Cause
from orderflow.sending import Answered, Taken, TurnedAway

NEW: Final = "new"
DUPLICATE: Final = "duplicate"
NOT_DELIVERED: Final = "not delivered"
OTHER: Final = "other"
_INTERRUPTED: Final = 130  # what the shell calls the end by SIGINT
TOLD: Final = 10
"""Failing lines that are told one by one."""

_ORDER: Final = (NEW, DUPLICATE, str(Cause.CONFLICT), *(str(cause) for cause in Cause), OTHER, NOT_DELIVERED)


@dataclass(frozen=True, order=True)
class Failing:
    """A line whose event was not taken."""

    line: int
    answer: str
    reason: str


class Tally:
    """Counts the answers to the lines of a file; of the lines themselves it keeps only a few."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.failing: list[Failing] = []
        self.under_way = 0
        """Lines that were sent and have no answer yet; after an end, those of which nobody knows."""
        self.last_line = 0
        self.hopeless = 0
        """How many of the last answers in a row say that no other line will fare better."""
        self.stopped = False
        self.interrupted = False
        self._worst = ExitCode.DONE

    @property
    def events(self) -> int:
        """How many were answered, or given up."""
        return self.counts.total()

    @property
    def exit_code(self) -> ExitCode:
        """The worst of all: 3 when something was not delivered, else 2 or 1 when something was refused."""
        return self._worst

    def began(self, line: int) -> None:
        """A line is under way."""
        self.under_way += 1
        self.last_line = max(self.last_line, line)

    def ended(self, line: int, answered: Answered) -> None:
        """A line has its answer."""
        answer, code = answer_name(answered), exit_code(answered)
        self.under_way -= 1
        self.counts[answer] += 1
        self._worst = max(self._worst, code)
        locked_out = isinstance(answered, TurnedAway) and answered.status == 401
        self.hopeless = self.hopeless + 1 if locked_out or code is ExitCode.NOT_REACHABLE else 0
        if code is not ExitCode.DONE:
            self.failing = sorted([*self.failing, Failing(line, answer, first_reason(answered))])[:TOLD]

    def as_json(self) -> dict[str, Any]:
        """Give the summary for programs."""
        apart = {NEW, DUPLICATE, str(Cause.CONFLICT), NOT_DELIVERED}
        return {
            "events": self.events,
            "new": self.counts[NEW],
            "duplicate": self.counts[DUPLICATE],
            "conflict": self.counts[Cause.CONFLICT],
            "refused": {answer: self.counts[answer] for answer in self._answers() if answer not in apart},
            "not_delivered": self.counts[NOT_DELIVERED],
            "under_way": self.under_way,
            "last_line": self.last_line,
            "stopped": self.stopped,
            "interrupted": self.interrupted,
            "exit_code": _INTERRUPTED if self.interrupted else int(self.exit_code),
        }

    def print(self) -> None:
        """Print it for people."""
        print_line(f"{self.events} {'event' if self.events == 1 else 'events'}")
        if self.events:
            print_table(("answer", "events"), [(answer, self.counts[answer]) for answer in self._answers()])
        if self.failing:
            failed = sum(count for answer, count in self.counts.items() if answer not in {NEW, DUPLICATE})
            print_line()
            print_line(f"the first {len(self.failing)} of {failed} lines that failed:")
            print_table(("line", "answer", "reason"), [(each.line, each.answer, each.reason) for each in self.failing])
        for sentence in self._notes():
            print_line(sentence)

    def _answers(self) -> list[str]:
        return [answer for answer in dict.fromkeys(_ORDER) if self.counts[answer]]

    def _notes(self) -> list[str]:
        notes = []
        if self.stopped:
            notes.append(f"stopped after line {self.last_line}: the last {self.hopeless} events all failed like this")
        if self.interrupted:
            notes.append(f"interrupted after line {self.last_line}")
        if self.under_way:
            notes.append(f"{self.under_way} more were on their way and may have arrived")
        if self.exit_code is ExitCode.NOT_REACHABLE or notes:
            notes.append("send the same file again for the rest: what has arrived is only a duplicate then")
        return notes


def answer_name(answered: Answered) -> str:
    """Give the name under which an answer is counted."""
    if isinstance(answered, Taken):
        return DUPLICATE if answered.duplicate else NEW
    if exit_code(answered) is ExitCode.NOT_REACHABLE or not isinstance(answered, TurnedAway):
        return NOT_DELIVERED
    return answered.cause if answered.cause in _ORDER else OTHER
