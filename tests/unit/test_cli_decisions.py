"""`orderflow approve` and `reject`: which signed decisions are taken, and how a signal's verdict is read from views."""

import json
from pathlib import Path

import pytest

from orderflow.cli.decisions import ready_token
from orderflow.cli.delivery import verdict
from orderflow.contracts import APPROVE_SIGNAL, DoorAnswer, OrderView, RefusedMessage
from orderflow.domain.approvals import Claims, Decision, Refusal
from orderflow.domain.audit import SafeEvent, Told
from orderflow.domain.errors import InvalidInput
from orderflow.domain.orders import Stage
from orderflow.signing import ApproverKey
from tests.approval_requests import BOUND, OPENED_AT, claims
from tests.support.command_line import orderflow, unconfigure

ORDER = BOUND.workflow_id
BOM = b"\xef\xbb\xbf"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to run in; Temporal is nowhere."""
    return unconfigure(tmp_path, monkeypatch)


def token(**changes: object) -> str:
    """A signed decision, by default alice's approval."""
    return ApproverKey.new("alice", ["finance"]).sign(claims(**changes))


@pytest.mark.parametrize("form", ["bare", "json"])
@pytest.mark.parametrize("mark", [b"", BOM], ids=["plain", "BOM"])
@pytest.mark.parametrize("end", [b"", b"\r\n"])
@pytest.mark.parametrize("source", ["file", "stdin"])
def test_a_signed_decision_is_taken_from_a_file_or_standard_input(
    form: str, mark: bytes, end: bytes, source: str
) -> None:
    """T52, W13: as `--print` shows it, with what PowerShell puts around it; it gets as far as connecting."""
    signed = token()
    raw = mark + (signed if form == "bare" else json.dumps({"approval": signed})).encode() + end
    Path("decision").write_bytes(raw)
    if source == "file":
        assert ready_token(None, "decision", None, Decision.APPROVE) == signed
    else:
        assert orderflow("approve", ORDER, "--file", "-", stdin=raw).code == 3


def test_a_signed_decision_is_taken_from_the_command_line() -> None:
    """As JSON, the way `temporal workflow signal --input` takes it, or bare."""
    signed = token()
    for payload in (signed, json.dumps({"approval": signed})):
        assert ready_token(None, None, payload, Decision.APPROVE) == signed


def test_a_decision_is_never_delivered_by_the_other_verb() -> None:
    """Who types `approve` must not reject."""
    with pytest.raises(InvalidInput, match="orderflow reject"):
        ready_token(None, None, token(decision=Decision.REJECT), Decision.APPROVE)
    ran = orderflow("reject", ORDER, "--payload", token())
    assert ran.code == 2
    assert "orderflow approve" in ran.err


def test_whose_key_signs_is_looked_up_before_anything_else() -> None:
    """Nothing is sent for somebody who cannot sign; the line says how to get a key."""
    ran = orderflow("approve", ORDER, "--as", "zoe")
    assert ran.code == 2
    assert "orderflow keys new" in ran.err
    assert orderflow("keys", "new", "zoe", "--role", "finance", "--out", "elsewhere").code == 0
    assert orderflow("approve", ORDER, "--as", "zoe", "--keys-dir", "elsewhere").code == 3


def view(stage: Stage = Stage.AWAITING_APPROVAL, **changes: object) -> OrderView:
    """What the order says of itself."""
    return OrderView.model_validate({"order": ORDER, "run_id": "run-1", "stage": stage} | changes)


def taken(decision: Decision, approver: str) -> SafeEvent:
    """A decision in the trail."""
    return SafeEvent(at=OPENED_AT, told=Told.DECISION_ACCEPTED, subject=decision, detail=approver)


def refusal(reason: Refusal, door: str = "signal", name: str = APPROVE_SIGNAL) -> RefusedMessage:
    """A message in the list of refused ones."""
    return RefusedMessage(at=OPENED_AT, door=door, name=name, reason=reason)


MINE: Claims = claims()
BEFORE = view(trail=(taken(Decision.APPROVE, "bob"),), refusals=(refusal(Refusal.EXPIRED),), refused_total=1)


@pytest.mark.parametrize(
    ("after", "answer"),
    [
        (BEFORE, None),
        (
            view(Stage.RUNNING, trail=(*BEFORE.trail, taken(Decision.APPROVE, "alice"))),
            DoorAnswer(accepted=True, stage=Stage.RUNNING),
        ),
        (view(trail=(*BEFORE.trail, taken(Decision.REJECT, "alice"))), None),
        (view(trail=(*BEFORE.trail, taken(Decision.APPROVE, "carol"))), None),
        (
            view(refusals=(*BEFORE.refusals, refusal(Refusal.WRONG_PAYLOAD)), refused_total=2),
            DoorAnswer(accepted=False, refusal=Refusal.WRONG_PAYLOAD, stage=Stage.AWAITING_APPROVAL),
        ),
        (view(refusals=(*BEFORE.refusals, refusal(Refusal.MALFORMED, "update", "decide")), refused_total=2), None),
        (view(refusals=(*BEFORE.refusals, refusal(Refusal.UNKNOWN_MESSAGE, name="x")), refused_total=2), None),
        (
            view(refusals=(refusal(Refusal.MALFORMED),) * 50, refused_total=80),
            DoorAnswer(accepted=False, refusal=Refusal.MALFORMED, stage=Stage.AWAITING_APPROVAL),
        ),
    ],
    ids=[
        "nothing yet", "accepted", "another decision", "another person", "refused", "another door", "another name",
        "more refused than kept",
    ],
)  # fmt: skip
def test_what_became_of_a_signal_shows_between_two_views(after: OrderView, answer: DoorAnswer | None) -> None:
    """T15: a signal cannot answer, so the command looks."""
    assert verdict(BEFORE, after, MINE) == answer
