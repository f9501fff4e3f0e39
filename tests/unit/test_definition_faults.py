import json
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orderflow.domain.definition import MAX_BYTES, load_definition
from orderflow.domain.errors import InvalidDefinition
from tests.definitions import APPROVAL, CATALOGUE, COMPENSATION, SHIPPED, load, refused, shipped
from tests.order_events import ABSENT

TOO_MANY = [{"id": f"s{n}", "activity": "validate_order", "depends_on": [f"s{n + 1}"]} for n in range(1500)]
"""A chain that would be deeper than Python's stack, if it were followed."""
RETRY = SHIPPED["steps"][3]["retry"]

FAULTS: list[tuple[str, object, str]] = [
    # shape
    ("$.owner", "me", "not a known member"),
    ("$.name", "Order", "a letter first"),
    ("$.name", ABSENT, "is missing"),
    ("$.version", "1.0", "semantic version"),
    ("$.version", 1, "must be a string"),
    ("$.steps", [], "1 "),
    ("$.steps", {}, "must be an array"),
    ("$.steps", TOO_MANY, "50"),
    ("$.steps[4]", "notify", "must be an object"),
    ("$.steps[2].timeout", "PT1S", "not a known member"),
    ("$.steps[3].retry.jitter", 1, "not a known member"),
    ("$.steps[3].approval.by", "x", "not a known member"),
    ("$.steps[3].compensation.routes", {}, "not a known member"),
    ('$.steps[3].compensation.retry["x-y"]', 1, "not a known member"),
    ("$.steps[4].id", ABSENT, "is missing"),
    ("$.steps[4].id", "Notify", "a letter first"),
    ("$.steps[4].id", "n" * 41, "1 to 40"),
    ("$.steps[4].activity", None, "must be a string"),
    ("$.steps[3].depends_on", "risk_check", "must be an array"),
    ("$.steps[3].depends_on[0]", 1, "must be a string"),
    ("$.steps[3].approval.approvers", True, "whole number"),
    ("$.steps[3].approval.approvers", "1", "whole number"),
    ("$.steps[3].approval.approvers", 0, "at least 1"),
    ("$.steps[3].approval.approvers", 6, "at most 5"),
    ("$.steps[3].approval.requester_may_approve", 1, "true or false"),
    ("$.steps[3].start_to_close", 10, "must be a string"),
    ("$.steps[3].start_to_close", "10s", "ISO 8601"),
    ("$.steps[3].start_to_close", "PT0S", "longer than nothing"),
    ("$.steps[3].on_failure", "ignore", "'compensate' or 'continue'"),
    ("$.steps[2].routes.approve", "yes", "'proceed', 'decline' or 'manual_review'"),
    ("$.steps[2].routes", ["proceed"], "must be an object"),
    # graph
    ("$.steps[4].id", "risk_check", "'risk_check' is already used by $.steps[2]"),
    ("$.steps[3].depends_on[1]", "ship", "no step 'ship'"),
    ("$.steps[3].depends_on[0]", "charge", "depends on itself"),
    ("$.steps[3].depends_on[1]", "reserve_inventory", "already listed"),
    ("$.steps[2].depends_on[0]", "notify", "in a cycle: risk_check -> notify -> charge -> risk_check"),
    # names
    ("$.steps[4].activity", "notify_custmer", "did you mean 'notify_customer'?"),
    ("$.steps[4].activity", "dance", "known are charge_payment, check_risk"),
    ("$.steps[4].activity", "refund_payment", "no activity 'refund_payment'"),
    ("$.steps[3].compensation.activity", "refund", "no compensation 'refund'"),
    ("$.steps[3].compensation.activity", "charge_payment", "no compensation 'charge_payment'"),
    ("$.steps[3].compensation.activity", "release_inventory", "'refund_payment' does"),
    ("$.steps[3].retry.non_retryable[0]", "Exception", "no error type 'Exception'"),
    ("$.steps[3].retry.non_retryable[1]", "orderflow.domain.errors.Declined", "no error type"),
    ("$.steps[3].retry.non_retryable[2]", "declined", "did you mean 'Declined'?"),
    ("$.steps[1].compensation.retry.non_retryable[0]", "x", "no error type 'x'"),
    # finite retries (T22)
    *(
        (f"{owner}.retry.attempts", attempts, sentence)
        for owner in ("$.steps[3]", "$.steps[1].compensation")
        for attempts, sentence in (
            (0, "at least 1"),
            (-1, "at least 1"),
            (101, "at most 100"),
            (True, "whole number"),
            (None, "whole number"),
            ("3", "whole number"),
            (ABSENT, "is missing"),
        )
    ),
    *(
        (f"$.steps[4].{field}", value, "is required")
        for field in ("retry", "start_to_close", "schedule_to_close")
        for value in (ABSENT, None)
    ),
    ("$.steps[3].compensation.retry", ABSENT, "is missing"),
    ("$.steps[3].compensation.schedule_to_close", None, "must be a string"),
    ("$.steps[3].retry.backoff", 0, "at least 1"),
    ("$.steps[3].retry.backoff", 11, "at most 10"),
    ("$.steps[3].retry.maximum_interval", "PT0S", "longer than nothing"),
    # times that hold the retries (T23)
    ("$.steps[3].schedule_to_close", "PT1M29S", "5 attempts of PT15S with their pauses: needs at least PT1M30S"),
    (
        "$.steps[3].compensation.schedule_to_close",
        "PT1M",
        "10 attempts of PT15S with their pauses: needs at least PT6M33S",
    ),
    ("$.steps[3].heartbeat", "PT15S", "shorter than start_to_close, which is PT15S"),
    ("$.steps[3].compensation.heartbeat", "P1D", "shorter than start_to_close"),
    # approvals and routes
    ("$.steps[3].approval.charge_within", "PT23H59M59S", "at least expires_in"),
    ("$.steps[2].review.charge_within", "PT1S", "at least expires_in"),
    ("$.steps[2].routes.default", ABSENT, "is required"),
    ("$.steps[2].routes.default", "proceed", "must be decline or manual_review"),
    ("$.steps[2].routes.Approve", "proceed", "lower-case"),
    ("$.steps[2].review", ABSENT, "is required"),
    ("$.steps[4].review", APPROVAL, "never used"),
    ("$.steps[4].routes", {"default": "decline"}, "acts, it decides nothing"),
    ("$.steps[2].on_failure", "continue", "must be compensate"),
    ("$.steps[2].approval", APPROVAL, "not allowed on a check"),
    ("$.steps[2].deadline", "PT1H", "not allowed on a check"),
    # the inline step
    ("$.steps[0].retry", RETRY, "runs inside the workflow"),
    ("$.steps[0].start_to_close", "PT1S", "runs inside the workflow"),
    ("$.steps[0].schedule_to_close", "PT1S", "runs inside the workflow"),
    ("$.steps[0].heartbeat", "PT1S", "runs inside the workflow"),
    ("$.steps[0].compensation", COMPENSATION, "runs inside the workflow"),
    ("$.steps[0].approval", APPROVAL, "runs inside the workflow"),
    ("$.steps[0].deadline", "PT1H", "runs inside the workflow"),
    ("$.steps[0].on_failure", "continue", "runs inside the workflow"),
    ("$.steps[0].routes", {"default": "decline"}, "runs inside the workflow"),
]


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    FAULTS,
    ids=[f"{path}={'absent' if value is ABSENT else json.dumps(value)[:20]}" for path, value, _ in FAULTS],
)
def test_a_fault_is_refused_at_its_path_in_one_sentence(path: str, value: object, sentence: str) -> None:
    """One fault in the shipped definition is exactly one problem, where it is and saying what (T18, T22, T23)."""
    (problem,) = refused(shipped({path: value}))
    assert problem.path == path
    assert sentence in problem.message


