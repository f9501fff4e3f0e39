"""What the door tells of deliveries: safe events, without a word of what they carry (O01)."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from orderflow.domain.deliveries import Cause, DeliveryRefused

log = logging.getLogger(__name__)

TAKEN: Final = "delivery_taken"
REFUSED: Final = "delivery_refused"

ALARMING: Final = frozenset({Cause.REPLAYED, Cause.CONFLICT, Cause.SIGNATURE_INVALID, Cause.TOKEN_INVALID})
"""What somebody should look at: a delivery captured and sent again, one identity with two contents, a wrong secret."""

_APART: Final = 1.0
"""Seconds between two lines about what anybody can cause as often as they like: it is counted meanwhile."""


@dataclass
class Whose:
    """As far as the door has come with a delivery: whose it is, once its signature verified, and which order's."""

    caller: str | None = None
    order: str | None = None


class Teller:
    """Writes a log line for each delivery of a caller; for refusals of strangers, one for many."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._untold: Counter[Cause] = Counter()
        self._told_at: dict[Cause, float] = {}

    @contextmanager
    def refusals(self) -> Iterator[Whose]:
        """Tell of the refusal that ends this block, if one does; what is known so far is filled in on the way."""
        whose = Whose()
        try:
            yield whose
        except DeliveryRefused as refused:
            self.refused(refused.cause, whose)
            raise

    def taken(self, whose: Whose, *, new: bool) -> None:
        """Tell that an event was taken, or that it had been before."""
        _tell(TAKEN, caller=whose.caller, order=whose.order, duplicate=not new)

    def refused(self, cause: Cause, whose: Whose) -> None:
        """Tell that a request was refused."""
        if whose.caller is not None:
            _tell(REFUSED, _level(cause), cause=cause, caller=whose.caller, order=whose.order)
            return
        self._untold[cause] += 1
        now = self._clock()
        if now - self._told_at.get(cause, -_APART) >= _APART:
            self._told_at[cause] = now
            _tell(REFUSED, _level(cause), cause=cause, times=self._untold.pop(cause))


def _level(cause: Cause) -> int:
    return logging.WARNING if cause in ALARMING else logging.INFO


def _tell(told: str, level: int = logging.INFO, **facts: object) -> None:
    log.log(level, told, extra={name: fact for name, fact in facts.items() if fact is not None})
