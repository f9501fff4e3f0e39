"""What a start is read as: an order's state, or what is wrong with it, and never an exception (T55)."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orderflow.admission import Rejected, read_start
from orderflow.contracts import OrderInput, OrderState
from orderflow.domain.events import workflow_id
from orderflow.domain.orders import Reason
from orderflow.domain.problems import json_path
from tests.definitions import SHIPPED, load
from tests.order_events import accepted

EVENT = accepted()
OWN_ID = workflow_id(EVENT.source, EVENT.id)
START: dict[str, Any] = json.loads(OrderInput(event=EVENT, definition=load(SHIPPED)).model_dump_json())

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.just(object()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(sorted(START)) | st.integers(), inner),
)


def paths(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Where something stands inside a JSON value."""
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, member in members for found in ((*path, key), *paths(member, (*path, key)))]


@given(inputs=st.lists(ANYTHING, max_size=3))
def test_whatever_comes_in_there_is_no_exception(inputs: list[Any]) -> None:
    """An exception would fail the workflow task, and leave the order Running for ever."""
    rejected = read_start(inputs, OWN_ID, continued=False)
    assert isinstance(rejected, Rejected)
    assert rejected.reason is Reason.INVALID_INPUT
    assert rejected.problems


@pytest.mark.parametrize("path", paths(START), ids=json_path)
def test_a_value_of_the_wrong_type_is_named_by_its_path(path: tuple[str | int, ...]) -> None:
    """Wherever it stands in the input."""
    value = json.loads(json.dumps(START))
    target = value
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = "false" if target[path[-1]] is False else True
    rejected = read_start([value], OWN_ID, continued=False)
    assert isinstance(rejected, Rejected)
    assert rejected.reason is Reason.INVALID_INPUT
    assert [problem.partition(": ")[0] for problem in rejected.problems] == [json_path(path)]


def test_a_start_that_is_right_makes_an_order() -> None:
    """So that the others are refused for their faults."""
    state = read_start([START], OWN_ID, continued=False)
    assert isinstance(state, OrderState)
    assert (state.event, list(state.steps)) == (EVENT, [step["id"] for step in SHIPPED["steps"]])
