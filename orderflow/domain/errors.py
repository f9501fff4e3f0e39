"""The error tree: every leaf has a stable type string and says whether a retry can help.

    OrderflowError
    ├── InvalidInput                 what was given cannot be used; says where and what to do
    │   ├── InvalidJson
    │   ├── InvalidEvent
    │   ├── InvalidDefinition
    │   ├── InvalidSettings
    │   └── PayloadRefused           a payload is not what the order's own parties wrote there
    ├── DefinitionMismatch           the definition sent is not one this worker publishes
    ├── IntentConflict               same idempotency key, another intent
    ├── EffectReversed               the effect was undone or voided; it must never be adopted
    ├── Declined                     a provider's definitive no
    ├── AmountMismatch               the provider moved another amount than it was asked to
    ├── ApprovalRefused              the decisions sent along do not allow this effect
    ├── ChargeWindowClosed           the first claim came after `charge_by`
    ├── DeadlinePassed               a message that would be stale is not sent
    ├── CannotUndo                   a provider's definitive no to an undo
    ├── UnknownActivity              no kind of step in the catalogue has this name
    └── TransientError               a retry can help
        ├── EffectBusy               claimed elsewhere and in flight
        ├── OutcomeUnknown           the provider may or may not have acted
        ├── ProviderUnavailable      the provider did not act and said so, or was not reached
        ├── ClaimLost                another holder took the claim over; the result was not recorded
        ├── PayloadKeyMissing        a payload is encrypted under a key that this process does not have
        └── LedgerUnavailable        the ledger could not be read or written
            └── UnreadableRow        one row of it could not be read

`ErrorType` is used both for raising and in retry policies (T18): Temporal matches the exact string.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import ClassVar, Final


class ErrorType(StrEnum):
    """The type string of each error that can cross Temporal."""

    INVALID_INPUT = "InvalidInput"
    DEFINITION_MISMATCH = "DefinitionMismatch"
    INTENT_CONFLICT = "IntentConflict"
    EFFECT_REVERSED = "EffectReversed"
    DECLINED = "Declined"
    AMOUNT_MISMATCH = "AmountMismatch"
    APPROVAL_REFUSED = "ApprovalRefused"
    CHARGE_WINDOW_CLOSED = "ChargeWindowClosed"
    DEADLINE_PASSED = "DeadlinePassed"
    CANNOT_UNDO = "CannotUndo"
    UNKNOWN_ACTIVITY = "UnknownActivity"
    EFFECT_BUSY = "EffectBusy"
    OUTCOME_UNKNOWN = "OutcomeUnknown"
    PROVIDER_UNAVAILABLE = "ProviderUnavailable"
    CLAIM_LOST = "ClaimLost"
    LEDGER_UNAVAILABLE = "LedgerUnavailable"
    PAYLOAD_KEY_MISSING = "PayloadKeyMissing"
    UNEXPECTED = "Unexpected"


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: a JSON path such as `$.data.items[0].sku`, and one sentence."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class OrderflowError(Exception):
    """Root of every error that this project raises on purpose.

    `type` is the stable string seen in event history and retry policies; `retryable` says whether another attempt can
    help; `retry_after` is the seconds to wait before it, where somebody knows; `detail` is a short code.
    """

    type: ClassVar[ErrorType] = ErrorType.UNEXPECTED
    retryable: ClassVar[bool] = False
    detail: str | None = None

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after = retry_after


class InvalidInput(OrderflowError):
    """What was given cannot be used. `problems` lists every fault found, each with its JSON path."""

    type = ErrorType.INVALID_INPUT

    def __init__(self, message: str, *, path: str = "", problems: tuple[Problem, ...] = ()) -> None:
        super().__init__(message)
        self.path = path
        self.problems = problems or (Problem(path, message),)


class InvalidJson(InvalidInput):
    """The bytes are not the strict JSON that this project reads."""


class InvalidEvent(InvalidInput):
    """The value is not an order event of the profile."""


class InvalidDefinition(InvalidInput):
    """The value is not a definition that can be run."""


class InvalidSettings(InvalidInput):
    """A setting is missing or cannot be used; the message says what to provide."""


class PayloadRefused(InvalidInput, ValueError):
    """A payload is not what its own parties wrote there: `why`. A `ValueError`, as all that does not decode is."""

    def __init__(self, why: str, *, at: str) -> None:
        super().__init__(f"a payload of {at} {why}: it is not read")
        self.why = why


class DefinitionMismatch(OrderflowError):
    """The definition sent has a fingerprint that this worker does not publish."""

    type = ErrorType.DEFINITION_MISMATCH


class IntentConflict(OrderflowError):
    """The idempotency key was used before with another intent (I01)."""

    type = ErrorType.INTENT_CONFLICT


class EffectReversed(OrderflowError):
    """The effect was undone or voided: it is never done again and never adopted."""

    type = ErrorType.EFFECT_REVERSED


class Declined(OrderflowError):
    """The provider's definitive no, with its short code as `detail`."""

    type = ErrorType.DECLINED

    def __init__(self, code: str) -> None:
        super().__init__(f"declined by the provider: {code}")
        self.detail = code


