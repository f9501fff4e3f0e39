"""Every message that crosses Temporal: one model in, one model out. What has a shape here stands in event history."""

from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field

from orderflow.domain.announcements import Subscription
from orderflow.domain.approvals import ApprovalRequest, Refusal
from orderflow.domain.audit import SafeEvent
from orderflow.domain.definition import Definition
from orderflow.domain.durations import Duration
from orderflow.domain.events import OrderEvent
from orderflow.domain.operations import AcceptedOperation
from orderflow.domain.orders import Outcome, Reason, Stage, Standing, StepRecord

WORKFLOW_TYPE = "OrderWorkflow"
RECONCILE_WORKFLOW_TYPE = "ReconcileWorkflow"
REPAIR_WORKFLOW_TYPE = "RepairWorkflow"
ANNOUNCE_WORKFLOW_TYPE = "AnnounceWorkflow"
TASK_QUEUE = "orderflow"
APPROVE_SIGNAL = "approve"
DECIDE_UPDATE = "decide"
OPERATE_UPDATE = "operate"
VIEW_QUERY = "view"
STAGE_ATTRIBUTE = "OrderStage"
REASON_ATTRIBUTE = "OrderReason"

ADMIT_ORDER = "admit_order"
VERIFY_DECISION = "verify_decision"
SETTLE_EFFECT = "settle_effect"
FIND_STANDING = "find_standing"
RECONCILE = "reconcile"
VERIFY_OPERATION = "verify_operation"
BOOK_REVIEW = "book_review"
END_ORDER = "end_order"
ANNOUNCE = "announce"
OPERATE_ON_EFFECT = "operate_on_effect"
OWN_ACTIVITIES = frozenset(
    {
        ADMIT_ORDER,
        ANNOUNCE,
        BOOK_REVIEW,
        END_ORDER,
        FIND_STANDING,
        OPERATE_ON_EFFECT,
        RECONCILE,
        SETTLE_EFFECT,
        VERIFY_DECISION,
        VERIFY_OPERATION,
    }
)
"""What every worker does besides the kinds of step."""


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class AdmissionRequest(_Message):
    """To `admit_order`: the event and the definition as they were sent."""

    event: OrderEvent
    definition: Definition


class Admission(_Message):
    """From `admit_order`: what must never be computed twice with two answers, recorded once.

    `published` is whether this worker publishes a definition with that fingerprint; `problems` are the order's broken
    rules as `JSON path: sentence`.
    """

    definition_fingerprint: str
    payload_fingerprint: str
    published: bool
    problems: tuple[str, ...] = ()


class StepRequest(_Message):
    """To an activity that does a step: whose it is, for which event, and what its first claim must satisfy.

    `approval` is the request that the workflow saw answered, with the signed decisions; the activity verifies all of it
    again. `deadline_at` is aware UTC: a first claim after it is refused.
    """

    workflow_id: str
    step: str
    activity: str
    event: OrderEvent
    approval: ApprovalRequest | None = None
    deadline_at: datetime | None = None


class StepResult(_Message):
    """From an activity that did a step: the provider's reference, what was captured, and when (aware UTC)."""

    reference: str
    done_at: datetime
    decision: str | None = None
    amount_minor: int | None = None


class SettleRequest(_Message):
    """To `settle_effect`: the last look at a step whose attempts are used up."""

    step: StepRequest


class SettleResult(_Message):
    """From `settle_effect`: the effect that was found and adopted, or proof that it never happened (and never will)."""

    found: StepResult | None = None


class UndoRequest(_Message):
    """To a compensation: take back what stands of `step`."""

    workflow_id: str
    step: str
    activity: str
    event: OrderEvent


class UndoResult(_Message):
    """From a compensation: whether something had to be undone, and how much money went back."""

    undone: bool
    reference: str | None = None
    amount_minor: int | None = None


class StandingRequest(_Message):
    """To `find_standing`: which order."""

    workflow_id: str


class StandingEffects(_Message):
    """From `find_standing`: the steps of the order whose effects may stand, whichever of its runs began them.

    The oldest effect comes first.
    """

    steps: tuple[str, ...]


class VerifyRequest(_Message):
    """To `verify_decision` and `verify_operation`: one compact JWS, at most 4096 characters, and when it arrived.

    `at` comes back in the recorded verdict, because `workflow.now()` is not always the same when a history is replayed:
    a workflow task that was prolonged for a local activity is replayed as one with the next.
    """

    token: str
    at: datetime | None = None


class ReviewUpdate(_Message):
    """To `book_review`: what stands of an order now, for the queue, and the operation that led to it.

    With `resolves`, enough people said so: the operation's effect is ended by its outcome. With `leaves`, who asks ends
    with all of that standing: from then on a repair acts on it.
    """

    workflow_id: str
    standing: tuple[Standing, ...]
    operation: AcceptedOperation | None = None
    resolves: bool = False
    leaves: bool = False


class ReviewBooked(_Message):
    """From `book_review`: what stands, with the amounts that the ledger knows."""

    standing: tuple[Standing, ...]


