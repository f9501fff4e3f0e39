"""Who an event is (source and id, exactly), and what tells a duplicate from a conflict (the fingerprint)."""

import json
import re
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orderflow.domain.events import event_identity_key, is_order_id, payload_fingerprint, validate_event, workflow_id
from orderflow.domain.strict_json import read_json
from tests.order_events import ABSENT, accepted, event

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "vectors" / "fingerprints.json").read_bytes())


@pytest.mark.parametrize(
    "event_id", ["A-1", "😀", "x" * 256, "👩‍👩‍👧", " a ", "a|b::c", '"', "\\u0000", "%00"], ids=ascii
)
def test_an_id_is_any_bounded_text(event_id: str) -> None:
    """C05: kept as it is; the Workflow ID stays printable for any id."""
    value = accepted(id=event_id)
    assert value.id == event_id
    assert re.fullmatch(r"order-[0-9a-f]{32}", workflow_id(value.source, value.id))


def test_no_two_identities_share_a_key_or_a_workflow() -> None:
    """C04: parts that would collide when concatenated, with or without a delimiter."""
    pairs = [
        ("/a", "b::c"),
        ("/a::b", "c"),
        ("ab", "c"),
        ("a", "bc"),
        ("a|b", "c"),
        ("a", "b|c"),
        ('a","b', "c"),
        ("a", 'b","c'),
        ("a\\", '","c'),
        ("a", "\\u0000c"),
        ("a", "c"),
        ("/orders", "1"),
        ("/orders/", "1"),
    ]
    assert len({event_identity_key(*pair) for pair in pairs}) == len(pairs)
    assert len({workflow_id(*pair) for pair in pairs}) == len(pairs)


@given(one=st.tuples(st.text(), st.text()), other=st.tuples(st.text(), st.text()))
def test_identity_keys_are_equal_only_for_equal_pairs(one: tuple[str, str], other: tuple[str, str]) -> None:
    """C04: and the pair can be read back from its key."""
    assert (event_identity_key(*one) == event_identity_key(*other)) == (one == other)
    assert read_json(event_identity_key(*one)) == list(one)


@given(source=st.text(), event_id=st.text())
def test_where_the_cut_falls_matters(source: str, event_id: str) -> None:
    """C04: the same characters cut elsewhere are another identity."""
    text = source + event_id
    keys = {event_identity_key(text[:cut], text[cut:]) for cut in range(len(text) + 1)}
    assert len(keys) == len(text) + 1


def test_composed_and_decomposed_ids_are_two_orders() -> None:
    """I12: identity is exact code points."""
    assert workflow_id("/shop", "\u00e9") != workflow_id("/shop", "e\u0301")


def test_the_workflow_id_is_pinned() -> None:
    """Running orders and others' scripts depend on it; made with another tool over the key's bytes."""
    assert event_identity_key("/shop", "order-placed-1001") == b'["/shop","order-placed-1001"]'
    assert workflow_id("/shop", "order-placed-1001") == "order-2ef951e1b56934c780c034adc1f2cbdd"


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_the_fingerprint_is_that_of_the_vector(vector: dict[str, Any]) -> None:
    """I11: made with another tool over hand-written canonical text; a change turns duplicates into conflicts."""
    changes = {path.removeprefix("$.").replace(".", "__"): new for path, new in vector["changes"].items()}
    assert payload_fingerprint(accepted(**changes)) == vector["fingerprint"]


@settings(deadline=None)
@given(random=st.randoms(use_true_random=False), indent=st.sampled_from([None, 1, 4]), ascii_only=st.booleans())
def test_order_of_members_spacing_and_escapes_do_not_change_the_fingerprint(
    random: Random, indent: int | None, ascii_only: bool
) -> None:
    """I11: a sender that serialises again sends a duplicate, not a conflict."""

    def shuffled(value: Any) -> Any:
        if isinstance(value, dict):
            members = list(value.items())
            random.shuffle(members)
            return {key: shuffled(member) for key, member in members}
        return [shuffled(member) for member in value] if isinstance(value, list) else value

    original = event(id="é😀", data__note="à la carte")
    text = json.dumps(shuffled(original), indent=indent, ensure_ascii=ascii_only)
    assert payload_fingerprint(validate_event(read_json(text.encode()))) == payload_fingerprint(
        validate_event(original)
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"data__total_minor": 3400},
        {"data__currency": "USD"},
        {"data__items__0__sku": "mug-red"},
        {"data__items": event()["data"]["items"][::-1]},
        {"data__customer__email": "sam@example.org"},
        {"data__requested_by": ABSENT},
        {"data__note": ""},
        {"time": "2026-01-31T12:00:00+00:00"},
        {"time": ABSENT},
        {"subject": "1001"},
        {"source": "/shop/"},
    ],
    ids=repr,
)
def test_any_other_content_has_another_fingerprint(changes: dict[str, object]) -> None:
    """I01: the same identity with other content is a conflict; the amount, the time's own text, everything counts."""
    assert payload_fingerprint(accepted(**changes)) != payload_fingerprint(accepted())


@given(st.text(min_size=1), st.text(min_size=1))
def test_the_id_of_an_order_is_told_from_any_other(source: str, event_id: str) -> None:
    """T45: a provider's account may hold keys of others; only what could be an order of ours is looked into."""
    assert is_order_id(workflow_id(source, event_id))
    assert not is_order_id(workflow_id(source, event_id) + "\n")
    assert not is_order_id(source)
