"""What an operator signs: whatever is tampered with is refused, and above a limit one person is never enough."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orderflow.domain.approvals import Refusal
from orderflow.domain.operations import (
    VALID_FOR,
    Operation,
    OperationVerdict,
    Resolution,
    ineligible,
    is_resolved,
    not_about,
    read_operation,
    untimely,
)
from orderflow.domain.orders import Said, Standing
from orderflow.signing import ApproverKey, KeyRegistry, operation_on
from tests.approval_requests import claims as decision
from tests.approval_requests import compact

NOW: Final = datetime(2026, 1, 31, 12, tzinfo=UTC)
LEFT: Final = Standing(step="charge", key="order-a.charge.do", amount_minor=900, currency="EUR", error="CannotUndo")
CAROL: Final = ApproverKey.new("carol", ["operator"])
KNOWN: Final = KeyRegistry().with_added(CAROL.public_jwk())
REVOKED: Final = KeyRegistry().with_added(CAROL.public_jwk() | {"revoked": True})
SIGNED: Final = operation_on(
    LEFT, "order-a", Operation.RESOLVE, "carol", NOW, reason="ü", outcome=Resolution.KEPT, evidence="😀"
)
GENUINE: Final = OperationVerdict(genuine=True, operator="carol", roles=("operator",), alone_up_to=100)


def test_a_signed_operation_is_genuine() -> None:
    """It says whose it is and passes the limit on; what was signed is what is read."""
    token = CAROL.sign(SIGNED)
    verdict = KNOWN.verify_operation(token, alone_up_to=100)
    assert verdict == GENUINE
    assert read_operation(token) == SIGNED
    assert ineligible(SIGNED, verdict) is not_about(LEFT, SIGNED, "order-a") is untimely(SIGNED, NOW) is None


def test_neither_kind_of_signed_message_passes_for_the_other() -> None:
    """RFC 8725, 3.11: also if the claims were the same, the type in the header tells."""
    assert KNOWN.verify(CAROL.sign(SIGNED)).refusal is Refusal.MALFORMED
    assert KNOWN.verify_operation(CAROL.sign(decision(approver="carol"))).refusal is Refusal.MALFORMED


@pytest.mark.parametrize(
    ("registry", "token", "refusal"),
    [
        (KeyRegistry(), CAROL.sign(SIGNED), Refusal.UNKNOWN_KEY),
        (REVOKED, CAROL.sign(SIGNED), Refusal.REVOKED_KEY),
        (KNOWN, CAROL.sign(SIGNED)[:-6] + "AAAAAA", Refusal.BAD_SIGNATURE),
        (KNOWN, "a.b.c", Refusal.MALFORMED),
        (KNOWN, "x" * 5000, Refusal.TOO_LARGE),
    ],
    ids=["unknown", "revoked", "forged", "malformed", "large"],
)
def test_whoever_did_not_sign_is_refused(registry: KeyRegistry, token: str, refusal: Refusal) -> None:
    """A02: each for its own reason, and nothing raises."""
    verdict = registry.verify_operation(token)
    assert (verdict.genuine, verdict.refusal, verdict.roles) == (False, refusal, ())
    assert ineligible(SIGNED, verdict) is refusal


@given(st.one_of(st.text(), st.binary(), st.none(), st.integers(), st.from_regex(r"[\w-]+\.[\w-]+\.[\w-]+")))
def test_any_value_can_come_in(value: object) -> None:
    """Total: a refusal, never an exception."""
    assert isinstance(read_operation(value), Refusal)


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"workflow_id": "order-b"}, Refusal.WRONG_ORDER),
        ({"effect": "order-a.reserve.do"}, Refusal.NO_SUCH_EFFECT),
        ({"amount_minor": 899}, Refusal.WRONG_AMOUNT),
        ({"amount_minor": None}, Refusal.WRONG_AMOUNT),
        ({"currency": "USD"}, Refusal.WRONG_AMOUNT),
        ({"currency": None}, Refusal.WRONG_AMOUNT),
    ],
)
def test_every_bound_field_counts(changes: dict[str, Any], refusal: Refusal) -> None:
    """A01's rule, for operators: what stands is exactly what was signed."""
    assert not_about(LEFT, SIGNED.model_copy(update=changes), "order-a") is refusal


