"""What people see: tables that fit 80 columns, pages in which nothing steers the terminal, JSON for any program."""

import json
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from orderflow.cli import order_page, orders, output
from orderflow.cli.order_report import OrderReport, may_not_approve
from orderflow.client import OrderStatus, OrderSummary, PendingActivity, TaskFailure
from orderflow.contracts import OrderView, RefusedMessage
from orderflow.domain.approvals import Refusal
from orderflow.domain.effects import EffectState
from orderflow.domain.orders import Outcome, Reason, Stage, Standing, StepRecord, StepState
from orderflow.ledger import AttemptRecord, EffectRecord
from tests.approval_requests import BOUND, open_request
from tests.support.shop import order_event

ORDER = BOUND.workflow_id
NOW = datetime.now(UTC)


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 80 columns."""
    monkeypatch.setattr(
        output,
        "console",
        lambda stream=None: Console(
            width=80, highlight=False, markup=False, file=stream or sys.stdout, color_system=None
        ),
    )
    monkeypatch.setattr(orders, "console", output.console)


def summary(stage: str | None, reason: str | None, status: str = "running") -> OrderSummary:
    """One line of a list."""
    return OrderSummary(ORDER, "run-1", status, stage, reason, NOW - timedelta(hours=3), None)


def printed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines printed so far."""
    return capsys.readouterr().out.splitlines()


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("stage", [*Stage, None])
@pytest.mark.parametrize("reason", [*Reason, None])
def test_a_list_fits_80_columns_with_its_ids_whole(
    stage: Stage | None, reason: Reason | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """An id that is broken in two cannot be copied."""
    orders._print_orders([summary(stage, reason, status) for status in ("completed", "terminated", "timed_out")])
    lines = printed(capsys)
    assert max(map(len, lines)) <= 80
    assert sum(ORDER in line for line in lines) == 3
    assert sum((stage or "-") in line for line in lines[1:]) >= 3
    assert reason is None or sum(reason in line for line in lines) == 3


def test_a_piped_list_has_one_line_an_order(capsys: pytest.CaptureFixture[str]) -> None:
    """For grep and awk; no blanks at the end, no colours."""
    orders._print_orders([summary(Stage.FAILED_COMPENSATED, Reason.APPROVAL_REJECTED), summary(None, None)])
    header, first, second = printed(capsys)
    assert header.split() == ["order", "stage", "reason", "status", "started"]
    assert first.split()[:4] == [ORDER, "failed_compensated", "approval_rejected", "running"]
    assert second.split()[:3] == [ORDER, "-", "-"]
    assert first == first.rstrip()
    assert "\x1b" not in first


def status(**changes: object) -> OrderStatus:
    """What Temporal knows of an order."""
    fields: dict[str, object] = {
        "order": ORDER, "run_id": "run-1", "status": "running", "stage": "running", "reason": None,
        "task_queue": "orderflow", "task_attempt": 0, "task_failure": None, "pending": (),
    }  # fmt: skip
    return OrderStatus(**(fields | changes))  # type: ignore[arg-type]  # built from a table


def view(**changes: object) -> OrderView:
    """What an order says of itself."""
    fields = {
        "order": ORDER, "run_id": "run-1", "stage": Stage.AWAITING_APPROVAL, "event_source": "/shop",
        "event_id": "order-placed-1001", "payload_fingerprint": "fp1:" + "a" * 64, "definition": "order 1.0.0",
        "definition_fingerprint": "sha256:" + "b" * 64,
        "steps": (StepRecord(step="reserve_inventory", activity="reserve_inventory", state=StepState.DONE),),
    }  # fmt: skip
    return OrderView.model_validate(fields | changes)


def effect(**changes: object) -> EffectRecord:
    """What the ledger remembers of a charge."""
    fields: dict[str, object] = {
        "key": f"{ORDER}.charge.do", "workflow_id": ORDER, "step": "charge", "provider": "payments",
        "operation": "charge", "intent_digest": "sha256:x", "state": EffectState.COMMITTED, "token": 2,
        "amount_minor": 900, "currency": "EUR", "reference": "charge-3", "captured_minor": 900, "refunded_minor": 300,
        "decline_code": None, "result_json": '{"secret": 1}', "created_at": NOW, "updated_at": NOW, "settled_at": NOW,
    }  # fmt: skip
    return EffectRecord(**(fields | changes))  # type: ignore[arg-type]  # built from a table


FULL = OrderReport(
    status=status(
        task_attempt=7,
        task_failure=TaskFailure("workflow_worker_unhandled_failure", "ZeroDivisionError", "division by zero"),
        pending=(PendingActivity("charge_payment", 3, "scheduled", "ProviderUnavailable", "no answer"),),
    ),
    view=view(
        request=open_request(approvers=2, approved_by=("bob",), accepted=("secret.jws.token",)),
        refusals=tuple(
            RefusedMessage(at=NOW, door="signal", name="approve", reason=reason)
            for reason in (Refusal.MALFORMED, Refusal.EXPIRED, Refusal.MALFORMED)
        ),
        refused_total=3,
        standing=(Standing(step="charge", key="k", amount_minor=900, currency="EUR", error="CannotUndo"),),
        cancel_requested=True,
        outcome=Outcome(order=ORDER, stage=Stage.COMPLETED, notes=("notify was not done: deadline",)),
    ),
    silence=None,
    effects=(effect(),),
    attempts=(AttemptRecord(f"{ORDER}.charge.do", 2, "host-1", NOW, None, None),),
)


def page(report: OrderReport, capsys: pytest.CaptureFixture[str]) -> str:
    """The page of a report."""
    order_page.print_order(report)
    return capsys.readouterr().out


def test_a_page_tells_all_that_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    """Issue: stage, steps, pending approval, refusals with reasons, standing effects, why a task fails (T16)."""
    told = page(FULL, capsys)
    for part in (
        "awaiting_approval", "order-placed-1001", "WORKFLOW TASK FAILING (attempt 7): ZeroDivisionError",
        "standing effects", "EUR 9.00", "CannotUndo", "finance, 2 needed", "may not approve", "dana, bob",
        "approved by", "decide by", "charge by", "refused messages: 3", "malformed 2", "expired 1",
        "charge_payment", "ProviderUnavailable: no answer", "EUR 9.00, EUR 3.00 back", "1, last: not ended",
        "cancellation", "notify was not done: deadline", f"orderflow approve {ORDER} --as NAME",
    ):  # fmt: skip
        assert part in told, part


@pytest.mark.usefixtures("narrow")
def test_a_page_fits_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    """With the order's id whole."""
    lines = page(FULL, capsys).splitlines()
    assert [line for line in lines if len(line) > 80 and "FAILING" not in line] == []
    assert sum(ORDER in line for line in lines) >= 3


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("ended", ["terminated", "timed_out"])
def test_an_order_that_temporal_ended_does_not_look_alive(ended: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What stands first is that nothing was compensated, and what stands; no approval is offered."""
    undone = effect(key=f"{ORDER}.reserve.do", step="reserve", state=EffectState.REVERSED)
    report = replace(FULL, status=status(status=ended), effects=(effect(), undone))
    lines = page(report, capsys).splitlines()
    assert lines[0] == f"ENDED BY TEMPORAL ({ended}) without compensation."
    assert max(map(len, lines[:8])) <= 80
    head = "\n".join(lines[: next(number for number, line in enumerate(lines) if line.startswith("order "))])
    assert "still standing" in head
    assert "committed" in head
    assert "reversed" not in head
    assert not any("orderflow approve" in line or "pending approval" in line for line in lines)
    told = report.as_json()
    assert (told["cut_off"], told["left_standing"]) == (ended, [f"{ORDER}.charge.do"])
    assert told["view"]["request"] is None


@pytest.mark.parametrize(
    ("ended", "stage"),
    [("running", Stage.AWAITING_APPROVAL), ("terminated", Stage.COMPLETED), ("failed", Stage.FAILED)],
)
def test_an_order_that_came_to_its_own_end_is_not_cut_off(ended: str, stage: Stage) -> None:
    """Nor is one that still runs."""
    report = replace(FULL, status=status(status=ended), view=view(stage=stage))
    assert (report.cut_off, report.left_standing) == (None, [])


def test_every_item_is_shown_to_whoever_approves() -> None:
    """An order holds at most 100, and each is part of what is signed."""
    items = [{"sku": f"sku-{number}", "quantity": 1, "unit_price_minor": 1} for number in range(100)]
    event = order_event(items=items, total_minor=100)
    shown = str(order_page.event_fields(event)["items"])
    assert [f"1 × sku-{number} at EUR 0.01" for number in range(100)] == shown.split(", ")


def test_a_page_without_a_worker_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """Temporal alone still knows the stage."""
    told = page(OrderReport(status(stage="compensating"), None, "no worker answered"), capsys)
    assert "compensating" in told
    assert "No worker answers" in told


def test_neither_page_nor_json_gives_a_signed_decision_away(capsys: pytest.CaptureFixture[str]) -> None:
    """Nor what a provider answered besides."""
    told = page(FULL, capsys) + json.dumps(FULL.as_json())
    assert "secret" not in told


def test_a_report_as_json_says_the_same() -> None:
    """For programs; every value is plain JSON."""
    told = json.loads(json.dumps(FULL.as_json()))
    assert (told["order"], told["stage"]) == (ORDER, "awaiting_approval")
    assert told["temporal"]["task_failure"]["type"] == "ZeroDivisionError"
    assert told["view"]["request"]["may_not_approve"] == ["dana", "bob"]
    assert told["effects"][0]["captured_minor"] == 900
    assert told["view"]["refused_total"] == 3


@pytest.mark.parametrize(
    ("changes", "forbidden"),
    [
        ({}, ["dana"]),
        ({"requester_may_approve": True}, []),
        ({"requester": None}, []),
        ({"approved_by": ("bob",)}, ["dana", "bob"]),
    ],
)
def test_who_may_not_approve(changes: dict[str, object], forbidden: list[str]) -> None:
    """The requester, unless the step allows it, and whoever approved already (A02)."""
    assert may_not_approve(open_request(**changes)) == forbidden


def test_an_order_without_a_requester_says_why_nobody_may_approve() -> None:
    """Before somebody tries in vain."""
    assert "requested_by" in str(order_page.request_fields(open_request(requester=None))["may not approve"])


@given(st.text())
def test_what_is_printed_is_printable(text: str) -> None:
    """Ids and messages come from outside: no escape sequence reaches the terminal."""
    assert output.printable(text).isprintable()
    assert output.shortened(text).isprintable()


@given(st.dictionaries(st.text(), st.text()))
def test_json_is_ascii_and_reads_back(value: dict[str, str]) -> None:
    """Whatever the encoding of the pipe."""
    raw = output.as_json(value)
    assert raw.isascii()
    assert json.loads(raw) == value


@pytest.mark.parametrize(
    ("length", "told"),
    [(0, "0s"), (59, "59s"), (60, "1m0s"), (3601, "1h0m"), (86399, "23h59m"), (172800, "2d0h"), (-5, "0s")],
)
def test_a_length_of_time_in_two_units(length: int, told: str) -> None:
    """Near enough to plan by."""
    assert output.span(timedelta(seconds=length)) == told


@pytest.mark.parametrize(("seconds", "told"), [(5, "5s"), (300, "5m"), (7300, "2h"), (200_000, "2d"), (-3, "0s")])
def test_an_age_in_one_unit(seconds: int, told: str) -> None:
    """A column has room for no more; a clock that runs ahead is no age."""
    assert output.age(NOW - timedelta(seconds=seconds), NOW) == told


@pytest.mark.parametrize(
    ("amount", "currency", "told"),
    [
        (900, "EUR", "EUR 9.00"),
        (900, "JPY", "JPY 900"),
        (None, "EUR", "-"),
        (5, None, "5 minor units"),
        (5, "ZZZ", "5 minor units of ZZZ"),
    ],
)
def test_money_is_told_in_its_own_unit(amount: int | None, currency: str | None, told: str) -> None:
    """M01: also what a newer release has booked."""
    assert output.money(amount, currency) == told
