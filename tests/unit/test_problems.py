"""Where something is wrong is said by JSON path, what is wrong by a sentence without the value."""

import json
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from orderflow.domain.errors import Problem
from orderflow.domain.problems import MAX_PROBLEMS, json_path, problems_in, quoted, summary


def _even(number: int) -> int:
    if number % 2:
        raise ValueError("must be even")
    return number


class Inner(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    n: Annotated[int, Field(ge=0, le=9), AfterValidator(_even)]


class Outer(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    inner: Inner
    items: tuple[Inner, ...] = Field(min_length=1, max_length=2)
    kind: Literal["a", "b"]
    name: str = Field(min_length=2, max_length=3)
    flag: bool


def found(**changes: object) -> dict[str, str]:
    """Give what is wrong with a valid `Outer` that is changed."""
    value = {"inner": {"n": 2}, "items": [{"n": 4}], "kind": "a", "name": "abc", "flag": True} | changes
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate_json(json.dumps(value))
    return {problem.path: problem.message for problem in problems_in(caught.value)}


@pytest.mark.parametrize(
    ("changes", "path", "sentence"),
    [
        ({"inner": {}}, "$.inner.n", "is missing"),
        ({"inner": []}, "$.inner", "must be an object"),
        ({"inner": {"n": "2"}}, "$.inner.n", "must be a whole number"),
        ({"inner": {"n": -2}}, "$.inner.n", "must be at least 0"),
        ({"inner": {"n": 10}}, "$.inner.n", "must be at most 9"),
        ({"inner": {"n": 3}}, "$.inner.n", "must be even"),
        ({"inner": {"n": 2, "a b": 1}}, '$.inner["a b"]', "is not a known member; remove it"),
        ({"items": {}}, "$.items", "must be an array"),
        ({"items": []}, "$.items", "must have 1 or more items"),
        ({"items": [{"n": 2}] * 3}, "$.items", "must have at most 2 items"),
        ({"kind": "c"}, "$.kind", "must be 'a' or 'b'"),
        ({"name": 5}, "$.name", "must be a string"),
        ({"name": "a"}, "$.name", "must have 2 or more characters"),
        ({"name": "abcd"}, "$.name", "must have at most 3 characters"),
        ({"flag": 1}, "$.flag", "must be true or false"),
    ],
)
def test_each_fault_is_one_sentence_at_its_path(changes: dict[str, object], path: str, sentence: str) -> None:
    """What is wrong, where, and so what to do."""
    assert found(**changes) == {path: sentence}


def test_a_faulty_item_is_not_also_reported_as_too_few_items() -> None:
    """One fault, one problem: pydantic counts only the items that are right."""
    assert found(items=[{"n": "x"}]) == {"$.items[0].n": "must be a whole number"}


def test_problems_are_capped() -> None:
    """A document full of faults gets a bounded answer."""
    assert len(found(**{f"x{n}": n for n in range(1000)})) == MAX_PROBLEMS


def test_a_summary_is_one_line() -> None:
    """The first problem, and how many more there are."""
    problem = Problem("$.id", "is missing")
    assert summary((problem,)) == "$.id: is missing"
    assert summary((problem,) * 3) == "$.id: is missing (and 2 more)"


def test_a_path_is_written_as_people_write_it() -> None:
    """JSON path: dots for names, brackets for indexes and odd keys."""
    assert json_path(()) == "$"
    assert json_path(("data", "items", 0, "sku")) == "$.data.items[0].sku"
    assert json_path(("a b", 'q"', "1", "")) == r'$["a b"]["q\""]["1"][""]'
    assert json_path(("k" * 60,)) == "$." + "k" * 60
    assert json_path(("k" * 61,)) == '$["' + "k" * 60 + r'\u2026"]'


@given(key=st.text(st.characters(codec=None)) | st.text(min_size=100))
def test_any_key_can_be_shown(key: str) -> None:
    """Escape sequences, surrogates and endless keys reach no terminal."""
    for text in (json_path((key,)), quoted(key)):
        assert text.isascii()
        assert text.isprintable()
        assert len(text) < 1000
