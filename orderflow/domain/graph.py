"""The graph that steps make by depending on each other: what is wrong with it, and what may run next."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from orderflow.domain.errors import Problem


class Node(NamedTuple):
    """A step as the graph sees it: its place in the list, its id, the ids that it waits for."""

    position: int
    id: str
    depends_on: tuple[str, ...]

    def path(self, dependency: str) -> str:
        """The JSON path of the first entry of `depends_on` that names `dependency`."""
        return f"$.steps[{self.position}].depends_on[{self.depends_on.index(dependency)}]"


class Dependent(Protocol):
    """Anything with an id that waits for other ids."""

    @property
    def id(self) -> str:
        """Its own name."""
        ...

    @property
    def depends_on(self) -> tuple[str, ...]:
        """The names of what must be done before it."""
        ...


AnyDependent = TypeVar("AnyDependent", bound=Dependent)


def ready(steps: Sequence[AnyDependent], done: Collection[str], started: Collection[str]) -> tuple[AnyDependent, ...]:
    """The steps that wait for nothing but `done` and are neither done nor started, in the order given."""
    return tuple(
        step
        for step in steps
        if step.id not in done and step.id not in started and all(needed in done for needed in step.depends_on)
    )


def graph_problems(nodes: Sequence[Node]) -> Iterator[Problem]:
    """Every duplicate id, every dependency that is unknown, repeated or on itself, and one of each knot of cycles."""
    yield from _duplicates(nodes)
    known = {node.id for node in nodes}
    for node in nodes:
        for entry, dependency in enumerate(node.depends_on):
            message = _dependency_problem(node, entry, dependency, known)
            if message:
                yield Problem(f"$.steps[{node.position}].depends_on[{entry}]", message)
    yield from _cycles(nodes)


def _duplicates(nodes: Sequence[Node]) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for node in nodes:
        if first.setdefault(node.id, node.position) != node.position:
            message = f"the id '{node.id}' is already used by $.steps[{first[node.id]}]; each step needs its own"
            yield Problem(f"$.steps[{node.position}].id", message)


def _dependency_problem(node: Node, entry: int, dependency: str, known: Collection[str]) -> str | None:
    if dependency == node.id:
        return f"step '{node.id}' depends on itself"
    if dependency not in known:
        return f"there is no step '{dependency}' to depend on"
    if dependency in node.depends_on[:entry]:
        return f"the dependency on '{dependency}' is already listed"
    return None


def _cycles(nodes: Sequence[Node]) -> Iterator[Problem]:
    remaining = {node.id: node for node in reversed(nodes)}
    while cycle := _find_cycle(remaining):
        names = " -> ".join([*(node.id for node in cycle), cycle[0].id])
        following = cycle[1].id
        yield Problem(cycle[0].path(following), f"these steps wait for each other in a cycle: {names}")
        for node in cycle:
            del remaining[node.id]


def _find_cycle(nodes: Mapping[str, Node]) -> list[Node]:
    """A cycle in which each node depends on the next one, its first listed node first; empty when there is none."""
    finished: set[str] = set()
    for start in sorted(nodes.values()):
        cycle = _walk(start, [], nodes, finished)
        if cycle:
            first = cycle.index(min(cycle))
            return cycle[first:] + cycle[:first]
    return []


def _walk(node: Node, trail: list[Node], nodes: Mapping[str, Node], finished: set[str]) -> list[Node]:
    if node in trail:
        return trail[trail.index(node) :]
    if node.id in finished:
        return []
    for dependency in node.depends_on:
        if dependency in nodes and dependency != node.id:
            cycle = _walk(nodes[dependency], [*trail, node], nodes, finished)
            if cycle:
                return cycle
    finished.add(node.id)
    return []
