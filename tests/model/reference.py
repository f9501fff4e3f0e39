"""What the ledger promises, as a plain dictionary: the reference that the real one is compared with, call by call.

Every method says what the real ledger has to answer (`Expected`) and keeps what must then stand in it. It knows no SQL,
no clock and no retry: a lease is live until the model says that it is over.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from orderflow.domain.effects import TRANSITIONS, UNDONE, Act, Done, EffectState, Found, Refused
from orderflow.domain.errors import ClaimLost, EffectBusy, EffectReversed, IntentConflict, OrderflowError
from orderflow.ledger import Claim, EffectRecord

_S = EffectState

NOTHING: Final = ("nothing",)

Expected = tuple[object, ...]
"""`("claim", key, token)`, `("record", key, state)`, `("error", type)` or `NOTHING`."""


def answered(result: object) -> Expected:
    """What a real ledger gave or raised, in the words of the reference."""
    match result:
        case Claim(record=record, fresh=fresh):
            return ("claim", record.key, record.token, fresh)
        case EffectRecord():
            return ("record", result.key, result.state)
        case OrderflowError():
            return ("error", type(result).__name__)
        case _:
            return NOTHING


@dataclass(frozen=True)
class Row:
    """One effect: what the database must hold of it."""

    digest: str
    state: EffectState
    token: int = 0
    live: bool = False
    captured: int | None = None
    refunded: int | None = None


class Reference:
    """The ledger as it should be."""

    def __init__(self) -> None:
        self._rows: dict[str, Row] = {}
        self.illegal: list[str] = []

    @property
    def rows(self) -> Mapping[str, Row]:
        """All rows by key."""
        return self._rows

    def state(self, key: str) -> EffectState | None:
        """Where an effect stands, `None` for one that was never seen."""
        row = self._rows.get(key)
        return row.state if row else None

    def end_lease(self, key: str) -> None:
        """Time passes: whoever holds the effect has held it too long."""
        self._rows[key] = replace(self._rows[key], live=False)

    def get(self, key: str) -> Expected:
        """See `EffectLedger.get`."""
        return self._record(key) if key in self._rows else NOTHING

    def claim(self, act: Act) -> Expected:
        """See `EffectLedger.claim`."""
        row = self._rows.get(act.key)
        if row is None:
            return self._granted(act.key, Row(act.intent_digest, _S.PENDING))
        if row.digest != act.intent_digest:
            return _error(IntentConflict)
        if row.state in UNDONE:
            return _error(EffectReversed)
        if row.state is not _S.PENDING:
            return self._record(act.key)
        return _error(EffectBusy) if row.live else self._granted(act.key, row)

    def renew(self, claim: Claim) -> Expected:
        """See `EffectLedger.renew`."""
        if not self._holds(claim):
            return _error(ClaimLost)
        self._rows[claim.record.key] = replace(self._rows[claim.record.key], live=True)
        return NOTHING

    def settle(self, claim: Claim, answer: Found) -> Expected:
        """See `EffectLedger.settle`."""
        key = claim.record.key
        if not self._holds(claim):
            return _error(ClaimLost)
        if isinstance(answer, Done):
            self._move(key, _S.COMMITTED, captured=answer.amount_minor)
        else:
            self._move(key, _S.DECLINED if isinstance(answer, Refused) else _S.PENDING)
        return self._record(key)

    def void(self, act: Act, claim: Claim | None) -> Expected:
        """See `EffectLedger.void`."""
        if claim is None:
            self._rows.setdefault(act.key, Row(act.intent_digest, _S.VOIDED))
            return self._record(act.key)
        if not self._holds(claim):
            return _error(ClaimLost)
        self._move(act.key, _S.VOIDED)
        return self._record(act.key)

    def claim_undo(self, undo: Act, of: Act) -> Expected:
        """See `EffectLedger.claim_undo`: one transaction, so what is refused leaves both rows as they were."""
        row = self._rows.setdefault(of.key, Row(of.intent_digest, _S.VOIDED))
        if row.digest != of.intent_digest:
            return _error(IntentConflict)
        if row.state in {_S.VOIDED, _S.DECLINED, _S.REVERSED}:
            return self._record(of.key)
        if row.state is _S.PENDING and row.live:
            return _error(EffectBusy)
        claimed = self.claim(undo)
        if claimed[0] == "claim" and row.state is not _S.REVERSING:
            self._move(of.key, _S.REVERSING)
        return claimed

    def settle_undo(self, claim: Claim, of: Act, answer: Found) -> Expected:
        """See `EffectLedger.settle_undo`."""
        if not self._holds(claim):
            return _error(ClaimLost)
        if isinstance(answer, Done):
            self._move(claim.record.key, _S.COMMITTED)
            captured = self._rows[of.key].captured
            given_back = answer.amount_minor
            self._move(of.key, _S.REVERSED, captured=given_back if captured is None else captured, refunded=given_back)
        else:
            self._move(claim.record.key, _S.PENDING)
        return self._record(of.key)

    def _holds(self, claim: Claim) -> bool:
        row = self._rows[claim.record.key]
        return row.state is _S.PENDING and row.token == claim.record.token

    def _granted(self, key: str, row: Row) -> Expected:
        self._rows[key] = replace(row, token=row.token + 1, live=True)
        return ("claim", key, row.token + 1, row.token == 0)

    def _record(self, key: str) -> Expected:
        return ("record", key, self._rows[key].state)

    def _move(self, key: str, state: EffectState, **amounts: Any) -> None:
        row = self._rows[key]
        if state is not row.state and state not in TRANSITIONS[row.state]:
            self.illegal.append(f"{key}: from {row.state} to {state}")
        self._rows[key] = replace(row, state=state, live=False, **amounts)


def _error(error: type[OrderflowError]) -> Expected:
    return ("error", error.__name__)
