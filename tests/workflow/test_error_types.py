"""From what an attempt came to, to what an order says: the exact type, the right number of attempts, the root cause."""

import asyncio
import contextlib
import inspect
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from temporalio.testing import WorkflowEnvironment

from orderflow import activities
from orderflow.contracts import OrderView
from orderflow.definitions import packaged_definitions
from orderflow.domain import errors
from orderflow.domain.effects import Done, Performed, Refused
from orderflow.domain.errors import Declined, ErrorType, OrderflowError
from orderflow.domain.orders import Reason, Stage, StepRecord
from tests.support.bank import Bank, Told
from tests.support.shop import Shop, open_for_business, quick

APPROVAL: Final[Performed] = Done(reference="risk-1", result={"decision": "approve"})


@pytest.fixture
def risk() -> Bank:
    """A risk check that answers, or raises, as it is told."""
    return Bank()


@pytest.fixture
async def shop(env: WorkflowEnvironment, tmp_path: Path, risk: Bank) -> AsyncIterator[Shop]:
    """A shop with three attempts a second apart, that asks `risk`."""
    async with open_for_business(env.client, tmp_path, change=quick, providers={"risk": risk}) as opened:
        yield opened


def checked(view: OrderView) -> StepRecord:
    """What became of the risk check."""
    return next(record for record in view.steps if record.step == "risk_check")


class CardStolen(Declined):
    """A decline of a kind of its own, as a team's provider may have one."""


def kinds(*, retryable: bool) -> list[type[OrderflowError]]:
    """The errors that a retry can help, or cannot.

    Without those that are our own trouble: they are waited out (`test_routes.py`, `test_waiting_for_ourselves.py`).
    """
    found = [kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, OrderflowError)]
    known: list[type[OrderflowError]] = [*found, CardStolen]
    left_out = (ErrorType.UNEXPECTED, ErrorType.UNKNOWN_ACTIVITY, ErrorType.LEDGER_UNAVAILABLE)
    return [kind for kind in known if kind.retryable is retryable and kind.type not in left_out]


def raised(kind: type[OrderflowError]) -> OrderflowError:
    """An error of this kind, whatever it has to be told."""
    asked = [each for each in inspect.signature(kind).parameters.values() if each.default is each.empty]
    by_name = [each.name for each in asked if each.kind is each.KEYWORD_ONLY]
    make: Any = kind
    error: OrderflowError = make(*["no"] * (len(asked) - len(by_name)), **dict.fromkeys(by_name, "no"))
    return error


REASONS: Final = {
    ErrorType.DECLINED: Reason.DECLINED,
    ErrorType.INTENT_CONFLICT: Reason.INTENT_CONFLICT,
    ErrorType.EFFECT_REVERSED: Reason.EFFECT_REVERSED,
    ErrorType.APPROVAL_REFUSED: Reason.APPROVAL_REFUSED,
    ErrorType.AMOUNT_MISMATCH: Reason.AMOUNT_MISMATCH,
    ErrorType.DEFINITION_MISMATCH: Reason.DEFINITION_MISMATCH,
}
"""Every other error that no retry can help is told as `step_failed`."""


@pytest.mark.parametrize("kind", kinds(retryable=False), ids=lambda kind: kind.__name__)
async def test_what_no_retry_can_help_is_tried_once(shop: Shop, risk: Bank, kind: type[OrderflowError]) -> None:
    """T18, T20: each permanent error and a subclass of it, under the type of the enum; no check is passed over."""
    risk.told.append(Told(raised(kind)))
    order = await shop.start()
    ending = await order.ending()
    reason = REASONS.get(kind.type, Reason.STEP_FAILED)
    assert (ending.view.stage, ending.view.reason) == (Stage.FAILED_COMPENSATED, reason)
    assert (checked(ending.view).error, len(risk.calls)) == (kind.type, 1)
    [failed] = (await order.books()).events("ActivityTaskFailed")
    failure = failed.activity_task_failed_event_attributes.failure.application_failure_info
    assert (failure.type, failure.non_retryable) == (kind.type, True)


@pytest.mark.parametrize("kind", kinds(retryable=True), ids=lambda kind: kind.__name__)
async def test_what_a_retry_can_help_is_tried_as_often_as_the_definition_says(
    shop: Shop, risk: Bank, kind: type[OrderflowError]
) -> None:
    """T18: three times, and the last error is told."""
    risk.told.extend([Told(raised(kind))] * 3)
    ending = await (await shop.start()).ending()
    assert (ending.view.reason, checked(ending.view).error) == (Reason.RETRIES_EXHAUSTED, kind.type)
    assert len(risk.calls) == 3


async def test_a_decline_in_two_wrappers_is_a_decline(shop: Shop, risk: Bank) -> None:
    """T19: one attempt, with the type and the code of the decline."""
    wrapped = RuntimeError("the client failed")
    wrapped.__cause__ = ValueError("no such answer")
    wrapped.__cause__.__cause__ = Declined("sanctioned")
    risk.told.append(Told(wrapped))
    ending = await (await shop.start()).ending()
    record = checked(ending.view)
    assert (ending.view.reason, record.error, record.detail) == (Reason.DECLINED, "Declined", "sanctioned")
    assert len(risk.calls) == 1


async def test_a_bug_in_a_provider_is_retried_and_its_words_stay_out_of_history(shop: Shop, risk: Bank) -> None:
    """T46: a release may mend it between two attempts; its message may hold anything."""
    risk.told.extend([Told(KeyError("a secret person")), Told(APPROVAL)])
    order = await shop.start()
    await order.until(Stage.AWAITING_APPROVAL)
    assert len(risk.calls) == 2
    assert "secret" not in (await order.handle.fetch_history()).to_json()


WAYS_TO_FAIL: Final[dict[str, tuple[Performed | None, dict[str, Any], tuple[Reason, str, str]]]] = {
    "decline": (Refused(code="sanctioned"), {}, (Reason.DECLINED, "Declined", "sanctioned")),
    "slow provider": (
        None,
        {"start_to_close": "PT1S", "heartbeat": None},
        (Reason.RETRIES_EXHAUSTED, "timeout", "start_to_close"),
    ),
    "lost worker": (
        None,
        {"start_to_close": "PT20S", "heartbeat": "PT1S"},
        (Reason.RETRIES_EXHAUSTED, "timeout", "heartbeat"),
    ),
}
"""What the provider answers, if it does; timeouts of the step; reason, error and detail that people are told."""


@pytest.mark.parametrize("way", WAYS_TO_FAIL)
async def test_each_way_to_fail_is_told_apart(
    shop: Shop, risk: Bank, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """T21: not "Activity task failed", but what was at the root of it."""
    answer, timeouts, told = WAYS_TO_FAIL[way]
    monkeypatch.setattr(activities, "heartbeats", contextlib.nullcontext)  # as if the worker were gone
    never = asyncio.Event()
    risk.told.append(Told(answer or APPROVAL, gate=None if answer else never))
    value = json.loads(packaged_definitions()[0])
    value["steps"][2] |= timeouts
    value["steps"][2]["retry"]["attempts"] = 1
    ending = await (await shop.start(definition=shop.define(value))).ending()
    record = checked(ending.view)
    assert (ending.view.reason, record.error, record.detail) == told
    assert ending.view.detail == f"risk_check: {record.error}: {record.detail}"
    never.set()
