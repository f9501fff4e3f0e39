"""What `submit --direct` does: start the order of an event, or find the one that was started before."""

import asyncio
import sys
import time
from dataclasses import dataclass
from typing import Final

from temporalio.client import Client

from orderflow.cli.exits import Refused
from orderflow.client import NoAnswer, StartedOrder, UnknownOrder, start_order, view
from orderflow.domain.definition import Definition
from orderflow.domain.events import OrderEvent, payload_fingerprint
from orderflow.settings import Settings

PATIENCE: Final = 5.0
"""Seconds to wait for the order that was started before to say what its payload was."""

_PAUSE: Final = 0.1


@dataclass(frozen=True)
class Submitted:
    """The order of an event. `compared` is false for a duplicate of which nobody could say what its payload was."""

    started: StartedOrder
    compared: bool = True


async def submit(client: Client, settings: Settings, event: OrderEvent, definition: Definition) -> Submitted:
    """Start the order of `event`. Raises `Refused` when that event's identity stands for another payload (I11)."""
    started = await start_order(client, event, definition, task_queue=settings.task_queue, warn=_warn)
    if started.new:
        return Submitted(started)
    before = await _fingerprint_of(client, started.order)
    if before and before != payload_fingerprint(event):
        raise Refused(
            f"conflict: {started.order} was started by an event of the same source and id with another payload;"
            " give a new event a new id",
            order=started.order,
            run_id=started.run_id,
            conflict=True,
        )
    return Submitted(started, compared=before is not None)


async def _fingerprint_of(client: Client, order: str) -> str | None:
    """The payload fingerprint that `order` was admitted with; `None` if nobody says so in time."""
    give_up_at = time.monotonic() + PATIENCE
    while (left := give_up_at - time.monotonic()) > 0:
        try:
            seen = await view(client, order, patience=left)
        except (NoAnswer, UnknownOrder):
            return None
        if seen.payload_fingerprint:
            return seen.payload_fingerprint
        await asyncio.sleep(_PAUSE)  # not admitted yet
    return None


def _warn(sentence: str) -> None:
    print(f"orderflow: {sentence}", file=sys.stderr)
