"""The shipped example as a value that a test can bend."""

import json
from pathlib import Path
from typing import Any, Final

from orderflow.domain.events import OrderEvent, validate_event

EXAMPLE: Final = (Path(__file__).parents[1] / "examples" / "order.json").read_bytes()


class _Absent:
    def __repr__(self) -> str:
        return "ABSENT"  # in the names of tests, which must be the same in each process


ABSENT: Final = _Absent()


def event(**changes: object) -> dict[str, Any]:
    """Give the example with members set by path, `data__items__0__sku="..."`; `ABSENT` removes one."""
    value: dict[str, Any] = json.loads(EXAMPLE)
    for path, new in changes.items():
        target: Any = value
        *parents, last = (int(part) if part.isdecimal() else part for part in path.split("__"))
        for part in parents:
            target = target[part]
        target[last] = new
        if new is ABSENT:
            del target[last]
    return value


def accepted(**changes: object) -> OrderEvent:
    """Give the example with members set, as an event that keeps its shape."""
    return validate_event(event(**changes))
