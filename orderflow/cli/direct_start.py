"""`submit --direct`: start the order of an event without HTTP, find the one that was started before, or print how."""

import sys
from dataclasses import dataclass
from typing import Any

from temporalio.client import Client

from orderflow.cli.connection import runnable, temporal_target, with_temporal
from orderflow.cli.exits import Refused
from orderflow.cli.output import print_fields, print_json, print_line
from orderflow.client import StartedOrder, order_codec, order_status, placed_event, start_command, start_order
from orderflow.domain.definition import Definition
from orderflow.domain.events import OrderEvent, payload_fingerprint
from orderflow.settings import Settings, load_settings


@dataclass(frozen=True)
class Submitted:
    """The order of an event, and its status as Temporal names it: `running`, `completed`, `terminated` …"""

    started: StartedOrder
    status: str


def start_directly(event: OrderEvent, definition: Definition, *, as_json: bool) -> None:
    """Start the order and print which one it is."""
    submitted = with_temporal(lambda client, settings: start(client, settings, event, definition))
    if as_json:
        print_json(_submitted(submitted))
    else:
        _print_submitted(submitted)


def print_start(event: OrderEvent, definition: Definition, *, as_json: bool) -> None:
    """Print the command of Temporal's own CLI that would start the order."""
    settings, (address, namespace) = load_settings(), temporal_target()
    started = start_command(
        event,
        definition,
        codec=order_codec(settings),
        address=address,
        namespace=namespace,
        task_queue=settings.task_queue,
    )
    command = runnable(started, settings)
    if as_json:
        print_json({"command": command})
    else:
        print(command)


async def start(client: Client, settings: Settings, event: OrderEvent, definition: Definition) -> Submitted:
    """Start the order of `event`. Raises `Refused` when that event's identity stands for another payload (I11)."""
    started = await start_order(client, event, definition, task_queue=settings.task_queue, warn=warn)
    if started.new:
        return Submitted(started, "running")
    status = (await order_status(client, started.order)).status
    before = await placed_event(client, started.order)
    if payload_fingerprint(before) != payload_fingerprint(event):
        raise Refused(
            f"conflict: {started.order} ({status}) was started by an event of the same source and id with another"
            " payload; give a new event a new id",
            order=started.order,
            run_id=started.run_id,
            status=status,
            conflict=True,
        )
    return Submitted(started, status)


def warn(sentence: str) -> None:
    """Tell a person what may go wrong, besides the answer."""
    print(f"orderflow: {sentence}", file=sys.stderr)


def _submitted(submitted: Submitted) -> dict[str, Any]:
    order = submitted.started.order
    return {
        "order": order,
        "run_id": submitted.started.run_id,
        "duplicate": not submitted.started.new,
        "status": submitted.status,
        "next": f"orderflow show {order}",
    }


def _print_submitted(submitted: Submitted) -> None:
    order = submitted.started.order
    if not submitted.started.new:
        print_line(f"duplicate: already started as {order}, which is {submitted.status}")
    print_fields({"order": order, "run": submitted.started.run_id, "next": f"orderflow show {order}"})
