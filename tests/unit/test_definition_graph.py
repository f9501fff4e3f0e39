import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orderflow.domain.definition import MAX_STEPS, Definition, Step
from tests.definitions import SHIPPED, graph, load, refused

Edges = dict[str, list[str]]


def batches_of(definition: Definition) -> list[tuple[Step, ...]]:
    """Give the ready batches, each taken as done before the next is asked for."""
    batches: list[tuple[Step, ...]] = []
    done: set[str] = set()
    while batch := definition.ready(done, ()):
        batches.append(batch)
        done |= {step.id for step in batch}
    return batches


def test_the_shipped_batches_are_validate_then_both_then_charge_then_notify() -> None:
    """Reserving and checking run together."""
    batches = batches_of(load(SHIPPED))
    assert [[step.id for step in batch] for batch in batches] == [
        ["validate"],
        ["reserve_inventory", "risk_check"],
        ["charge"],
        ["notify"],
    ]


@pytest.mark.parametrize(
    ("done", "started", "ready"),
    [
        (["validate"], ["reserve_inventory"], ["risk_check"]),
        (["validate", "risk_check"], ["reserve_inventory"], []),
        (["validate", "risk_check", "reserve_inventory"], ["reserve_inventory"], ["charge"]),
    ],
)
def test_what_is_started_is_not_ready_again(done: list[str], started: list[str], ready: list[str]) -> None:
    """A step is ready once, and only when all that it needs is done."""
    assert [step.id for step in load(SHIPPED).ready(done, started)] == ready


@st.composite
def acyclic(draw: st.DrawFn, max_size: int = MAX_STEPS) -> Edges:
    """Step id to the ids that it needs, without a cycle, listed in any order."""
    names = [f"s{number}" for number in range(draw(st.integers(1, max_size)))]
    edges = {
        name: draw(st.lists(st.sampled_from(names[:number]), unique=True, max_size=4)) if number else []
        for number, name in enumerate(names)
    }
    return {name: edges[name] for name in draw(st.permutations(names))}


@given(acyclic())
def test_every_acyclic_graph_loads_and_each_step_is_ready_once_after_what_it_needs(edges: Edges) -> None:
    """Ready batches visit each step exactly once, never before its dependencies, in definition order."""
    definition = load(graph(edges))
    done: list[str] = []
    for batch in batches_of(definition):
        assert all(set(step.depends_on) <= set(done) for step in batch)
        assert list(batch) == [step for step in definition.steps if step in batch]
        done += [step.id for step in batch]
    assert sorted(done) == sorted(edges)


@given(acyclic(max_size=MAX_STEPS - 8), st.integers(2, 8), st.randoms(use_true_random=False))
def test_every_cycle_is_refused_and_named(edges: Edges, length: int, chance: random.Random) -> None:
    """Whatever else the graph holds, the problem names steps that really wait for each other in a ring."""
    names = [*edges, *(f"extra{number}" for number in range(length))]
    ring = chance.sample(names, length)
    edges = {name: [*edges.get(name, [])] for name in names}
    for name, needed in pairwise([*ring, ring[0]]):
        edges[name] = sorted({*edges[name], needed})
    problems = refused(graph(edges))
    for problem in problems:
        named = problem.message.split("cycle: ")[1].split(" -> ")
        assert named[0] == named[-1]
        assert sorted({*named}) == sorted(named[1:])
        assert all(needed in edges[name] for name, needed in pairwise(named))
        entry = edges[named[0]].index(named[1])
        assert problem.path == f"$.steps[{names.index(named[0])}].depends_on[{entry}]"


def test_two_knots_are_two_problems() -> None:
    """One cycle does not hide another."""
    problems = refused(graph({"a": ["b"], "b": ["a"], "c": ["d"], "d": ["c", "a"]}))
    assert [problem.path for problem in problems] == ["$.steps[0].depends_on[0]", "$.steps[2].depends_on[0]"]


def test_a_cycle_is_told_from_its_first_listed_step() -> None:
    """Also when the way into it leads somewhere else: the place to look is the same every time."""
    (problem,) = refused(graph({"a": ["c"], "b": ["c"], "c": ["b"]}))
    assert problem.path == "$.steps[1].depends_on[0]"
    assert problem.message.endswith("b -> c -> b")
