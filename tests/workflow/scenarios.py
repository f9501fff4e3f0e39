"""The fault matrix: step x fault x moment of cancellation, and a small oracle that says how each order must end."""

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from orderflow.domain.orders import FINAL, Reason, Stage, StepState
from tests.support.gates import Gate
from tests.support.shop import Ending, Order, Shop, order_event, order_of

OPERATIONS: Final = MappingProxyType(
    {"reserve_inventory": "reserve", "risk_check": "check", "charge": "charge", "notify": "notify"}
)
"""The provider's verb of each step that acts."""

BEFORE_APPROVAL: Final = ("reserve_inventory", "risk_check")

FOR_EVER: Final = 100_000


class Effect(StrEnum):
    """What a fault means for the step that it strikes."""

    HARMLESS = "harmless"
    DECLINED = "declined"
    EXHAUSTED = "exhausted"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Kind:
    """A kind of fault: the faults to order (`lookup` strikes lookups), and what they mean."""

    name: str
    effect: Effect
    fault: dict[str, Any]
    lookup: dict[str, Any] | None = None

    def order(self, shop: Shop, operation: str, order: str) -> None:
        """Let the providers fail so for one order."""
        shop.fault(operation=operation, order=order, **self.fault)
        if self.lookup is not None:
            shop.fault(operation="lookup", order=order, **self.lookup)


def _lost(**more: Any) -> dict[str, Any]:
    return {"kind": "lost_reply", **more}


QUICK_KINDS: Final = (
    Kind("decline", Effect.DECLINED, {"kind": "decline"}),
    Kind("unavailable_once", Effect.HARMLESS, {"kind": "unavailable"}),
    Kind("unavailable_for_ever", Effect.EXHAUSTED, {"kind": "unavailable", "times": FOR_EVER}),
    Kind("busy_once", Effect.HARMLESS, {"kind": "busy"}),
    Kind("busy_for_ever", Effect.EXHAUSTED, {"kind": "busy", "times": FOR_EVER, "milliseconds": 2000}),
    Kind("lost_reply_once", Effect.HARMLESS, _lost()),
    Kind("lost_reply_then_found", Effect.HARMLESS, _lost(times=FOR_EVER)),
    Kind("lost_reply_for_ever", Effect.UNKNOWN, _lost(times=FOR_EVER), _lost(times=FOR_EVER)),
    Kind("lost_request_once", Effect.HARMLESS, _lost(commit=False)),
    Kind("lost_request_for_ever", Effect.EXHAUSTED, _lost(commit=False, times=FOR_EVER)),
    Kind("pending_that_settles", Effect.HARMLESS, {"kind": "pending", "times": 2}),
    Kind("delay", Effect.HARMLESS, {"kind": "delay", "milliseconds": 100}),
)
SLOW_KINDS: Final = (
    Kind("pending_for_ever", Effect.UNKNOWN, {"kind": "pending", "times": FOR_EVER}),
    Kind("hang_once", Effect.HARMLESS, {"kind": "hang"}),
    Kind("request_hangs_once", Effect.HARMLESS, {"kind": "hang", "commit": False}),
)
"""Kinds that take real time: while an activity runs, the time-skipping server does not skip."""


class Moment(StrEnum):
    """When somebody cancels the order."""

    NEVER = "never"
    DURING_THE_STEP = "during_the_step"
    AWAITING_APPROVAL = "awaiting_approval"
    COMPENSATING = "compensating"


