"""The definition of an order: which steps, in which order, under which policies, as data.

A definition is sent whole inside the workflow's input, so a running order keeps the one it started with.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationError

from orderflow.domain.durations import Duration
from orderflow.domain.errors import InvalidDefinition, InvalidJson, Problem
from orderflow.domain.graph import Node, graph_problems, ready
from orderflow.domain.intents import canonical_json, digest
from orderflow.domain.problems import problems_in, summary
from orderflow.domain.step_rules import StepCatalogue, step_problems
from orderflow.domain.steps import (
    DEFAULT_ROUTE,
    INLINE_ACTIVITIES,
    ApprovalPolicy,
    Compensation,
    Label,
    OnFailure,
    Policy,
    RetryPolicy,
    Route,
    Step,
)
from orderflow.domain.strict_json import JsonValue, read_json

__all__ = [
    "DEFAULT_ROUTE",
    "INLINE_ACTIVITIES",
    "MAX_BYTES",
    "MAX_STEPS",
    "ApprovalPolicy",
    "Compensation",
    "Definition",
    "Duration",
    "OnFailure",
    "RetryPolicy",
    "Route",
    "Step",
    "StepCatalogue",
    "check_definition",
    "load_definition",
]

MAX_STEPS = 50
MAX_BYTES = 128 * 1024
"""A definition is part of every workflow's input and of every continue-as-new."""
MAX_DEPTH = 8

_SEMVER = re.compile(
    r"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)"
    r"(-(0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)(\.(0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*))*)?"
    r"(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?"
)


def _semver(text: str) -> str:
    if not _SEMVER.fullmatch(text):
        raise ValueError("must be a semantic version (semver.org), such as 1.0.0")
    return text


class Definition(Policy):
    """A named and versioned list of steps that form a DAG; the list's order is the order of results."""

    name: Label
    version: Annotated[str, Field(max_length=64), AfterValidator(_semver)]
    steps: tuple[Step, ...] = Field(min_length=1, max_length=MAX_STEPS)

    @property
    def fingerprint(self) -> str:
        """`sha256:` and hex over the canonical JSON: it detects a difference, it proves no origin.

        Defaults are left out, so an optional field added in a later release changes no fingerprint of today, which
        open approvals are bound to. For the same reason a default may never change its value.
        """
        return digest(self.model_dump(mode="json", exclude_defaults=True))

    def step(self, step_id: str) -> Step:
        """The step with this id; `KeyError` when there is none."""
        for step in self.steps:
            if step.id == step_id:
                return step
        raise KeyError(step_id)

    def ready(self, done: Collection[str], started: Collection[str]) -> tuple[Step, ...]:
        """The ready batch: steps that wait for nothing but `done` and are not started, in definition order."""
        return ready(self.steps, done, started)


def load_definition(raw: bytes, catalogue: StepCatalogue) -> Definition:
    """Read a definition from JSON bytes; raises `InvalidDefinition` with every problem found, by JSON path."""
    try:
        value = read_json(raw, max_bytes=MAX_BYTES, max_depth=MAX_DEPTH, allow_bom=True)
    except InvalidJson as error:
        raise _refusal(error.problems) from error
    try:
        definition = Definition.model_validate_json(canonical_json(value))
    except ValidationError as error:
        raise _refusal(_all_problems(value, error, catalogue)) from error
    problems = check_definition(definition, catalogue)
    if problems:
        raise _refusal(problems)
    return definition


def check_definition(definition: Definition, catalogue: StepCatalogue) -> tuple[Problem, ...]:
    """Everything that is wrong with a definition whose shape is right; empty means that it can be run."""
    nodes = [Node(index, step.id, step.depends_on) for index, step in enumerate(definition.steps)]
    return tuple(_problems(dict(enumerate(definition.steps)), nodes, catalogue))


def _problems(steps: Mapping[int, Step], nodes: Sequence[Node], catalogue: StepCatalogue) -> Iterator[Problem]:
    yield from graph_problems(nodes)
    for index, step in steps.items():
        yield from step_problems(step, f"$.steps[{index}]", catalogue)


def _refusal(problems: tuple[Problem, ...]) -> InvalidDefinition:
    return InvalidDefinition(f"not a valid definition: {summary(problems)}", path=problems[0].path, problems=problems)


def _all_problems(value: JsonValue, error: ValidationError, catalogue: StepCatalogue) -> tuple[Problem, ...]:
    """Faults of shape, and those that the parts whose shape is right have besides."""
    of_shape = problems_in(error)
    items = _items(value)
    salvaged = {index: step for index, item in enumerate(items) if (step := _salvaged(item)) is not None}
    nodes = [node for index, item in enumerate(items) if (node := _node(index, item)) is not None]
    others = (problem for problem in _problems(salvaged, nodes, catalogue) if not _is_about(problem.path, of_shape))
    return (*of_shape, *others)


def _is_about(path: str, problems: tuple[Problem, ...]) -> bool:
    """Whether one of `problems` lies at or inside `path`: then that one is the cause."""
    return any(problem.path == path or problem.path.startswith((f"{path}.", f"{path}[")) for problem in problems)


def _items(value: JsonValue) -> list[dict[str, JsonValue]]:
    """The entries of `steps`, an empty object for each that is none; nothing when there are too many to look at."""
    steps = value.get("steps") if isinstance(value, dict) else None
    if not isinstance(steps, list) or len(steps) > MAX_STEPS:
        return []
    return [item if isinstance(item, dict) else {} for item in steps]


def _node(position: int, item: Mapping[str, JsonValue]) -> Node | None:
    step_id, depends_on = item.get("id"), item.get("depends_on")
    if not isinstance(step_id, str):
        return None
    return Node(position, step_id, tuple(map(str, depends_on)) if isinstance(depends_on, list) else ())


def _salvaged(item: dict[str, JsonValue]) -> Step | None:
    """The step without those of its fields that have a fault; `None` when it then has no name or activity."""
    try:
        return Step.model_validate_json(canonical_json(item))
    except ValidationError as error:
        faulty = {str(detail["loc"][0]) for detail in error.errors()}
    if faulty & {"id", "activity"}:
        return None
    if "routes" in faulty:
        faulty.add("review")
    return Step.model_validate_json(canonical_json({field: item[field] for field in item.keys() - faulty}))
