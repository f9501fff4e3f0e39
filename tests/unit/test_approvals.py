"""What an approval is bound to, when it counts, and who may give it."""

import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orderflow.domain.approvals import (
    Binding,
    Claims,
    Decision,
    Refusal,
    Verdict,
    check_accepted,
    ineligible,
    mismatch,
    not_about,
    read_claims,
    repeated,
    untimely,
)
from orderflow.domain.compact_jws import LATEST_TIME, MAX_TOKEN_LENGTH
from orderflow.domain.events import payload_fingerprint
from tests.approval_requests import BOUND, EXPIRES_AT, OPENED_AT, base64url, claims, compact, open_request
from tests.order_events import accepted

WRONG = {
    "request_id": ("request-2", Refusal.NO_SUCH_REQUEST),
    "workflow_id": ("order-of-somebody-else", Refusal.WRONG_ORDER),
    "step": ("notify", Refusal.WRONG_STEP),
    "payload_fingerprint": ("fp1:ab", Refusal.WRONG_PAYLOAD),
    "definition_name": ("refund", Refusal.WRONG_DEFINITION),
    "definition_version": ("1.0.1", Refusal.WRONG_DEFINITION),
    "definition_fingerprint": ("sha256:bc", Refusal.WRONG_DEFINITION),
    "state_version": (4, Refusal.WRONG_STATE),
    "role": ("operator", Refusal.WRONG_ROLE),
    "expires_at": (BOUND.expires_at + 1, Refusal.WRONG_TERMS),
    "charge_by": (BOUND.charge_by + 1, Refusal.WRONG_TERMS),
}
ALICE = Verdict(genuine=True, approver="alice", roles=("finance",))
BOB = Verdict(genuine=True, approver="bob", roles=("finance",))


def test_a_decision_on_exactly_this_request_fits() -> None:
    """A01: the good one passes every check."""
    request, decision = open_request(), claims()
    assert mismatch(request, decision) is None
    assert untimely(request, decision, OPENED_AT + timedelta(minutes=2)) is None
    assert ineligible(request, decision, ALICE) is None
    assert repeated(request, decision) is None
    assert check_accepted(request, [(decision, ALICE)]) is None


def test_every_bound_field_has_its_wrong_value_here() -> None:
    """A01: a field added to the binding must be tested, too."""
    assert WRONG.keys() == Binding.model_fields.keys()


@pytest.mark.parametrize("field", Binding.model_fields)
def test_a_decision_that_differs_in_one_bound_field_is_refused(field: str) -> None:
    """A01: each with its own reason, at the door and again at the moment of the charge."""
    value, refusal = WRONG[field]
    decision = claims(**{field: value})
    assert mismatch(open_request(), decision) is refusal
    assert check_accepted(open_request(), [(decision, ALICE)]) is refusal


def test_a_decision_about_another_order_is_named_as_such() -> None:
    """Everything differs then; the order is what a person can recognise."""
    decision = claims(**{field: value for field, (value, _) in WRONG.items()})
    assert mismatch(open_request(), decision) is Refusal.WRONG_ORDER


@pytest.mark.parametrize(
    ("seconds", "refusal"), [(-1, None), (0, None), (0.001, Refusal.EXPIRED), (1, Refusal.EXPIRED)]
)
def test_a_decision_must_arrive_by_the_time_of_expiry(seconds: float, refusal: Refusal | None) -> None:
    """A01: expired by one second is refused."""
    assert untimely(open_request(), claims(), EXPIRES_AT + timedelta(seconds=seconds)) is refusal


@pytest.mark.parametrize(("seconds", "refusal"), [(0, None), (60, None), (61, Refusal.NOT_YET_VALID)])
def test_a_clock_may_be_a_minute_ahead_and_no_more(seconds: int, refusal: Refusal | None) -> None:
    """A01: not before it was signed."""
    decision = claims(iat=int(OPENED_AT.timestamp()) + seconds)
    assert untimely(open_request(), decision, OPENED_AT) is refusal