@dataclass(frozen=True)
class Scenario:
    """One cell of the matrix."""

    step: str
    kind: Kind
    moment: Moment

    def __str__(self) -> str:
        return f"{self.step}-{self.kind.name}-{self.moment}"

    @property
    def effect(self) -> Effect:
        """What the fault means for this step: a check changes nothing outside, so nothing of it can be in doubt."""
        if self.step != "risk_check":
            return self.kind.effect
        if self.kind.effect is Effect.UNKNOWN or self.kind.name in ("pending_that_settles", "lost_reply_then_found"):
            return Effect.EXHAUSTED  # nothing can be looked up
        return self.kind.effect

    @property
    def ends(self) -> tuple[frozenset[Stage], Reason | None]:
        """The stages in one of which the order must end, and the reason."""
        if self.moment in (Moment.DURING_THE_STEP, Moment.AWAITING_APPROVAL):
            return self._stages(), Reason.CANCELLED
        if self.effect is Effect.HARMLESS:
            return frozenset({Stage.COMPLETED}), None
        reasons = {
            Effect.DECLINED: Reason.RISK_DECLINED if self.step == "risk_check" else Reason.DECLINED,
            Effect.EXHAUSTED: Reason.RETRIES_EXHAUSTED,
            Effect.UNKNOWN: Reason.OUTCOME_UNKNOWN,
        }
        return self._stages(), reasons[self.effect]

    def _stages(self) -> frozenset[Stage]:
        """Something is undone unless the reservation is the step that failed and is proven not to stand."""
        if self.step != "reserve_inventory":
            return frozenset({Stage.FAILED_COMPENSATED})
        if self.moment is Moment.DURING_THE_STEP:  # the cancellation may be heard before the fault or after it
            declined = {Stage.FAILED} if self.effect is Effect.DECLINED else set()
            return frozenset({Stage.FAILED_COMPENSATED, *declined})
        proven_absent = self.effect in (Effect.DECLINED, Effect.EXHAUSTED)
        return frozenset({Stage.FAILED if proven_absent else Stage.FAILED_COMPENSATED})

    def is_possible(self) -> bool:
        """Whether an order comes to this moment at all, and the fault has struck by then."""
        stages, _ = Scenario(self.step, self.kind, Moment.NEVER).ends
        match self.moment:
            case Moment.AWAITING_APPROVAL:
                return self.step in BEFORE_APPROVAL and self.effect is Effect.HARMLESS
            case Moment.COMPENSATING:
                return stages == {Stage.FAILED_COMPENSATED}
            case _:
                return True


def scenarios(*kinds: Kind) -> list[Scenario]:
    """Every cell of the matrix that can happen."""
    cells = (Scenario(step, kind, moment) for step in OPERATIONS for kind in kinds for moment in Moment)
    return [cell for cell in cells if cell.is_possible()]


async def play(shop: Shop, scenario: Scenario) -> tuple[Order, Ending]:
    """Run one order through its scenario to the end."""
    event = order_event()
    gates = _gates(shop, scenario, order_of(event))
    scenario.kind.order(shop, OPERATIONS[scenario.step], order_of(event))
    order = await shop.start(event)
    if scenario.step not in BEFORE_APPROVAL or scenario.effect is Effect.HARMLESS:
        await _pass_the_approval(order, scenario, gates)
    for gate in gates:
        await _cancel_at(order, gate)
    return order, await order.ending()


def _gates(shop: Shop, scenario: Scenario, order: str) -> list[Gate]:
    match scenario.moment:
        case Moment.DURING_THE_STEP:
            return [shop.hold(OPERATIONS[scenario.step], order)]
        case Moment.COMPENSATING:
            return [shop.hold("release", order)]
        case _:
            return []


async def _pass_the_approval(order: Order, scenario: Scenario, gates: list[Gate]) -> None:
    if scenario.step in BEFORE_APPROVAL:
        for gate in gates:
            await _cancel_at(order, gate)
            return
    await order.until(Stage.AWAITING_APPROVAL)
    if scenario.moment is Moment.AWAITING_APPROVAL:
        await order.cancel()
    else:
        await order.approve()


async def _cancel_at(order: Order, gate: Gate) -> None:
    """Cancel while a call waits at the gate, see that the order knows, and let the call go on."""
    if gate.opened.is_set():
        return
    await order.when(lambda _: gate.reached.is_set())
    await order.when(_nothing_else_runs(gate))
    await order.cancel()
    await order.when(lambda view: view.cancel_requested or view.stage in FINAL)
    gate.open()


def _nothing_else_runs(gate: Gate) -> Any:
    """Only the step at the gate still runs: its siblings are done, so that what must be undone is certain."""
    held = 0 if gate.operation == "release" else 1
    return lambda view: sum(record.state is StepState.RUNNING for record in view.steps) == held
