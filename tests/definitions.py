"""The shipped definition as a value that a test can bend, and graphs of plain steps."""

import copy
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from orderflow.catalogue import load_catalogue
from orderflow.definitions import packaged_definitions
from orderflow.domain.definition import Definition, load_definition
from orderflow.domain.errors import InvalidDefinition, Problem
from tests.order_events import ABSENT

CATALOGUE: Final = load_catalogue([])
SHIPPED: Final[dict[str, Any]] = json.loads(packaged_definitions()[0])
COMPENSATION: Final = SHIPPED["steps"][3]["compensation"]
APPROVAL: Final = SHIPPED["steps"][3]["approval"]

_STEP_OF_A_PATH: Final = re.compile(r'\[(?P<index>\d+)\]|\.(?P<name>\w+)|\["(?P<quoted>.+?)"\]')


def shipped(changes: Mapping[str, object] | None = None) -> dict[str, Any]:
    """Give the shipped definition with values set by JSON path, `{"$.steps[0].id": "first"}`; `ABSENT` removes."""
    value = copy.deepcopy(SHIPPED)
    for path, new in (changes or {}).items():
        target: Any = value
        *parents, last = (_key(match) for match in _STEP_OF_A_PATH.finditer(path))
        for part in parents:
            target = target[part]
        target[last] = new
        if new is ABSENT:
            del target[last]
    return value


def _key(match: re.Match[str]) -> str | int:
    return int(match["index"]) if match["index"] else match["name"] or match["quoted"]


def load(value: object) -> Definition:
    """Load a definition from its value, with the built-in catalogue."""
    return load_definition(json.dumps(value).encode(), CATALOGUE)


def refused(value: object) -> tuple[Problem, ...]:
    """Give the problems for which a definition is refused; a failure of the test when it is not."""
    try:
        load(value)
    except InvalidDefinition as error:
        return error.problems
    raise AssertionError("the definition was not refused")


def graph(edges: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Give a definition of notifications that depend on each other as `edges` says: step id to ids needed."""
    plain = {
        field: SHIPPED["steps"][4][field] for field in ("activity", "retry", "start_to_close", "schedule_to_close")
    }
    steps = [{"id": name, "depends_on": list(needed), **plain} for name, needed in edges.items()]
    return {"name": "graph", "version": "1.0.0", "steps": steps}
