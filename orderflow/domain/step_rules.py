"""What is wrong with one step, beyond its shape: names, times, and policies that contradict each other."""

import difflib
from collections.abc import Collection, Iterator
from typing import Protocol

from orderflow.domain.durations import Duration
from orderflow.domain.errors import Problem
from orderflow.domain.problems import json_path
from orderflow.domain.steps import (
    DEFAULT_ROUTE,
    INLINE_ACTIVITIES,
    NAME,
    ApprovalPolicy,
    Compensation,
    OnFailure,
    RetryPolicy,
    Route,
    Step,
)


class StepCatalogue(Protocol):
    """The names that a definition may use: what `orderflow.catalogue.Catalogue` offers."""

    @property
    def activities(self) -> Collection[str]:
        """Forward activities."""
        ...

    @property
    def checks(self) -> Collection[str]:
        """Those of them that only answer with a decision and change nothing outside."""
        ...

    @property
    def compensations(self) -> Collection[str]:
        """Activities that undo one of the others."""
        ...

    @property
    def error_types(self) -> Collection[str]:
        """The types that a retry policy may name."""
        ...

    def compensation_of(self, activity: str) -> str | None:
        """The undo of a forward activity, where it has one."""
        ...


def step_problems(step: Step, path: str, catalogue: StepCatalogue) -> Iterator[Problem]:
    """Every rule that `step`, which stands at the JSON path `path`, breaks."""
    if step.activity in INLINE_ACTIVITIES:
        yield from _inline_problems(step, path)
        return
    if step.activity not in catalogue.activities:
        yield Problem(f"{path}.activity", _unknown("activity", step.activity, catalogue.activities))
    for field in ("retry", "start_to_close", "schedule_to_close"):
        if getattr(step, field) is None:
            yield Problem(f"{path}.{field}", f"is required: '{step.activity}' must end after a finite time")
    yield from _time_problems(step, path, catalogue)
    if step.compensation is not None:
        yield from _compensation_problems(step, step.compensation, f"{path}.compensation", catalogue)
    yield from _approval_problems(step.approval, f"{path}.approval")
    yield from _approval_problems(step.review, f"{path}.review")
    yield from _check_problems(step, path, catalogue)
    yield from _route_problems(step, path)


def _inline_problems(step: Step, path: str) -> Iterator[Problem]:
    for name, field in Step.model_fields.items():
        if not field.is_required() and getattr(step, name) != field.default:
            message = f"is not allowed: '{step.activity}' runs inside the workflow before everything else"
            yield Problem(f"{path}.{name}", message)


def _time_problems(policy: Step | Compensation, path: str, catalogue: StepCatalogue) -> Iterator[Problem]:
    retry, start_to_close, schedule_to_close = policy.retry, policy.start_to_close, policy.schedule_to_close
    if retry is not None:
        yield from _retry_problems(retry, f"{path}.retry", catalogue)
    if start_to_close is None:
        return
    if policy.heartbeat is not None and policy.heartbeat.timedelta >= start_to_close.timedelta:
        yield Problem(f"{path}.heartbeat", f"must be shorter than start_to_close, which is {start_to_close}")
    if retry is not None and schedule_to_close is not None:
        needed = retry.time_needed(start_to_close)
        if schedule_to_close.timedelta < needed:
            message = f"cannot hold {retry.attempts} attempts of {start_to_close} with their pauses: needs at least "
            yield Problem(f"{path}.schedule_to_close", message + Duration.of(needed))


def _retry_problems(retry: RetryPolicy, path: str, catalogue: StepCatalogue) -> Iterator[Problem]:
    if retry.maximum_interval.timedelta < retry.initial_interval.timedelta:
        yield Problem(f"{path}.maximum_interval", f"is shorter than initial_interval, {retry.initial_interval}")
    for position, name in enumerate(retry.non_retryable):
        if name not in catalogue.error_types:
            yield Problem(f"{path}.non_retryable[{position}]", _unknown("error type", name, catalogue.error_types))


def _compensation_problems(
    step: Step, compensation: Compensation, path: str, catalogue: StepCatalogue
) -> Iterator[Problem]:
    yield from _time_problems(compensation, path, catalogue)
    name = compensation.activity
    if name not in catalogue.compensations:
        yield Problem(f"{path}.activity", _unknown("compensation", name, catalogue.compensations))
    elif step.activity in catalogue.activities:
        undo = catalogue.compensation_of(step.activity)
        if undo is None:
            yield Problem(f"{path}.activity", f"'{step.activity}' has nothing to undo, so it takes no compensation")
        elif undo != name:
            yield Problem(f"{path}.activity", f"'{name}' does not undo '{step.activity}'; '{undo}' does")


def _approval_problems(policy: ApprovalPolicy | None, path: str) -> Iterator[Problem]:
    if policy is not None and policy.charge_within.timedelta < policy.expires_in.timedelta:
        message = f"must be at least expires_in, {policy.expires_in}: a decision in time could come too late to act on"
        yield Problem(f"{path}.charge_within", message)


def _check_problems(step: Step, path: str, catalogue: StepCatalogue) -> Iterator[Problem]:
    if step.activity in catalogue.checks:
        if step.routes is None:
            yield Problem(f"{path}.routes", f"is required: '{step.activity}' decides, so say what follows")
        for field in ("approval", "deadline"):
            if getattr(step, field) is not None:
                yield Problem(f"{path}.{field}", "is not allowed on a check; put it on the step that acts")
        if step.on_failure is OnFailure.CONTINUE:
            yield Problem(f"{path}.on_failure", "must be compensate: a check that failed has allowed nothing")
    elif step.routes is not None and step.activity in catalogue.activities:
        yield Problem(f"{path}.routes", f"is not allowed: '{step.activity}' acts, it decides nothing")


def _route_problems(step: Step, path: str) -> Iterator[Problem]:
    if step.routes is None:
        if step.review is not None:
            yield Problem(f"{path}.review", "is never used: no route leads to manual_review")
        return
    for decision in step.routes:
        if not NAME.fullmatch(decision):
            message = "is not what a check could decide; a decision is a lower-case name"
            yield Problem(path + json_path(("routes", decision))[1:], message)
    default = step.routes.get(DEFAULT_ROUTE)
    if default is None:
        message = "is required: a decision without a route of its own needs a safe one"
        yield Problem(f"{path}.routes.{DEFAULT_ROUTE}", message)
    if default is Route.PROCEED:
        message = "must be decline or manual_review: what is not understood is no yes"
        yield Problem(f"{path}.routes.{DEFAULT_ROUTE}", message)
    reviewed = Route.MANUAL_REVIEW in step.routes.values()
    if reviewed and step.review is None:
        yield Problem(f"{path}.review", "is required: a route leads to manual_review, so say who decides there")
    if step.review is not None and default is Route.DECLINE and not reviewed:
        yield Problem(f"{path}.review", "is never used: no route leads to manual_review")


def _unknown(what: str, name: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean '{close[0]}'?" if close else "known are " + ", ".join(sorted(known))
    return f"there is no {what} '{name}'; {hint}"
