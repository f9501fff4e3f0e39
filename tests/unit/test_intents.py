"""One value has one canonical form, one digest; one logical operation has one key."""

import hashlib
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from orderflow.domain.errors import InvalidInput
from orderflow.domain.intents import Direction, canonical_json, digest, idempotency_key, intent_digest, read_key
from orderflow.domain.money import Money
from orderflow.domain.strict_json import MAX_INTEGER, JsonValue, read_json

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "vectors" / "canonical.json").read_bytes())

steps = st.from_regex(r"[a-z][a-z0-9_]{0,39}", fullmatch=True)
workflow_ids = st.from_regex(r"[A-Za-z0-9._-]{1,40}", fullmatch=True)


def json_values_of(texts: st.SearchStrategy[str]) -> st.SearchStrategy[JsonValue]:
    """Values of our profile whose strings and keys are such texts."""
    return st.recursive(
        st.none() | st.booleans() | st.integers(-MAX_INTEGER, MAX_INTEGER) | texts,
        lambda children: st.lists(children, max_size=4) | st.dictionaries(texts, children, max_size=4),
        max_leaves=20,
    )


json_values = json_values_of(st.text())


class ChargeIntent(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)

    money: Money
    reference: str | None = None


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_each_text_of_one_value_has_the_canonical_form_and_digest_of_the_vector(vector: dict[str, Any]) -> None:
    """I11: key order, spacing, escapes, non-BMP keys; the digests were made by another tool over hand-written text."""
    for text in vector["texts"]:
        value = read_json(text.encode())
        assert canonical_json(value).decode() == vector["canonical"]
        assert digest(value) == vector["digest"]


@settings(deadline=None)
@given(value=json_values)
def test_canonical_json_is_read_back_as_the_same_value_and_is_its_own_canonical_form(value: JsonValue) -> None:
    """I11: nothing is lost, nothing is left to choice."""
    canonical = canonical_json(value)
    again = read_json(canonical)
    assert again == value
    assert canonical_json(again) == canonical


@settings(deadline=None)
@given(
    value=json_values_of(st.text(max_size=5)) | json_values_of(st.text(st.characters(max_codepoint=127), max_size=5))
)
def test_the_canonical_form_is_that_of_the_library_for_it(value: JsonValue) -> None:
    """I11: what we write ourselves, as that is fast, and what we leave to the library of RFC 8785 look the same."""
    assert canonical_json(value) == rfc8785.dumps(value)


@pytest.mark.parametrize(
    "value", [1.0, float("inf"), 2**53, "\ud800", {"\udfff": 1}, {1: "x"}, b"x", {"a": [0.5]}], ids=repr
)
def test_what_has_no_canonical_form_is_refused(value: Any) -> None:
    """I11, W18: floats, integers that are not safe, lone surrogates and what is no JSON."""
    with pytest.raises(InvalidInput):
        canonical_json(value)


def test_a_digest_names_the_rule_that_made_it() -> None:
    """I11: versioned, so that another rule can never be taken for this one."""
    hexadecimal = hashlib.sha256(b'{"a":1}').hexdigest()
    assert digest({"a": 1}) == f"sha256:{hexadecimal}"
    assert digest({"a": 1}, version="fp1") == f"fp1:{hexadecimal}"


def test_an_intent_with_another_amount_has_another_digest() -> None:
    """I01: it is what tells a retry from a conflict; an absent member is the same as none."""
    one = ChargeIntent(money=Money(amount_minor=100, currency="EUR"))
    other = ChargeIntent(money=Money(amount_minor=101, currency="EUR"))
    assert intent_digest(one) == digest({"money": {"amount_minor": 100, "currency": "EUR"}})
    assert intent_digest(one) != intent_digest(other)
    assert intent_digest(one) != intent_digest(one.model_copy(update={"reference": "r"}))


def test_a_key_is_made_of_workflow_step_and_direction_only() -> None:
    """I04: whatever the run or the attempt."""
    assert idempotency_key("order-1a", "charge", Direction.DO) == "order-1a.charge.do"
    assert idempotency_key("order-1a", "charge", Direction.UNDO) == "order-1a.charge.undo"


@given(
    one=st.tuples(workflow_ids, steps, st.sampled_from(Direction)),
    other=st.tuples(workflow_ids, steps, st.sampled_from(Direction)),
)
def test_no_two_operations_share_a_key(one: tuple[str, str, Direction], other: tuple[str, str, Direction]) -> None:
    """I10: also when the workflow id itself holds dots; the key is safe as a header value."""
    assert (idempotency_key(*one) == idempotency_key(*other)) == (one == other)
    assert idempotency_key(*one).isascii()
    assert not set(idempotency_key(*one)) & set(' "\\,;\r\n')


def test_dots_cannot_move_between_the_parts_of_a_key() -> None:
    """I10: the ways to cut one text into a workflow id and a step give at most one key."""
    parts = ["a", "charge", "do", "charge"]
    keys = []
    for cut in range(1, len(parts)):
        for direction in Direction:
            try:
                keys.append(idempotency_key(".".join(parts[:cut]), ".".join(parts[cut:]), direction))
            except InvalidInput:
                continue
    assert keys == ["a.charge.do.charge.do", "a.charge.do.charge.undo"]


@pytest.mark.parametrize("step", ["", "Charge", "1st", "_x", "a-b", "a.b", "a b", "a\n", "é", "a" * 41])
def test_a_step_that_cannot_stand_in_a_key_is_refused(step: str) -> None:
    """I10: a dot or a line break in a step would change what the key says."""
    with pytest.raises(InvalidInput, match="step id"):
        idempotency_key("order-1", step, Direction.DO)


@pytest.mark.parametrize("workflow_id", ["", "a b", "a\n", 'a"', "é", "a/b", "x" * 129])
def test_a_workflow_id_that_cannot_stand_in_a_header_is_refused(workflow_id: str) -> None:
    """I04: the key travels as `Idempotency-Key`."""
    with pytest.raises(InvalidInput, match="workflow id"):
        idempotency_key(workflow_id, "charge", Direction.DO)


def test_keys_of_one_order_are_all_different() -> None:
    """I10: charge and refund never share a row."""
    operations = itertools.product(["order-1", "order-2"], ["reserve", "charge"], Direction)
    assert len({idempotency_key(*operation) for operation in operations}) == 8


@given(workflow_id=workflow_ids, step=steps)
def test_a_key_tells_whose_it_is(workflow_id: str, step: str) -> None:
    """T45: what a provider lists leads back to the order and its step, whatever dots an id holds."""
    for direction in Direction:
        assert read_key(idempotency_key(workflow_id, step, direction)) == (workflow_id, step, direction)


@pytest.mark.parametrize("key", ["", "pi_17", "order-1.charge", "order-1.charge.redo", "order-1.Charge.do", "a.b.do\n"])
def test_a_key_of_somebody_else_tells_nothing(key: str) -> None:
    """A provider's account may hold what others did."""
    assert read_key(key) is None
