"""What `submit --direct` does: start the order of an event, or find the one that was started before."""

import sys
from dataclasses import dataclass

from temporalio.client import Client

from orderflow.cli.exits import Refused
from orderflow.client import StartedOrder, order_status, placed_event, start_order
from orderflow.domain.definition import Definition
from orderflow.domain.events import OrderEvent, payload_fingerprint
from orderflow.settings import Settings


@dataclass(frozen=True)
class Submitted:
    """The order of an event, and its status as Temporal names it: `running`, `completed`, `terminated` …"""

    started: StartedOrder
    status: str


async def submit(client: Client, settings: Settings, event: OrderEvent, definition: Definition) -> Submitted:
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