@pytest.mark.parametrize(
    ("changes", "path", "sentence"),
    [
        ({"$.steps[2].routes": ABSENT, "$.steps[2].review": ABSENT}, "$.steps[2].routes", "is required"),
        ({"$.steps[2].routes.default": "decline"}, "$.steps[2].review", "never used"),
        ({"$.steps[4].compensation": COMPENSATION}, "$.steps[4].compensation.activity", "has nothing to undo"),
        ({"$.steps[3].retry.initial_interval": "PT1M"}, "$.steps[3].retry.maximum_interval", "shorter than initial"),
        ({"$.steps[0].depends_on": ["notify"]}, "$.steps[0].depends_on", "runs inside the workflow"),
    ],
)
def test_a_contradiction_is_told_where_it_is_to_be_mended(changes: dict[str, object], path: str, sentence: str) -> None:
    """A policy that is missing, useless or contradicts another is named at the field to change (L01)."""
    problems = {problem.path: problem.message for problem in refused(shipped(changes))}
    assert sentence in problems[path]


def test_all_faults_are_told_at_once() -> None:
    """Faults of shape do not hide those of names, times and the graph, not even within one step."""
    changes: dict[str, object] = {
        "$.owner": "me",
        "$.steps[1].retry.attempts": 0,
        "$.steps[1].heartbeat": "PT1H",
        "$.steps[1].surprise": 1,
        "$.steps[2].routes.decline": "no",
        "$.steps[2].depends_on[0]": "notify",
        "$.steps[3].activity": "charge_paiment",
        "$.steps[4].schedule_to_close": "PT1S",
        "$.steps[4].retry_policy": {},
    }
    problems = refused(shipped(changes))
    assert sorted(problem.path for problem in problems) == sorted(changes)


