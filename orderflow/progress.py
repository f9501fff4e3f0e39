"""What has become of an order: the one place that changes its state, tells it, and shows it.

Runs in workflow code. Each change of stage is checked against the legal transitions and becomes one upsert of the
search attributes; each change becomes a safe event.
"""

from collections.abc import Awaitable
from typing import TypeVar

from temporalio import workflow
from temporalio.common import SearchAttributeKey, SearchAttributeUpdate

with workflow.unsafe.imports_passed_through():
    from orderflow.contracts import REASON_ATTRIBUTE, STAGE_ATTRIBUTE, Ended, OrderState, OrderView, RefusedMessage
    from orderflow.dispatch import Failure
    from orderflow.domain.announcements import Announcement, AnnounceRequest
    from orderflow.domain.audit import SafeEvent, Told
    from orderflow.domain.definition import Definition
    from orderflow.domain.operations import OperationClaims
    from orderflow.domain.orders import FINAL, Outcome, Stage, StepRecord, StepState, check_transition
    from orderflow.operating import Operators

Found = TypeVar("Found")

STAGE = SearchAttributeKey.for_keyword(STAGE_ATTRIBUTE)
REASON = SearchAttributeKey.for_keyword(REASON_ATTRIBUTE)

KEPT_EVENTS = 200
KEPT_REFUSALS = 50
"""The latest are kept: an order that runs its course tells about 20, and junk must not fill its history (T54)."""


class Progress:
    """One order's state and the changes that it may undergo."""

    def __init__(self, state: OrderState) -> None:
        self.state = state
        self.operators = Operators(state, self._accepted)
        self._looks = 0

    async def look(self, work: Awaitable[Found]) -> Found:
        """Await what a local activity finds; meanwhile the order `is_looking`."""
        self._looks += 1
        try:
            return await work
        finally:
            self._looks -= 1

    @property
    def is_looking(self) -> bool:
        """Whether a local activity is under way."""
        return self._looks > 0

    def _accepted(self, claims: OperationClaims) -> None:
        self.tell(Told.OPERATION_ACCEPTED, f"{claims.operation} {claims.effect}", claims.operator)

    def change_stage(self, stage: Stage) -> None:
        """Enter `stage`; staying is no change. Raises `ValueError` on an illegal transition, which is a bug."""
        if stage is self.state.stage:
            return
        check_transition(self.state.stage, stage)
        self.state.stage = stage
        self.tell(Told.STAGE_CHANGED, stage, self.state.reason)
        upsert_stage(stage, self.state.reason)

    def mark(self, step_id: str, **changes: object) -> None:
        """Change what is known of a step. A new state is a transition: it counts in `version` and is told."""
        before = self.state.steps[step_id]
        after = before.model_copy(update=changes)
        self.state.steps[step_id] = after
        if after.state is not before.state:
            self.state.version += 1
            self.tell(Told.STEP_CHANGED, step_id, f"{after.state}:{after.error}" if after.error else after.state)

    def stop(self, failure: Failure, step_id: str | None = None) -> None:
        """Note why the order does not complete; the first reason stays."""
        if self.state.reason is None:
            self.state.reason = failure.reason
            self.state.detail = ": ".join(part for part in (step_id, failure.error, failure.detail) if part)

    def note(self, sentence: str) -> None:
        """Add a sentence to the outcome: what an order that goes on did not do."""
        self.state.notes.append(sentence)

    def note_cancellation(self) -> None:
        """Remember that somebody asked to cancel; the next decision sees it."""
        self.state.cancel_requested = True
        self.tell(Told.CANCELLATION_RECORDED, self.state.stage)

    def tell(self, told: Told, subject: str, detail: str | None = None) -> None:
        """Add a safe event to the audit trail, at workflow time."""
        event = SafeEvent(at=workflow.now(), told=told, subject=subject, detail=detail)
        self.state.trail = [*self.state.trail[1 - KEPT_EVENTS :], event]
        log(event)

    def refuse(self, refused: RefusedMessage) -> None:
        """Write down a message that was not accepted: the latest are kept, all are counted (T54)."""
        self.state.refusals = [*self.state.refusals[1 - KEPT_REFUSALS :], refused]
        self.state.refused_total += 1
        subject = f"{refused.door} {refused.name}"
        log(SafeEvent(at=refused.at, told=Told.DECISION_REFUSED, subject=subject, detail=refused.reason))

    def record(self, step_id: str) -> StepRecord:
        """What is known of a step."""
        return self.state.steps[step_id]

    def in_state(self, *states: StepState) -> list[str]:
        """The ids of the steps in one of these states, in definition order."""
        return [step_id for step_id, record in self.state.steps.items() if record.state in states]

    def outcome(self) -> Outcome:
        """How the order ended, or stands."""
        state = self.state
        return Outcome(
            order=workflow.info().workflow_id,
            stage=state.stage,
            reason=state.reason,
            detail=state.detail,
            steps=tuple(state.steps.values()),
            standing=tuple(state.standing),
            notes=tuple(state.notes),
        )

    def announcement(self, ended: Ended) -> AnnounceRequest | None:
        """What to tell of the end, and whom; `None` if nobody wants to hear of it."""
        state = self.state
        if not ended.subscriptions or ended.at is None:
            return None
        announcement = Announcement(
            order=workflow.info().workflow_id,
            event_source=state.event.source,
            event_id=state.event.id,
            stage=state.stage,
            reason=state.reason,
            definition=_name_of(state.definition),
            at=ended.at,
            source=ended.source,
        )
        return AnnounceRequest(announcement=announcement, subscriptions=ended.subscriptions)

    def view(self) -> OrderView:
        """Everything that may be told about the order."""
        state = self.state
        return OrderView(
            order=workflow.info().workflow_id,
            run_id=workflow.info().run_id,
            stage=state.stage,
            reason=state.reason,
            detail=state.detail,
            event_source=state.event.source,
            event_id=state.event.id,
            payload_fingerprint=state.payload_fingerprint,
            definition=_name_of(state.definition),
            definition_fingerprint=state.definition_fingerprint,
            state_version=state.version,
            steps=tuple(state.steps.values()),
            request=state.request,
            refusals=tuple(state.refusals),
            refused_total=state.refused_total,
            cancel_requested=state.cancel_requested,
            standing=tuple(state.standing),
            operations=tuple(operation.claims.jti for operation in state.operations),
            trail=tuple(state.trail),
            outcome=self.outcome() if state.stage in FINAL else None,
        )


def _name_of(definition: Definition) -> str:
    return f"{definition.name} {definition.version}"


def log(event: SafeEvent) -> None:
    """Tell a safe event to the worker's log, once: Temporal's logger is silent while a history is replayed."""
    workflow.logger.info(event.told, extra={"order": workflow.info().workflow_id, **event.model_dump(mode="json")})


def upsert_stage(stage: Stage, reason: str | None) -> None:
    """Set the search attributes, in one event of history."""
    updates: list[SearchAttributeUpdate[str]] = [STAGE.value_set(stage)]
    workflow.upsert_search_attributes([*updates, REASON.value_set(reason)] if reason else updates)
