"""`orderflow list` and `show`: find orders, look at one."""

import sys
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orderflow.cli.arguments import AsJson, EventId, Order, Source, order_reference
from orderflow.cli.exits import ExitCode
from orderflow.cli.output import age, console, print_json, print_line, print_table
from orderflow.domain.orders import Stage

if TYPE_CHECKING:
    from temporalio.client import Client

    from orderflow.client import OrderSummary

WIDE = 120
"""Columns from which a list shows times in full."""


def list_orders(
    stage: Annotated[Stage | None, typer.Option("--stage", metavar="STAGE", help="Only orders in this stage.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="At most so many.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List orders: open ones first, then those that closed last."""
    from orderflow.cli.connection import with_temporal
    from orderflow.client import list_orders as listed

    async def latest_runs(client: "Client") -> "list[OrderSummary]":
        found = listed(client, stage=stage, limit=limit)
        return [order async for order in found if order.status != "continued_as_new"]  # its next run is the order

    orders = with_temporal(lambda client, _: latest_runs(client))
    if as_json:
        print_json([_summary(order) for order in orders])
    elif orders:
        _print_orders(orders)
    else:
        print_line("no orders" if stage is None else f"no orders in stage {stage}")


def _summary(order: "OrderSummary") -> dict[str, Any]:
    closed_at = order.closed_at.isoformat() if order.closed_at else None
    return asdict(order) | {"started_at": order.started_at.isoformat(), "closed_at": closed_at}


def _print_orders(orders: "list[OrderSummary]") -> None:
    """On a narrow screen the reason stands below the stage and the time is an age: a line has room for no more."""
    wide, now = console().width >= WIDE, datetime.now(UTC)
    if wide:
        rows = [(o.order, o.stage, o.reason, o.status, o.started_at) for o in orders]
        print_table(("order", "stage", "reason", "status", "started"), rows)
        return
    narrow = [(o.order, _below(o.stage, o.reason), o.status, age(o.started_at, now)) for o in orders]
    print_table(("order", "stage / reason", "status", "started"), narrow)


def _below(stage: str | None, reason: str | None) -> tuple[str | None, ...]:
    return (stage, reason) if reason else (stage,)


def show(order: Order = None, source: Source = None, event_id: EventId = None, as_json: AsJson = False) -> ExitCode:
    """Show one order in full."""
    from orderflow.cli.connection import with_temporal
    from orderflow.cli.order_page import print_order
    from orderflow.cli.order_report import order_report

    reference = order_reference(order, source, event_id)
    report = with_temporal(lambda client, settings: order_report(client, settings, reference))
    if as_json:
        print_json(report.as_json())
    else:
        print_order(report)
    if report.silence is None:
        return ExitCode.DONE
    print(f"orderflow: {report.silence}", file=sys.stderr)
    return ExitCode.NOT_REACHABLE