def test_a_misspelt_policy_is_told_twice_where_it_is_and_where_it_is_missing() -> None:
    """The known member that is missing is not excused by the unknown one."""
    problems = refused(shipped({"$.steps[4].retry": ABSENT, "$.steps[4].retry_policy": RETRY}))
    assert [problem.path for problem in problems] == ["$.steps[4].retry_policy", "$.steps[4].retry"]


def test_the_error_itself_is_one_line_and_says_how_many_more() -> None:
    """A command can print it as it is; the whole list stands in `problems`."""
    with pytest.raises(InvalidDefinition) as error:
        load(shipped({"$.name": "", "$.version": ""}))
    message = str(error.value)
    assert message.startswith("not a valid definition: $.name: ")
    assert message.endswith("(and 1 more)")
    assert "\n" not in message
    assert error.value.path == "$.name"


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (b"", "not JSON"),
        (b"[]", "must be an object"),
        (b'{"name": "order", "name": "other"}', '"name" appears more than once'),
        (b'{"name": NaN}', "number"),
        (b'{"name": 1.0}', "number"),
        (b"[" * 9 + b"]" * 9, "nested deeper"),
        (b" " * MAX_BYTES + b"{}", "bytes"),
        (b"\xff", "UTF-8"),
    ],
    ids=str,
)
def test_what_is_not_strict_json_is_refused(raw: bytes, sentence: str) -> None:
    """Duplicate keys, NaN, fractions, depth and size end in the same error as every other fault."""
    with pytest.raises(InvalidDefinition, match="not a valid definition: ") as error:
        load_definition(raw, CATALOGUE)
    assert sentence in error.value.problems[0].message


def test_a_duplicate_key_inside_a_step_is_told_with_its_path() -> None:
    """The last of two keys must not win silently."""
    raw = json.dumps(SHIPPED).replace('"deadline": "PT1H"', '"deadline": "PT1H", "deadline": "PT2H"').encode()
    with pytest.raises(InvalidDefinition, match='"deadline" appears more than once') as error:
        load_definition(raw, CATALOGUE)
    assert error.value.path == "$.steps[4]"


def every_path(value: object, path: str = "$") -> Iterator[str]:
    """The JSON path of every value inside `value`."""
    parts = enumerate(value) if isinstance(value, list) else value.items() if isinstance(value, dict) else ()
    for key, part in parts:
        inner = f"{path}[{key}]" if isinstance(key, int) else f"{path}.{key}"
        yield inner
        yield from every_path(part, inner)


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["charge", "PT1S"])
ANY_JSON = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=5)


@given(st.dictionaries(st.sampled_from(sorted(every_path(SHIPPED), key=len)), ANY_JSON, min_size=1, max_size=3))
def test_whatever_stands_anywhere_in_a_definition_it_is_loaded_or_refused(changes: dict[str, object]) -> None:
    """No value at any place ends in another error than `InvalidDefinition`."""
    innermost_first = dict(sorted(changes.items(), key=lambda change: -len(change[0])))
    with suppress(InvalidDefinition):
        load(shipped(innermost_first))
