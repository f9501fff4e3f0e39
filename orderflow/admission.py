"""From the raw inputs of a start to an order's state, or to the reason why there is no order.

Pure, and total over any number and kind of inputs: a start that cannot be read must fail at once (T55). A typed
parameter of `run` would leave it Running for ever, because what does not decode fails the workflow task instead.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from orderflow.contracts import OrderInput, OrderState
from orderflow.domain.errors import InvalidInput, Problem
from orderflow.domain.events import workflow_id
from orderflow.domain.intents import canonical_json
from orderflow.domain.orders import Reason, StepRecord
from orderflow.domain.problems import problems_in


@dataclass(frozen=True)
class Rejected:
    """A start that makes no order: the reason code and what is wrong, each as `JSON path: sentence`."""

    reason: Reason
    problems: tuple[str, ...]


def read_start(inputs: Sequence[object], own_workflow_id: str, *, continued: bool) -> OrderState | Rejected:
    """The state that this run starts with: a new order's, or the one carried over when it is `continued`."""
    if len(inputs) != 1:
        return Rejected(Reason.INVALID_INPUT, (f"an order starts with exactly one input, not {len(inputs)}",))
    try:
        order = OrderInput.model_validate_json(canonical_json(inputs[0]))  # type: ignore[arg-type]  # it checks
    except ValidationError as error:
        return _unreadable(problems_in(error))
    except InvalidInput as error:
        return _unreadable(error.problems)
    return _state(order, own_workflow_id, continued=continued)


def _unreadable(problems: tuple[Problem, ...]) -> Rejected:
    return Rejected(Reason.INVALID_INPUT, tuple(str(problem) for problem in problems[:20]))


def _state(order: OrderInput, own_workflow_id: str, *, continued: bool) -> OrderState | Rejected:
    expected = workflow_id(order.event.source, order.event.id)
    if expected != own_workflow_id:
        return Rejected(Reason.IDENTITY_MISMATCH, (f"this event is the order {expected}; start it under that id",))
    if order.carried is None:
        steps = {step.id: StepRecord(step=step.id, activity=step.activity) for step in order.definition.steps}
        return OrderState(event=order.event, definition=order.definition, steps=steps)
    if not continued:
        return Rejected(Reason.INVALID_INPUT, ("$.carried: only an order's own next run carries a state",))
    carried = order.carried
    carried.steps = {step.id: carried.steps[step.id] for step in order.definition.steps}  # JSON objects have no order
    return carried
