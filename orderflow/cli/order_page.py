"""An order's report as a page for people: what stands first is what they have to act on."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime

from orderflow.cli.order_report import OrderReport, may_not_approve
from orderflow.cli.output import age, money, print_fields, print_line, print_table, span, when
from orderflow.client import PendingActivity
from orderflow.contracts import OrderView
from orderflow.domain.announcements import told_by
from orderflow.domain.approvals import ApprovalRequest
from orderflow.domain.events import OrderEvent
from orderflow.domain.orders import Standing, StepRecord
from orderflow.ledger import AttemptRecord, EffectRecord

SHOWN_REFUSALS = 10


def print_order(report: OrderReport) -> None:
    """Print everything that `report` holds."""
    _print_cut_off(report)
    print_fields(_head(report))
    _print_troubles(report)
    if report.view is not None:
        _print_standing(report.view.standing)
        if report.cut_off is None:
            _print_request(report.view)
        _print_steps(report.view.steps)
        _print_refusals(report.view)
    _print_pending(report.status.pending)
    _print_effects(report)


def _head(report: OrderReport) -> dict[str, object]:
    status, view = report.status, report.view
    fields: dict[str, object] = {
        "order": status.order,
        "stage": report.stage,
        "reason": (view.reason if view else status.reason) or "",
        "temporal": f"{status.status}, run {status.run_id}",
    }
    if view is None:
        return fields
    notes = view.outcome.notes if view.outcome else ()
    return fields | {
        "detail": view.detail,
        "event": f"source {view.event_source}, id {view.event_id}" if view.event_id else "",
        "definition": f"{view.definition} {view.definition_fingerprint}",
        "payload": view.payload_fingerprint,
        "notes": "; ".join(notes),
        "cancellation": "requested" if view.cancel_requested else "",
    }


def _print_cut_off(report: OrderReport) -> None:
    """An order that Temporal ended looks alive in every other respect."""
    if report.cut_off is None:
        return
    print_line(f"ENDED BY TEMPORAL ({report.cut_off}) without compensation.")
    print_line("Nothing goes on and nothing is taken back; no decision is asked for any more.")
    if report.left_standing:
        _title("still standing, for a person to put right")
        rows = [(e.step, e.key, e.state, _moved(e), e.reference) for e in report.left_standing]
        print_table(("step", "key", "state", "amount", "reference"), rows)
        print_line("`orderflow reconcile` puts it into the queue for people, `orderflow review list`")
    print_line()


def _print_troubles(report: OrderReport) -> None:
    status = report.status
    if status.task_failure is not None:
        print_line()
        print_line(f"WORKFLOW TASK FAILING (attempt {status.task_attempt}): {status.task_failure}")
        print_line("The order stands still and loses nothing; deploy a fixed worker and it goes on.")
    elif report.silence is not None:
        print_line()
        print_line("No worker answers; this is what Temporal itself knows.")


def _print_standing(standing: tuple[Standing, ...]) -> None:
    if standing:
        _title("standing effects, for a person to put right")
        rows = [(s.step, s.key, money(s.amount_minor, s.currency), s.error, s.detail) for s in standing]
        print_table(("step", "key", "amount", "error", "detail"), rows)
        print_line("next: `orderflow review retry KEY --as NAME`, or `review resolve`")


def _print_request(view: OrderView) -> None:
    request = view.request
    if request is not None:
        _title(f"pending approval of step {request.bound.step}")
        print_fields(request_fields(request))
        print_line(f"next: orderflow approve {view.order} --as NAME")


def event_fields(event: OrderEvent) -> dict[str, object]:
    """What an order is about, by name, for printing: whoever approves it sees what they approve."""
    data = event.data
    shown = [f"{item.quantity} × {item.sku} at {money(item.unit_price_minor, data.currency)}" for item in data.items]
    return {
        "order id": data.order_id,
        "customer": data.customer.id,
        "requested by": data.requested_by,
        "items": ", ".join(shown),
    }


def request_fields(request: ApprovalRequest) -> dict[str, object]:
    """What an approver has to know, by name, for printing."""
    return {
        "amount": money(request.amount_minor, request.currency),
        "order": request.bound.workflow_id,
        "step": request.bound.step,
        "role": f"{request.bound.role}, {request.approvers} needed",
        "approved by": ", ".join(request.approved_by),
        "may not approve": ", ".join(may_not_approve(request)) or _nobody_may(request),
        "decide by": _until(request.expires_at),
        "charge by": _until(request.charge_by),
        "request": request.bound.request_id,
        "definition": f"{request.bound.definition_name} {request.bound.definition_version}",
        "payload": request.bound.payload_fingerprint,
    }


def _nobody_may(request: ApprovalRequest) -> str:
    unknown = request.requester is None and not request.requester_may_approve
    return "anyone: the event names no requested_by, which this step demands" if unknown else ""


def _until(at: datetime) -> str:
    left = at - datetime.now(UTC)
    return f"{when(at)} ({f'in {span(left)}' if left.total_seconds() > 0 else 'past'})"


def _print_steps(steps: tuple[StepRecord, ...]) -> None:
    if steps:
        _title("steps")
        print_table(("step", "state", "reference", "why"), [(s.step, s.state, s.reference, _why(s)) for s in steps])


def _why(step: StepRecord) -> str:
    parts = (f"decision {step.decision}" if step.decision else None, step.error, step.detail)
    return ": ".join(part for part in parts if part) or "-"


def _print_refusals(view: OrderView) -> None:
    if not view.refused_total:
        return
    counted = Counter(message.reason.value for message in view.refusals)
    summary = ", ".join(f"{reason} {count}" for reason, count in counted.most_common())
    _title(f"refused messages: {view.refused_total} ({summary})")
    shown = view.refusals[-SHOWN_REFUSALS:]
    print_table(("at", "door", "name", "reason"), [(m.at, m.door, m.name, m.reason) for m in shown])


def _print_pending(pending: tuple[PendingActivity, ...]) -> None:
    if pending:
        _title("activities under way")
        rows = [(p.activity, p.attempt, p.state, _failure(p)) for p in pending]
        print_table(("activity", "attempt", "state", "last failure"), rows)


def _failure(activity: PendingActivity) -> str:
    if activity.failure is None:
        return "-"
    return f"{activity.failure_type}: {activity.failure}" if activity.failure_type else activity.failure


def _print_effects(report: OrderReport) -> None:
    if report.no_ledger is not None:
        _title(f"effects: not known; {report.no_ledger}")
    if report.effects:
        _title("effects")
        headers = ("effect", "state", "amount", "reference", "attempts")
        print_table(headers, list(_effect_rows(report)))
    if report.announcements:
        _title("announcements")
        rows = [(told_by(e.step), e.key, e.state, _tries(_tries_at(report, e))) for e in report.announcements]
        print_table(("subscriber", "key", "state", "attempts"), rows)


def _effect_rows(report: OrderReport) -> Iterator[tuple[object, ...]]:
    for effect in report.effects:
        yield (
            f"{effect.operation} ({effect.step})",
            effect.state if effect.decline_code is None else f"{effect.state}: {effect.decline_code}",
            _moved(effect),
            effect.reference,
            _tries(_tries_at(report, effect)),
        )


def _moved(effect: EffectRecord) -> str:
    moved = effect.amount_minor if effect.captured_minor is None else effect.captured_minor
    back = f", {money(effect.refunded_minor, effect.currency)} back" if effect.refunded_minor else ""
    return money(moved, effect.currency) + back


def _tries_at(report: OrderReport, effect: EffectRecord) -> list[AttemptRecord]:
    return [attempt for attempt in report.attempts if attempt.key == effect.key]


def _tries(attempts: list[AttemptRecord]) -> str:
    if not attempts:
        return "0"
    last = attempts[-1]
    ended = last.ended or f"not ended, begun {age(last.started_at, datetime.now(UTC))} ago by {last.holder}"
    return f"{len(attempts)}, last: {ended}"


def _title(text: str) -> None:
    print_line()
    print_line(text)
