"""Reconciliation without a Temporal server: what became of each order is made up, ledger and providers are real."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from temporalio.testing import ActivityEnvironment

from orderflow.acts import forward_act, undo_act
from orderflow.catalogue import Catalogue, StepKind, load_catalogue
from orderflow.client.fates import OrderFate
from orderflow.contracts import OrderInput, OrderView, ReconcileReport, ReconcileRequest, UndoRequest
from orderflow.domain.durations import Duration
from orderflow.domain.effects import Act, Done, EffectState, Provider, Refused
from orderflow.domain.orders import FINAL, Stage
from orderflow.domain.reconciliation import Fate
from orderflow.ledger import Claim
from orderflow.ledger.review import Ledger
from orderflow.providers.simulated import PROVIDERS, Fault, SimulatedWorld
from orderflow.providers.simulation.journal import Line
from orderflow.reconcile.run import ReconcileActivities
from tests.support.ledger import LONG, NO_TIME
from tests.support.shop import order_event, order_of, packaged

STEPS: Final = ("reserve_inventory", "charge", "notify")


class Truth(StrEnum):
    """What a provider really did under a key."""

    NEVER = "never"
    DONE = "done"
    DECLINED = "declined"
    UNDONE = "undone"


class Known(StrEnum):
    """What the ledger knows of it."""

    NOTHING = "nothing"
    PENDING = "pending"
    HELD = "held"
    COMMITTED = "committed"
    DECLINED = "declined"
    VOIDED = "voided"
    REVERSING = "reversing"
    REVERSED = "reversed"


@dataclass
class MadeUpOrders:
    """Orders of which Temporal knows what a test says."""

    fates: dict[str, OrderFate] = field(default_factory=dict)
    inputs: dict[str, OrderInput] = field(default_factory=dict)
    views: dict[str, OrderView] = field(default_factory=dict)
    resolutions: dict[str, list[str]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    async def fate(self, order: str) -> OrderFate:
        self.asked.append(order)
        return self.fates.get(order, OrderFate(Fate.VANISHED))

    async def placed(self, order: str) -> OrderInput | None:
        return self.inputs.get(order)

    async def resolved(self, order: str) -> frozenset[str]:
        return frozenset(self.resolutions.get(order, ()))

    async def view(self, order: str) -> OrderView:
        return self.views[order]


class Office:
    """A ledger, the simulated providers, and orders of any fate."""

    def __init__(self, ledger: Ledger, world: SimulatedWorld) -> None:
        self.ledger = ledger
        self.world = world
        self.orders = MadeUpOrders()
        self._events: dict[str, OrderInput] = {}
        self.catalogue: Catalogue = load_catalogue([])
        self.definition = packaged(self.catalogue)
        self.providers: Mapping[str, Provider] = {name: world.provider(name) for name in PROVIDERS}

    def order(self, fate: Fate, stage: Stage | None = None) -> str:
        """A new order of that fate; Temporal knows what it was placed with unless it vanished."""
        event = order_event()
        order = order_of(event)
        if fate is not Fate.VANISHED:
            self.orders.fates[order] = OrderFate(fate, stage)
            self.orders.inputs[order] = OrderInput(event=event, definition=self.definition)
        self._events[order] = OrderInput(event=event, definition=self.definition)
        return order

    def become(self, order: str, fate: Fate, stage: Stage | None = None) -> None:
        """Let Temporal say something else of an order from now on."""
        self.orders.fates[order] = OrderFate(fate, stage)
        self.orders.inputs[order] = self._events[order]

    def kind(self, step: str) -> StepKind:
        return self.catalogue.kind_for(self.definition.step(step).activity)

    def act(self, order: str, step: str) -> Act:
        """What the order means to do in a step."""
        event = self._events[order].event
        activity = self.definition.step(step).activity
        return forward_act(self.kind(step), UndoRequest(workflow_id=order, step=step, activity=activity, event=event))

    def undo(self, order: str, step: str) -> Act:
        return undo_act(self.kind(step), self.act(order, step))

    def fault(self, kind: str, operation: str, order: str | None = None, **more: object) -> None:
        self.world.add_fault(Fault.model_validate({"kind": kind, "operation": operation, "order": order, **more}))

    async def make_true(self, order: str, step: str, truth: Truth) -> None:
        """Let the provider have done that."""
        act = self.act(order, step)
        provider = self.providers[act.provider]
        if truth is Truth.DECLINED:
            self.fault("decline", act.operation, order)
        if truth is not Truth.NEVER:
            await provider.perform(act)
        if truth is Truth.UNDONE:
            await provider.undo(self.undo(order, step), act)

    async def make_known(self, order: str, step: str, known: Known) -> None:
        """Let the ledger know that, whatever is true."""
        if known is Known.NOTHING:
            return
        act = self.act(order, step)
        if known is Known.VOIDED:
            await self.ledger.void(act)
            return
        claim = await self.ledger.claim(act, holder="an order", lease=LONG if known is Known.HELD else NO_TIME)
        assert isinstance(claim, Claim)
        if known is Known.DECLINED:
            await self.ledger.settle(claim, Refused(code="card_declined"))
        if known in (Known.COMMITTED, Known.REVERSING, Known.REVERSED):
            await self.ledger.settle(claim, Done(reference="r", amount_minor=act.amount_minor))
        if known in (Known.REVERSING, Known.REVERSED):
            undo = self.undo(order, step)
            undoing = await self.ledger.claim_undo(undo, act, holder="an order", lease=NO_TIME)
            assert isinstance(undoing, Claim)
            if known is Known.REVERSED:
                await self.ledger.settle_undo(undoing, act, Done(reference="u", amount_minor=act.amount_minor))

    async def effect(self, order: str, step: str, truth: Truth, known: Known) -> None:
        await self.make_true(order, step, truth)
        await self.make_known(order, step, known)

    async def state(self, order: str, step: str) -> EffectState | None:
        record = await self.ledger.get(self.act(order, step).key)
        return record.state if record else None

    def stands(self, order: str, step: str) -> bool:
        """Whether it stands at the provider now."""
        return len(self.acts(order, step, undone=False)) > len(self.acts(order, step, undone=True))

    def acts(self, order: str, step: str, *, undone: bool) -> list[Line]:
        wanted = {"kind": "act", "workflow_id": order, "step": step, "outcome": "done"}
        return [line for line in self.world.log() if wanted.items() <= line.items() and ("of" in line) is undone]

    async def in_review(self, order: str) -> dict[str, str]:
        """The error of each open item, by step."""
        items = await self.ledger.reviews_of(order)
        return {item.step: item.error for item in items if item.closed_at is None}

    async def reconcile(
        self,
        *,
        dry_run: bool = False,
        within: timedelta = timedelta(seconds=5),
        later: timedelta = timedelta(0),
        **parts: object,
    ) -> ReconcileReport:
        """One run, as its activity, so much `later`."""
        given: dict[str, object] = {
            "ledger": self.ledger,
            "providers": self.providers,
            "catalogue": self.catalogue,
            "orders": self.orders,
            **parts,
        }
        activities = ReconcileActivities(worker="test", within=within, **given)  # type: ignore[arg-type]  # from a dict
        request = ReconcileRequest(dry_run=dry_run, since=Duration("P1D"))
        environment = ActivityEnvironment()
        started = datetime.now(UTC) + later
        environment.info = replace(environment.info, started_time=started)
        report: ReconcileReport = await environment.run(activities.reconcile, request)
        return report


def told(report: ReconcileReport, order: str) -> list[tuple[str, str | None]]:
    """What a report says about one order: each finding with its step."""
    found = [each for each in report.findings if each.order == order]
    return [(each.what, each.key.split(".")[-2] if each.key else None) for each in found]


@dataclass(frozen=True)
class Situation:
    """One generated order: its fate, and of each step what is true and what is known."""

    fate: Fate
    stage: Stage | None
    steps: Mapping[str, tuple[Truth, Known]]


def situations(number: int, seed: int) -> list[Situation]:
    """A mixture in which every fate meets every pair of truth and knowledge."""
    chosen = random.Random(seed)
    pairs = [(truth, known) for truth in Truth for known in Known]
    return [
        Situation(
            fate := chosen.choice(list(Fate)),
            _stage(fate, chosen.choice),
            {step: _pair(step, chosen.choice(pairs)) for step in STEPS if chosen.random() < 0.8},
        )
        for _ in range(number)
    ]


def _stage(fate: Fate, choose: Callable[[list[Stage]], Stage]) -> Stage | None:
    match fate:
        case Fate.FAILED:
            return choose(sorted(FINAL - {Stage.COMPLETED}))
        case Fate.COMPLETED:
            return Stage.COMPLETED
        case _:
            return None


def _pair(step: str, pair: tuple[Truth, Known]) -> tuple[Truth, Known]:
    """Nothing that cannot be taken back ever was."""
    truth, known = pair
    if step != "notify":
        return pair
    backed = known in (Known.REVERSING, Known.REVERSED)
    return (Truth.DONE if truth is Truth.UNDONE else truth, Known.COMMITTED if backed else known)
