"""Reconciliation: the ledger against the providers against Temporal, in both directions.

Read `run` first, then `cases`, which holds what is done about one order by the table in `domain/reconciliation.py`.
This module holds the Protocol by which Temporal is asked, nothing else.
"""

from typing import Protocol

from orderflow.client.fates import OrderFate
from orderflow.contracts import OrderInput, OrderView


class Orders(Protocol):
    """What Temporal knows of orders. Every method raises `ServerUnreachable` if it cannot be asked."""

    async def fate(self, order: str) -> OrderFate:
        """What became of the latest run of `order`."""
        ...

    async def placed(self, order: str) -> OrderInput | None:
        """What it was started with, or `None` if nobody can read that any more."""
        ...

    async def resolved(self, order: str) -> frozenset[str]:
        """The keys of the effects that people sent a resolution about, whatever came of it."""
        ...

    async def view(self, order: str) -> OrderView:
        """What an open order says of itself. Raises `NoAnswer` if no worker answers for it."""
        ...
