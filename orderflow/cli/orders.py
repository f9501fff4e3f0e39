"""`orderflow submit`, `list` and `show`: begin an order, find orders, look at one."""

import sys
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orderflow.cli.arguments import AsJson, EventId, Order, Source, name_of, order_reference, read_document
from orderflow.cli.definitions import definition_of, unpublished
from orderflow.cli.exits import ExitCode, InvalidFile
from orderflow.cli.output import age, console, print_fields, print_json, print_line, print_table, shortened
from orderflow.domain.definition import Definition
from orderflow.domain.errors import InvalidInput
from orderflow.domain.events import OrderEvent, check_order, validate_event
from orderflow.domain.orders import Stage
from orderflow.domain.strict_json import MAX_BYTES, read_json

if TYPE_CHECKING:
    from temporalio.client import Client

    from orderflow.cli.submission import Submitted
    from orderflow.client import OrderSummary

WIDE = 120
"""Columns from which a list shows times in full."""


def submit(
    event: Annotated[str, typer.Argument(metavar="EVENT.json", help="The event, or - for standard input.")],
    direct: Annotated[bool, typer.Option("--direct", help="Start the order without HTTP.")] = False,
    definition: Annotated[str | None, typer.Option("--definition", help="Instead of the packaged one.")] = None,
    only_print: Annotated[
        bool, typer.Option("--print", help="Print the `temporal workflow start` command instead.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Start the order of an event."""
    if not direct:
        raise InvalidInput("orders are started without HTTP only, as there is no ingress yet: add --direct")
    read, steps = read_event(event), definition_of(definition)
    if definition is not None and (warning := unpublished(steps)):
        print(f"orderflow: {shortened(warning)}", file=sys.stderr)
    if only_print:
        _print_start(read, steps, as_json)
    else:
        _start(read, steps, as_json)


def read_event(file: str) -> OrderEvent:
    """The event in `file`. Raises `InvalidFile` with every problem of its shape, or every rule that it breaks."""
    raw = read_document(file, max_bytes=MAX_BYTES)
    try:
        event = validate_event(read_json(raw, allow_bom=True))
        check_order(event)
    except InvalidInput as error:
        raise InvalidFile(name_of(file), error) from error
    return event


def _start(event: OrderEvent, definition: Definition, as_json: bool) -> None:
    from orderflow.cli.connection import with_temporal  # Temporal's client, see orderflow.cli
    from orderflow.cli.submission import submit as submit_event

    submitted = with_temporal(lambda client, settings: submit_event(client, settings, event, definition))
    if as_json:
        print_json(_submitted(submitted))
    else:
        _print_submitted(submitted)


def _submitted(submitted: "Submitted") -> dict[str, Any]:
    order = submitted.started.order
    return {
        "order": order,
        "run_id": submitted.started.run_id,
        "duplicate": not submitted.started.new,
        "status": submitted.status,
        "next": f"orderflow show {order}",
    }


def _print_submitted(submitted: "Submitted") -> None:
    order = submitted.started.order
    if not submitted.started.new:
        print_line(f"duplicate: already started as {order}, which is {submitted.status}")
    print_fields({"order": order, "run": submitted.started.run_id, "next": f"orderflow show {order}"})


def _print_start(event: OrderEvent, definition: Definition, as_json: bool) -> None:
    from orderflow.cli.connection import runnable, temporal_target
    from orderflow.client import start_command
    from orderflow.settings import load_settings

    settings, (address, namespace) = load_settings(), temporal_target()
    started = start_command(event, definition, address=address, namespace=namespace, task_queue=settings.task_queue)
    command = runnable(started, settings)
    if as_json:
        print_json({"command": command})
    else:
        print(command)


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
