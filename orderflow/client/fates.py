"""What became of an order, for whoever reconciles: Temporal's word, without asking a worker where that is possible."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import Final

from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError

from orderflow.client.connection import ServerUnreachable, address_of
from orderflow.client.orders import view
from orderflow.client.placed import placed_announcement, placed_order, resolved_effects
from orderflow.client.search_attributes import REASON, STAGE
from orderflow.client.status import UnknownOrder, about
from orderflow.contracts import OrderInput, OrderView
from orderflow.domain.announcements import AnnounceRequest
from orderflow.domain.orders import Reason
from orderflow.domain.reconciliation import Fate

_PATIENCE: Final = timedelta(seconds=10)

_FATES: Final[Mapping[WorkflowExecutionStatus, Fate]] = MappingProxyType(
    {
        WorkflowExecutionStatus.COMPLETED: Fate.COMPLETED,
        WorkflowExecutionStatus.FAILED: Fate.FAILED,
        WorkflowExecutionStatus.CANCELED: Fate.FAILED,
        WorkflowExecutionStatus.TERMINATED: Fate.TERMINATED,
        WorkflowExecutionStatus.TIMED_OUT: Fate.TIMED_OUT,
    }
)

_NEVER_BEGAN: Final = frozenset({Reason.INVALID_INPUT, Reason.IDENTITY_MISMATCH})
"""Why a run ends that never was the order whose id it has."""


@dataclass(frozen=True)
class OrderFate:
    """What became of an order, and the stage that it was in last, where it said so."""

    fate: Fate
    stage: str | None = None


class TemporalOrders:
    """The orders that a Temporal namespace knows. Every method raises `ServerUnreachable` if it cannot be asked."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def fate(self, order: str) -> OrderFate:
        """What became of the latest run of `order`; a run that never was this order is none."""
        try:
            with self._asking(order):
                found = await self._client.get_workflow_handle(order).describe(rpc_timeout=_PATIENCE)
        except UnknownOrder:
            return OrderFate(Fate.VANISHED)
        if found.typed_search_attributes.get(REASON) in _NEVER_BEGAN:
            return OrderFate(Fate.VANISHED)
        fate = _FATES.get(found.status or WorkflowExecutionStatus.RUNNING, Fate.OPEN)
        return OrderFate(fate, found.typed_search_attributes.get(STAGE))

    async def placed(self, order: str) -> OrderInput | None:
        """What the latest run of `order` was started with, or `None` if nobody can read that any more."""
        try:
            with self._asking(order):
                return await placed_order(self._client, order)
        except UnknownOrder:
            return None

    async def announced(self, announcement: str) -> AnnounceRequest | None:
        """What the latest run of an announcement was started with, or `None` if nobody can read that any more."""
        try:
            with self._asking(announcement):
                return await placed_announcement(self._client, announcement)
        except UnknownOrder:
            return None

    async def resolved(self, order: str) -> frozenset[str]:
        """The keys of the effects that people sent a resolution about while it was open, whatever came of it."""
        try:
            with self._asking(order):
                return await resolved_effects(self._client, order)
        except UnknownOrder:
            return frozenset()

    async def view(self, order: str) -> OrderView:
        """What an open order says of itself. Raises `NoAnswer` and `UnknownOrder` as `client.view` does."""
        with self._asking(order):
            return await view(self._client, order)

    @contextmanager
    def _asking(self, order: str) -> Iterator[None]:
        try:
            with about(self._client, order):
                yield
        except RPCError as error:
            answer = f"Temporal at {address_of(self._client)} answered {error.status.name}: {error.message[:200]}"
            raise ServerUnreachable(answer) from None