def test_what_does_not_stand_cannot_be_operated_on() -> None:
    """Nothing left of it, or nothing at all."""
    assert not_about(None, SIGNED, "order-a") is Refusal.NO_SUCH_EFFECT


@pytest.mark.parametrize(
    "changes",
    [
        {"operation": "retry"},
        {"outcome": None},
        {"evidence": None},
        {"evidence": ""},
        {"reason": ""},
        {"reason": "x" * 301},
        {"operation": "delete"},
        {"jti": "short"},
        {"amount_minor": -1},
        {"amount_minor": True},
        {"more": 1},
        {"iat": -1},
    ],
    ids=str,
)
def test_claims_that_say_too_little_or_too_much_are_malformed(changes: dict[str, Any]) -> None:
    """A resolution has outcome and evidence, a retry neither; every field is strict."""
    said = SIGNED.model_dump(mode="json")
    assert read_operation(compact({}, said)) == SIGNED
    assert read_operation(compact({}, said | changes)) is Refusal.MALFORMED


@pytest.mark.parametrize(
    ("late", "iat", "expires", "refusal"),
    [
        (timedelta(0), NOW, NOW + VALID_FOR, None),
        (VALID_FOR, NOW, NOW + VALID_FOR, None),
        (VALID_FOR + timedelta(seconds=1), NOW, NOW + VALID_FOR, Refusal.EXPIRED),
        (VALID_FOR + timedelta(seconds=1), NOW, NOW + timedelta(days=99), Refusal.EXPIRED),
        (timedelta(seconds=2), NOW, NOW + timedelta(seconds=1), Refusal.EXPIRED),
        (timedelta(0), NOW + timedelta(seconds=60), NOW + VALID_FOR, None),
        (timedelta(0), NOW + timedelta(seconds=61), NOW + VALID_FOR, Refusal.NOT_YET_VALID),
    ],
)
def test_an_operation_is_good_for_an_hour(
    late: timedelta, iat: datetime, expires: datetime, refusal: Refusal | None
) -> None:
    """Whatever longer time it claims; a clock may be a minute ahead."""
    times = {"iat": int(iat.timestamp()), "expires_at": int(expires.timestamp())}
    assert untimely(SIGNED.model_copy(update=times), NOW + late) is refusal


@pytest.mark.parametrize(
    ("verdict", "refusal"),
    [
        (GENUINE, None),
        (GENUINE.model_copy(update={"operator": "oscar"}), Refusal.WRONG_APPROVER),
        (GENUINE.model_copy(update={"roles": ("finance", "operators")}), Refusal.ROLE_NOT_HELD),
        (OperationVerdict(genuine=False), Refusal.CANNOT_VERIFY),
    ],
)
def test_only_an_operator_operates(verdict: OperationVerdict, refusal: Refusal | None) -> None:
    """The role is the key's, and the name is that of its owner."""
    assert ineligible(SIGNED, verdict) is refusal


WORDS = st.lists(st.tuples(st.sampled_from(["carol", "oscar", "olga"]), st.sampled_from(Resolution)), max_size=6)


@given(words=WORDS, amount=st.none() | st.integers(0, 200), limit=st.integers(0, 200))
def test_enough_distinct_people_have_to_say_the_same(
    words: list[tuple[str, Resolution]], amount: int | None, limit: int
) -> None:
    """Issue 3: one up to the limit, two above it; each person's last word counts, once."""
    left = LEFT.model_copy(update={"amount_minor": amount})
    for who, outcome in words:
        left = left.with_said(Said(operator=who, outcome=outcome, jti="x" * 16))
    last = dict(words)
    needed = 1 if amount is None or amount <= limit else 2
    for outcome in Resolution:
        agreed = [who for who, said in last.items() if said is outcome]
        assert is_resolved(left, outcome, limit) is (len(agreed) >= needed)
