"""The fault matrix: step x fault x moment of cancellation, and a small oracle that says how each order must end."""

from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from orderflow.domain.definition import Definition
from orderflow.domain.orders import Reason, Stage, StepState
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


class Struck(StrEnum):
    """How a test sees that the fault has struck and the step is not over."""

    IN_THE_PAUSE = "in_the_pause"
    BEFORE_THE_REPLY = "before_the_reply"
    IN_THE_LOG = "in_the_log"


@dataclass(frozen=True)
class Kind:
    """A kind of fault: the faults to order (`lookup` strikes lookups), what they mean, and how to see them strike.

    What is retried is cancelled in the pause between two attempts, because the time-skipping server forgets an activity
    that fails for a retry after its cancellation was asked for (the real one reports the failure).
    """

    name: str
    effect: Effect
    struck: Struck
    fault: dict[str, Any]
    lookup: dict[str, Any] | None = None

    def order(self, shop: Shop, operation: str, order: str) -> None:
        """Let the providers fail so for one order."""
        shop.fault(operation=operation, order=order, **self.fault)
        if self.lookup is not None:
            shop.fault(operation="lookup", order=order, **self.lookup)


def _retried(name: str, effect: Effect, kind: str, *, lookup: dict[str, Any] | None = None, **fault: Any) -> Kind:
    return Kind(name, effect, Struck.IN_THE_PAUSE, {"kind": kind, **fault}, lookup)


_LOST: Final = {"kind": "lost_reply", "times": FOR_EVER}

QUICK_KINDS: Final = (
    Kind("decline", Effect.DECLINED, Struck.BEFORE_THE_REPLY, {"kind": "decline"}),
    Kind("pending_that_settles", Effect.HARMLESS, Struck.BEFORE_THE_REPLY, {"kind": "pending", "times": 2}),
    Kind("delay", Effect.HARMLESS, Struck.BEFORE_THE_REPLY, {"kind": "delay", "milliseconds": 100}),
    _retried("unavailable_once", Effect.HARMLESS, "unavailable"),
    _retried("unavailable_for_ever", Effect.EXHAUSTED, "unavailable", times=FOR_EVER),
    _retried("busy_once", Effect.HARMLESS, "busy"),
    _retried("busy_for_ever", Effect.EXHAUSTED, "busy", times=FOR_EVER),
    _retried("lost_reply_once", Effect.HARMLESS, "lost_reply"),
    _retried("lost_reply_then_found", Effect.HARMLESS, "lost_reply", times=FOR_EVER),
    _retried("lost_reply_for_ever", Effect.UNKNOWN, "lost_reply", times=FOR_EVER, lookup=_LOST),
    _retried("lost_request_once", Effect.HARMLESS, "lost_reply", commit=False),
    _retried("lost_request_for_ever", Effect.EXHAUSTED, "lost_reply", times=FOR_EVER, commit=False),
)
SLOW_KINDS: Final = (
    Kind("pending_for_ever", Effect.UNKNOWN, Struck.IN_THE_LOG, {"kind": "pending", "times": FOR_EVER}),
    Kind("hang_once", Effect.HARMLESS, Struck.IN_THE_LOG, {"kind": "hang"}),
    Kind("request_hangs_once", Effect.HARMLESS, Struck.IN_THE_LOG, {"kind": "hang", "commit": False}),
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
    def struck(self) -> Struck:
        """How to see the fault strike; an answer of a check that is no decision is asked for again."""
        asked_again = self.step == "risk_check" and self.kind.fault["kind"] == "pending"
        return Struck.IN_THE_PAUSE if asked_again else self.kind.struck

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


async def play(shop: Shop, scenario: Scenario, definition: Definition | None = None) -> tuple[Order, Ending]:
    """Run one order through its scenario to the end."""
    event = order_event()
    gate = _gate(shop, scenario, order_of(event))
    scenario.kind.order(shop, OPERATIONS[scenario.step], order_of(event))
    order = await shop.start(event, definition)
    if scenario.step in BEFORE_APPROVAL and scenario.moment is Moment.DURING_THE_STEP:
        await _cancel_during(order, scenario, gate)
    elif scenario.step not in BEFORE_APPROVAL or scenario.effect is Effect.HARMLESS:
        await _pass_the_approval(order, scenario, gate)
    if scenario.moment is Moment.COMPENSATING and gate is not None:
        await order.when(lambda _: gate.reached.is_set())
        await _cancel_and_open(order, gate)
    return order, await order.ending()


def _gate(shop: Shop, scenario: Scenario, order: str) -> Gate | None:
    if scenario.moment is Moment.COMPENSATING:
        return shop.hold("release", order)
    if scenario.moment is Moment.DURING_THE_STEP and scenario.struck is Struck.BEFORE_THE_REPLY:
        return shop.hold(OPERATIONS[scenario.step], order, after=True)
    return None


async def _pass_the_approval(order: Order, scenario: Scenario, gate: Gate | None) -> None:
    await order.until(Stage.AWAITING_APPROVAL)
    if scenario.moment is Moment.AWAITING_APPROVAL:
        await order.cancel()
        return
    await order.approve()
    if scenario.moment is Moment.DURING_THE_STEP:
        await _cancel_during(order, scenario, gate)


async def _cancel_during(order: Order, scenario: Scenario, gate: Gate | None) -> None:
    """Cancel when the fault has struck and nothing but its step runs, so that what must be undone is certain."""
    await order.when(
        lambda view: [left.step for left in view.steps if left.state is StepState.RUNNING] == [scenario.step]
    )
    if gate is not None:
        await order.when(lambda _: gate.reached.is_set())
        await _cancel_and_open(order, gate)
        return
    pauses = scenario.struck is Struck.IN_THE_PAUSE
    await order.seen(partial(_is_pausing, scenario.step) if pauses else _has_struck)
    await order.cancel()


async def _cancel_and_open(order: Order, gate: Gate) -> None:
    await order.cancel()
    await order.when(lambda view: view.cancel_requested)
    gate.open()


async def _is_pausing(step: str, order: Order) -> bool:
    """An attempt has failed, and the definition has the next one wait for longer than a test takes."""
    pending = (await order.handle.describe()).raw_description.pending_activities
    return any(each.activity_id == step and each.attempt > 1 for each in pending)


async def _has_struck(order: Order) -> bool:
    return any("fault" in line and line["kind"] == "act" for line in order.lines())
