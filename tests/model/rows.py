"""The ledger's tables, looked at and aged by a connection of the model's own."""

from collections.abc import Callable
from typing import Any

from tests.model.reference import Row

ENDED = 1
"""A lease until the year 1970 is over; a live one of the model lasts for hours."""

_ROWS = "SELECT key, intent_digest, state, token, lease_until, captured_minor, refunded_minor FROM effects"


class Rows:
    """`run` runs one statement and gives its rows."""

    def __init__(self, run: Callable[[str], list[tuple[Any, ...]]]) -> None:
        self._run = run

    def of(self, example: str) -> dict[str, Row]:
        """The rows whose keys begin with `example`."""
        found = self._run(f"{_ROWS} WHERE workflow_id >= '{example}' AND workflow_id < '{example}~'")
        return {
            key: Row(digest, state, token, until > ENDED, captured, refunded)
            for key, digest, state, token, until, captured, refunded in found
        }

    def end_lease(self, key: str) -> None:
        """As if the lease's time had passed since it was granted or renewed."""
        self._run(f"UPDATE effects SET lease_until = {ENDED} WHERE key = '{key}' AND lease_until > {ENDED}")