def test_the_latest_time_that_can_be_claimed_is_still_compared() -> None:
    """No claim may raise in workflow code."""
    assert untimely(open_request(), claims(iat=LATEST_TIME), OPENED_AT) is Refusal.NOT_YET_VALID


def test_a_naive_time_is_never_compared() -> None:
    """A01: it could mean any hour."""
    with pytest.raises(TypeError):
        untimely(open_request(), claims(), datetime(2026, 1, 31, 12))  # noqa: DTZ001 - that is the case


@pytest.mark.parametrize(
    ("changes", "decision", "verdict", "refusal"),
    [
        ({}, {}, Verdict(genuine=False, refusal=Refusal.BAD_SIGNATURE), Refusal.BAD_SIGNATURE),
        ({}, {}, Verdict(genuine=False), Refusal.CANNOT_VERIFY),
        ({}, {}, BOB, Refusal.WRONG_APPROVER),
        ({}, {}, Verdict(genuine=True, approver="alice", roles=("operator",)), Refusal.ROLE_NOT_HELD),
        ({}, {}, Verdict(genuine=True, approver="alice"), Refusal.ROLE_NOT_HELD),
        ({"requester": None}, {}, ALICE, Refusal.REQUESTER_UNKNOWN),
        ({"requester": "alice"}, {}, ALICE, Refusal.REQUESTER_IS_APPROVER),
        ({"requester": "alice", "requester_may_approve": True}, {}, ALICE, None),
        ({"requester": None, "requester_may_approve": True}, {}, ALICE, None),
        ({"requester": "alice"}, {"decision": Decision.REJECT}, ALICE, None),
    ],
)
def test_who_may_decide(
    changes: dict[str, Any], decision: dict[str, Any], verdict: Verdict, refusal: Refusal | None
) -> None:
    """A02: the signer is the approver, holds the role, and did not place the order; anyone eligible may say no."""
    assert ineligible(open_request(**changes), claims(**decision), verdict) is refusal


def test_a_decision_counts_once() -> None:
    """A01: neither the same token again nor another of the same person counts twice."""
    request = open_request(approvers=2).with_approval(claims(), "token")
    assert repeated(request, claims()) is Refusal.REPLAYED
    assert repeated(request, claims(jti="another-one-of-alice")) is Refusal.ALREADY_DECIDED
    assert repeated(request, claims(jti="the-first-one-of-bob", approver="bob")) is None


def test_as_many_distinct_people_must_approve_as_the_step_says() -> None:
    """One person with two decisions is one person, at the moment of the effect, too."""
    request = open_request(approvers=2)
    alice, bob = claims(), claims(approver="bob", jti="the-first-one-of-bob")
    again = claims(jti="another-one-of-alice")
    assert check_accepted(request, [(alice, ALICE), (again, ALICE)]) is Refusal.TOO_FEW_APPROVERS
    assert check_accepted(request, [(alice, ALICE), (bob, BOB)]) is None
    assert not request.with_approval(alice, "a").is_approved
    assert request.with_approval(alice, "a").with_approval(bob, "b").is_approved


def test_nothing_signed_allows_nothing() -> None:
    """A02: the effect needs the decisions themselves."""
    assert check_accepted(open_request(), []) is Refusal.TOO_FEW_APPROVERS


def test_a_rejection_never_allows_an_effect() -> None:
    """Whatever approvals stand beside it."""
    no = claims(decision=Decision.REJECT, approver="bob", jti="the-first-one-of-bob")
    assert check_accepted(open_request(), [(claims(), ALICE), (no, BOB)]) is not None


def test_claims_are_read_as_they_were_written() -> None:
    """Unverified, but whole."""
    assert read_claims(compact({}, claims().model_dump(mode="json"))) == claims()


@pytest.mark.parametrize("field", Claims.model_fields)
def test_claims_without_one_field_are_malformed(field: str) -> None:
    """Nothing has a default: what was not said was not signed."""
    payload = claims().model_dump(mode="json")
    del payload[field]
    assert read_claims(compact({}, payload)) is Refusal.MALFORMED


