"""What stands in for a value in a redacted history: the same for the same value within one run, and nothing of it.

Stand-ins are numbered in the order in which values are first met; no hash of a value is written, as one could be
guessed back. Amounts become their ranks, so that what is compared with a limit compares as before.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

from orderflow.domain.announcements import announced_order
from orderflow.domain.definition import Definition
from orderflow.domain.events import workflow_id
from orderflow.domain.intents import read_key
from orderflow.domain.operations import OPERATOR

_FIRST: Final = datetime(2000, 1, 1, tzinfo=UTC)
_ORDER: Final = re.compile(r"order-[0-9a-f]{32}")


class StandIns:
    """The stand-ins of one run. `meet_event`, `meet_amount` and `meet_definition` come first, for every history."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._identities: dict[str, tuple[str, str]] = {}
        self._amounts: set[int] = set()
        self._ranks: dict[int, int] = {}
        self.definitions: set[str] = set()
        self.words: set[str] = {OPERATOR}
        """Names of steps, activities, roles, routes and subscribers, as definitions and subscriptions say them."""

    def meet_event(self, source: str, event_id: str) -> None:
        """Remember whose Workflow ID an event's identity makes."""
        self._identities.setdefault(workflow_id(source, event_id), (source, event_id))

    def meet_amount(self, amount: int) -> None:
        """Give the amount a place in the order of all."""
        self._amounts.add(amount)
        self._ranks = {}

    def meet_definition(self, definition: Definition) -> None:
        """Keep this definition's own words."""
        self.definitions.add(definition.fingerprint)
        self.words |= {definition.name, f"{definition.name} {definition.version}", definition.version}
        for step in definition.steps:
            self.words |= {step.id, f"{step.id}-settle", f"{step.id}-undo", step.activity, *(step.routes or {})}
            self.words |= {policy.role for policy in (step.approval, step.review) if policy is not None}
            if step.compensation is not None:
                self.words.add(step.compensation.activity)

    def meet_words(self, words: Iterable[str]) -> None:
        """Keep these words where the name of a step, activity or subscriber stands."""
        self.words.update(words)

    def number(self, value: str) -> int:
        """The number of `value`."""
        return self._numbers.setdefault(value, len(self._numbers) + 1)

    def text(self, kind: str, value: str) -> str:
        """A word for `value`, such as `person-7`."""
        return f"{kind}-{self.number(value)}"

    def time(self, value: str) -> str:
        """A time for a time that somebody else wrote."""
        return (_FIRST + timedelta(seconds=self.number(value))).isoformat().replace("+00:00", "Z")

    def amount(self, value: int) -> int:
        """The rank of an amount; nothing stays nothing."""
        if not self._ranks:
            above = sorted(amount for amount in self._amounts if amount > 0)
            below = sorted((amount for amount in self._amounts if amount < 0), reverse=True)
            self._ranks = {amount: rank for rank, amount in enumerate(above, 1)}
            self._ranks |= {amount: -rank for rank, amount in enumerate(below, 1)} | {0: 0}
        return self._ranks[value]

    def source(self, value: str) -> str:
        """A URI-reference for a source."""
        return f"/source/{self.number(value)}"

    def workflow(self, value: str) -> str:
        """A Workflow ID for a Workflow ID: it derives from its redacted event as the first did from its own."""
        if _ORDER.fullmatch(value):
            source, event_id = self._identities.get(value, ("", value))
            return workflow_id(self.source(source), self.text("event", event_id))
        if (order := announced_order(value)) is not None:
            hexes = self.workflow(order).removeprefix("order-")
            return f"announce-{hexes}-{value[len('announce-') + 33 :]}"
        kind = value.split("-")[0]
        return self.text(kind if kind in {"repair", "reconcile"} else "workflow", value)

    def key(self, value: str) -> str:
        """An idempotency key for an idempotency key: of the redacted Workflow ID, for the same step."""
        found = read_key(value)
        if found is None:
            return self.text("key", value)
        return f"{self.workflow(found.workflow_id)}.{self.step(found.step)}.{found.direction}"

    def step(self, value: str) -> str:
        """The name of a step, activity or role: itself, if a definition says it."""
        return value if value in self.words else self.text("name", value).replace("-", "_")
