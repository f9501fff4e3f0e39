"""When what stands behind the door is away: ledger or Temporal. The sender hears so, and loses nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from temporalio.service import RPCError

from orderflow.domain.deliveries import Cause, DeliveryRefused
from orderflow.domain.errors import OrderflowError
from orderflow.ingress.telling import log

WITHIN: Final = 8.0
"""Seconds for ledger and Temporal together: less than a sender waits, so that it hears from us."""

SOON: Final = 5.0
"""Seconds after which it is worth sending again what could not be taken."""


@asynccontextmanager
async def available() -> AsyncIterator[None]:
    """Turn whatever ledger and Temporal meet, and their silence, into `UNAVAILABLE` (never a 500)."""
    try:
        async with asyncio.timeout(WITHIN):
            yield
    except DeliveryRefused:
        raise
    except (OrderflowError, RPCError, TimeoutError) as error:
        log.warning("what the door needs is away: %s", error if str(error) else "no answer in time")
        raise unavailable() from error


def unavailable() -> DeliveryRefused:
    """The refusal that asks to come again."""
    return DeliveryRefused(
        Cause.UNAVAILABLE,
        "what stands behind this door cannot be reached now; nothing is lost: send the same request again",
        retry_after=SOON,
    )