@pytest.mark.parametrize(
    "changes",
    [
        {"expires_at": "2026-01-31T12:00:00"},
        {"expires_at": 1769864400.0},
        {"state_version": True},
        {"state_version": "3"},
        {"iat": -1},
        {"iat": LATEST_TIME + 1},
        {"iat": 10**30},
        {"decision": "Approve"},
        {"decision": "yes"},
        {"approver": ""},
        {"jti": "short"},
        {"note": "anything else"},
    ],
)
def test_claims_of_another_form_are_malformed(changes: dict[str, Any]) -> None:
    """A01: a naive time, a float, an unknown member: fail closed."""
    assert read_claims(compact({}, claims().model_dump(mode="json") | changes)) is Refusal.MALFORMED


def test_a_claim_made_twice_is_malformed() -> None:
    """Two readers could pick two different decisions out of one signed text."""
    text = json.dumps(claims().model_dump(mode="json"))
    twice = text[:-1] + ', "decision": "reject"}'
    assert read_claims(compact({}, twice.encode())) is Refusal.MALFORMED


@pytest.mark.parametrize(
    "token",
    [None, 5, b"a.b.c", ["a.b.c"], "", "a", "a.b", "a.b.c", "a.b.c.d", "..", "a..c", "é.b.c", "a.b\n.c", "a.AAAAA.c"],
    ids=repr,
)
def test_what_is_no_compact_jws_is_malformed(token: object) -> None:
    """T54: any value may come in."""
    assert read_claims(token) is Refusal.MALFORMED


@pytest.mark.parametrize("payload", [[], "x", 1, None, {}, b"\xff", b"{", b"[" * 2000], ids=str)
def test_a_payload_that_is_no_object_of_claims_is_malformed(payload: object) -> None:
    """T54: neither another JSON value nor what is no JSON."""
    assert read_claims(compact({}, payload)) is Refusal.MALFORMED


@pytest.mark.parametrize("length", [MAX_TOKEN_LENGTH + 1, 10_000_000])
def test_a_token_beyond_the_limit_is_not_looked_at(length: int) -> None:
    """History stays bounded: size comes before everything."""
    assert read_claims("a" * length) is Refusal.TOO_LARGE


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.text() | st.binary().map(base64url).map(lambda part: f"e30.{part}.AA") | JSON.map(lambda x: compact({}, x)))
def test_reading_claims_never_raises(token: str) -> None:
    """T54: whatever text comes in, the workflow task stays healthy."""
    assert isinstance(read_claims(token), Refusal | Claims)


@given(st.dictionaries(st.sampled_from(sorted(Claims.model_fields)), JSON))
def test_claims_with_any_values_never_raise_and_always_compare(changes: dict[str, Any]) -> None:
    """T54: what reads as claims can be compared with a request and its times without an error."""
    found = read_claims(compact({}, claims().model_dump(mode="json") | changes))
    if isinstance(found, Claims):
        mismatch(open_request(), found)
        untimely(open_request(), found, OPENED_AT)
        repeated(open_request(), found)


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({}, None),
        ({"amount_minor": 1}, Refusal.WRONG_PAYLOAD),
        ({"currency": "USD"}, Refusal.WRONG_PAYLOAD),
        ({"requester": "zoe"}, Refusal.WRONG_APPROVER),
        ({"bound": BOUND}, Refusal.WRONG_PAYLOAD),
    ],
)
def test_what_a_request_shows_is_what_it_binds(changes: dict[str, Any], refusal: Refusal | None) -> None:
    """A01: neither the amount that people see nor the fingerprint that they sign may be another order's."""
    event = accepted()
    shown = {
        "bound": BOUND.model_copy(update={"payload_fingerprint": payload_fingerprint(event)}),
        "requester": event.data.requested_by,
        "amount_minor": event.data.total_minor,
        "currency": event.data.currency,
    }
    assert not_about(open_request(**(shown | changes)), event) is refusal
