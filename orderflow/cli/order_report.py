"""What `show` tells of an order: what Temporal knows, what the order says itself, and what the ledger remembers."""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from typing import Any, Final

from temporalio.client import Client

from orderflow.backends import open_existing_ledger
from orderflow.client import NoAnswer, OrderStatus, order_status, view
from orderflow.contracts import OrderView
from orderflow.domain.announcements import announcement_id, telling_key, told_by
from orderflow.domain.approvals import ApprovalRequest
from orderflow.domain.effects import STANDING
from orderflow.domain.errors import OrderflowError
from orderflow.domain.orders import FINAL
from orderflow.ledger import AttemptRecord, EffectRecord
from orderflow.settings import Settings

_Remembered = tuple[Sequence[EffectRecord], Sequence[AttemptRecord], Sequence[EffectRecord], str | None]

_ENDED_FROM_OUTSIDE: Final = frozenset({"terminated", "timed_out"})
"""Temporal's statuses of runs that had no say in their end."""


@dataclass(frozen=True)
class OrderReport:
    """All that could be found out. `silence` says why the order itself did not answer, `no_ledger` why the ledger."""

    status: OrderStatus
    view: OrderView | None
    silence: str | None
    effects: Sequence[EffectRecord] = ()
    attempts: Sequence[AttemptRecord] = ()
    announcements: Sequence[EffectRecord] = ()
    no_ledger: str | None = None

    @property
    def stage(self) -> str | None:
        """The order's own word for its stage, else what Temporal lists."""
        return self.view.stage if self.view else self.status.stage

    @property
    def cut_off(self) -> str | None:
        """How Temporal ended the order before it came to an end of its own: nothing was taken back, nothing will be."""
        ended = self.status.status in _ENDED_FROM_OUTSIDE and self.stage not in FINAL
        return self.status.status if ended else None

    @property
    def left_standing(self) -> list[EffectRecord]:
        """The effects that an order which was cut off has left outside."""
        return [effect for effect in self.effects if effect.state in STANDING] if self.cut_off else []

    def as_json(self) -> dict[str, Any]:
        """This report as plain JSON; the signed decisions are left out."""
        seen = self.view.model_dump(mode="json") if self.view else None
        if seen and self.cut_off:
            seen["request"] = None  # nobody can answer it any more
        if seen and seen["request"]:
            seen["request"].pop("accepted")
            seen["request"]["may_not_approve"] = may_not_approve(self.view.request) if self.view else []
        return {
            "order": self.status.order,
            "stage": self.stage,
            "reason": self.view.reason if self.view else self.status.reason,
            "temporal": asdict(self.status),
            "cut_off": self.cut_off,
            "left_standing": [effect.key for effect in self.left_standing],
            "view": seen,
            "no_answer": self.silence,
            "effects": [_plain(effect) for effect in self.effects],
            "attempts": [_plain(attempt) for attempt in self.attempts],
            "announcements": [_plain(effect) for effect in self.announcements],
            "no_ledger": self.no_ledger,
        }


async def order_report(client: Client, settings: Settings, order: str) -> OrderReport:
    """Find out about `order`. Raises `UnknownOrder` when there is none."""
    status = await order_status(client, order)
    seen, silence = None, None
    try:
        seen = await view(client, order)
    except NoAnswer as error:
        silence = error.message
    effects, attempts, announcements, no_ledger = await _remembered(settings, order)
    return OrderReport(status, seen, silence, effects, attempts, announcements, no_ledger)


def may_not_approve(request: ApprovalRequest | None) -> list[str]:
    """Who is known to be refused: whoever approved already, and the requester where the policy says so."""
    if request is None:
        return []
    forbidden = [] if request.requester_may_approve or request.requester is None else [request.requester]
    return [*forbidden, *request.approved_by]


async def _remembered(settings: Settings, order: str) -> _Remembered:
    try:
        async with aclosing(await open_existing_ledger(settings)) as ledger:
            books = [order, *(announcement_id(order, stage) for stage in sorted(FINAL))]
            effects = [await ledger.effects(each) for each in books]
            attempts = [attempt for each in books for attempt in await ledger.attempts(each)]
            forward = [
                each
                for told in effects[1:]
                for each in told
                if each.key == telling_key(each.workflow_id, told_by(each.step))
            ]
            return effects[0], attempts, forward, None
    except OrderflowError as error:
        return (), (), (), error.message


def _plain(record: EffectRecord | AttemptRecord) -> dict[str, Any]:
    """A ledger record with its times as ISO 8601 text; the stored result may hold what is not for everyone's eyes."""
    fields = {name: value for name, value in asdict(record).items() if name not in ("result_json", "age")}
    return {name: value.isoformat() if hasattr(value, "isoformat") else value for name, value in fields.items()}