class EndRequest(_Message):
    """To `end_order`: how the order of an event from `source` ended, for who looks after Temporal has forgotten it."""

    workflow_id: str
    stage: Stage
    source: str = ""


class Ended(_Message):
    """From `end_order`: who wants to hear of that end, said by `source`, and when it was (aware UTC).

    Nobody does by default: so say the histories of releases that told nobody.
    """

    subscriptions: tuple[Subscription, ...] = ()
    source: str = ""
    at: datetime | None = None


class DoorAnswer(_Message):
    """What a message came to: what `decide` and `operate` return, and what `view` lists for signals."""

    accepted: bool
    refusal: Refusal | None = None
    stage: Stage


class RefusedMessage(_Message):
    """One message that was not accepted: when, at which door, under which name, and why."""

    at: datetime
    door: str
    name: str
    reason: Refusal


class OrderView(_Message):
    """What the query `view` answers: everything that may be told about an order, and no personal data."""

    order: str
    run_id: str
    stage: Stage
    reason: Reason | None = None
    detail: str | None = None
    event_source: str = ""
    event_id: str = ""
    payload_fingerprint: str = ""
    definition: str = ""
    definition_fingerprint: str = ""
    state_version: int = 0
    steps: tuple[StepRecord, ...] = ()
    request: ApprovalRequest | None = None
    refusals: tuple[RefusedMessage, ...] = ()
    refused_total: int = 0
    cancel_requested: bool = False
    standing: tuple[Standing, ...] = ()
    operations: tuple[str, ...] = Field(default=(), description="the `jti` of each that was accepted and not begun yet")
    trail: tuple[SafeEvent, ...] = ()
    outcome: Outcome | None = None


class WaitingView(BaseModel):
    """Of the query `view`, what orders and announcements alike answer: what waits for people, and what they signed."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    stage: Stage
    standing: tuple[Standing, ...] = ()
    operations: tuple[str, ...] = ()


class OrderState(BaseModel):
    """All that an order knows of itself: one object, made when the run starts, carried whole into the next run."""

    model_config = ConfigDict(extra="forbid", strict=True)

    event: OrderEvent
    definition: Definition
    definition_fingerprint: str = ""
    payload_fingerprint: str = ""
    admitted: bool = False
    problems: tuple[str, ...] = ()
    stage: Stage = Stage.RUNNING
    reason: Reason | None = None
    detail: str | None = None
    version: int = 0
    steps: dict[str, StepRecord] = Field(default_factory=dict)
    registered: list[str] = Field(default_factory=list, description="steps whose compensation is registered, in order")
    request: ApprovalRequest | None = None
    rejected: bool = False
    approvals: dict[str, ApprovalRequest] = Field(default_factory=dict, description="answered requests by step")
    refusals: list[RefusedMessage] = Field(default_factory=list)
    refused_total: int = 0
    standing: list[Standing] = Field(default_factory=list)
    operations: list[AcceptedOperation] = Field(default_factory=list, description="accepted, not carried out yet")
    operated: list[str] = Field(default_factory=list, description="the `jti` of each operation that was accepted")
    notes: list[str] = Field(default_factory=list)
    trail: list[SafeEvent] = Field(default_factory=list)
    cancel_requested: bool = False


class OrderInput(_Message):
    """What an order starts with: a trusted event and the whole definition.

    `carried` is the order's own state from the run before (continue-as-new); a first run refuses it.
    """

    event: OrderEvent
    definition: Definition
    carried: OrderState | None = None


class ReconcileRequest(_Message):
    """To the workflow `ReconcileWorkflow` and its activity: how far back providers are asked what they did.

    A `dry_run` asks the providers and writes nothing.
    """

    dry_run: bool = False
    since: Duration = Duration("P7D")


class Finding(_Message):
    """One thing that a reconciliation did, found or left: `what` is a `reconciliation.What`, in a dry run `would_be_…`.

    `detail` is a short code or a sentence of ours, never a provider's text.
    """

    what: str
    order: str
    key: str | None = None
    amount_minor: int | None = None
    currency: str | None = None
    detail: str | None = None


class ReconcileReport(_Message):
    """What a reconciliation came to. `counts` holds every `what`, `findings` at most 200, those for people first.

    `orders` is how many were looked at; `unlisted` names providers that cannot say, or did not, what they did since
    `since` (aware UTC); `foreign` counts keys at the providers that are none of ours.
    """

    dry_run: bool
    since: datetime
    orders: int
    changes: int
    counts: dict[str, int]
    findings: tuple[Finding, ...] = ()
    unlisted: tuple[str, ...] = ()
    foreign: int = 0


class RepairRequest(_Message):
    """To the workflow `RepairWorkflow` and its activity: an operation on what an order left that no longer runs."""

    operation: str


class RepairAnswer(_Message):
    """What became of it: `refusal` if it may not be done, else whether the effect is `settled` now, or the `error`.

    Neither: another person has to say the same.
    """

    refusal: Refusal | None = None
    settled: bool = False
    error: str | None = None
    detail: str | None = None