class AmountMismatch(OrderflowError):
    """The provider did it, with another amount than it was asked for: what it moved has to be taken back."""

    type = ErrorType.AMOUNT_MISMATCH

    def __init__(self, asked: int, moved: int) -> None:
        super().__init__(f"the provider moved {moved} minor units, not {asked}")
        self.detail = f"{moved} instead of {asked}"


class ApprovalRefused(OrderflowError):
    """The decisions sent along do not allow this effect; `detail` is a code of `approvals.Refusal`."""

    type = ErrorType.APPROVAL_REFUSED

    def __init__(self, reason: str) -> None:
        super().__init__(f"the approval does not allow this effect: {reason}")
        self.detail = reason


class ChargeWindowClosed(OrderflowError):
    """Nothing was claimed before `charge_by`; the effect needs a new approval. `detail` is when that was found out."""

    type = ErrorType.CHARGE_WINDOW_CLOSED

    def __init__(self, message: str, *, found_at: datetime | None = None) -> None:
        super().__init__(message)
        self.detail = found_at.isoformat() if found_at else None


class DeadlinePassed(OrderflowError):
    """The step's deadline passed before it was first claimed; doing it now would be stale."""

    type = ErrorType.DEADLINE_PASSED


class CannotUndo(OrderflowError):
    """The provider's definitive no to an undo; a person has to look at it."""

    type = ErrorType.CANNOT_UNDO


class UnknownActivity(OrderflowError):
    """No kind of step in the catalogue has this name."""

    type = ErrorType.UNKNOWN_ACTIVITY


class TransientError(OrderflowError):
    """Another attempt can help."""

    retryable = True


class EffectBusy(TransientError):
    """The effect is claimed and in flight elsewhere; `retry_after` is what is left of the lease."""

    type = ErrorType.EFFECT_BUSY


class OutcomeUnknown(TransientError):
    """The provider may or may not have acted: never "failed" (I06). `answer` is which kind of answer it gave."""

    type = ErrorType.OUTCOME_UNKNOWN

    def __init__(self, message: str, *, retry_after: float | None = None, answer: str = "unknown") -> None:
        super().__init__(message, retry_after=retry_after)
        self.answer = answer


class ProviderUnavailable(TransientError):
    """The provider did not act and said so, or was not reached."""

    type = ErrorType.PROVIDER_UNAVAILABLE


class ClaimLost(TransientError):
    """Another holder took the claim over (a newer fencing token); this result was not recorded (D06)."""

    type = ErrorType.CLAIM_LOST


class PayloadKeyMissing(TransientError):
    """A payload is encrypted under a key that this process does not have; a process that has it can go on (T47)."""

    type = ErrorType.PAYLOAD_KEY_MISSING

    def __init__(self, key_id: str, place: str, known: Sequence[str]) -> None:
        there = f"only {', '.join(known)}" if known else "none at all"
        super().__init__(
            f"a payload of {place} is encrypted under the key {key_id}, which is missing here ({there}): add it to the"
            " key ring, ORDERFLOW_PAYLOAD_KEYS_FILE"
        )
        self.key_id = key_id


class LedgerUnavailable(TransientError):
    """The ledger could not be read or written."""

    type = ErrorType.LEDGER_UNAVAILABLE


class UnreadableRow(LedgerUnavailable):
    """One row of the ledger is damaged, or of another release: what it is about has to wait, nothing else (W18)."""


def _kinds(root: type[OrderflowError]) -> list[type[OrderflowError]]:
    return [kind for child in root.__subclasses__() for kind in (child, *_kinds(child))]


PERMANENT_TYPES: Final = frozenset(kind.type.value for kind in _kinds(OrderflowError) if not kind.retryable)
"""The type strings that no retry can help; made once from this tree, so that no later subclass changes it (T35)."""
