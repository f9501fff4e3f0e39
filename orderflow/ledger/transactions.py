"""What each transaction of the effect ledger does, for every SQL backend.

A transaction is a generator: it yields a statement's name with its parameters and is sent the rows. The backend runs
it inside one database transaction, and runs it again from the start when the database asks for that (D05), so nothing
here keeps state or has effects of its own.
"""

import json
from collections.abc import Generator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from orderflow.domain.effects import UNDONE, Act, Done, EffectState, Found, Pending, Refused, Unknown
from orderflow.domain.errors import ChargeWindowClosed, EffectBusy, EffectReversed, IntentConflict, UnreadableRow
from orderflow.ledger import AttemptRecord, Claim, EffectRecord

T = TypeVar("T")
Row = Mapping[str, Any]
Statement = tuple[str, Mapping[str, object]]
Transaction = Generator[Statement, list[Row], T]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)
_READS = 3  # a row that changes between a statement and the look at it is tried again, this many times in all


def get(key: str) -> Transaction[EffectRecord | None]:
    """Read one effect."""
    rows = yield "get_effect", {"key": key}
    return record(rows[0]) if rows else None


def is_held(key: str) -> Transaction[bool]:
    """Read whether an effect is in flight."""
    rows = yield "get_effect", {"key": key}
    return bool(rows) and rows[0]["state"] == EffectState.PENDING and rows[0]["lease_left_ms"] > 0


def effects(workflow_id: str) -> Transaction[list[EffectRecord]]:
    """Read all effects of one order."""
    rows = yield "effects_of_workflow", {"workflow_id": workflow_id}
    return [record(row) for row in rows]


def attempts(workflow_id: str) -> Transaction[list[AttemptRecord]]:
    """Read all attempts at the effects of one order."""
    rows = yield "attempts_of_workflow", {"workflow_id": workflow_id}
    return [_attempt(row) for row in rows]


def claim(
    act: Act, *, holder: str, lease: timedelta, claim_by: datetime | None = None
) -> Transaction[Claim | EffectRecord]:
    """Claim `act`; see `EffectLedger.claim`."""
    window = None if claim_by is None else milliseconds(claim_by)
    for _ in range(_READS):
        terms = {"holder": holder, "lease_ms": lease // MILLISECOND, "claim_by_ms": window}
        rows = yield "claim_effect", {**_columns(act), **terms}
        if rows:
            claimed = record(rows[0])
            return Claim(claimed, holder, fresh=claimed.token == 1)
        found = yield from _read_again(act)
        if found is None and window is not None:
            raise ChargeWindowClosed(f"{act.key} was not claimed in time")
        if found is not None and found.state in UNDONE:
            raise EffectReversed(f"{act.key} is {found.state}: it is never done again")
        if found is not None and found.state is not EffectState.PENDING:
            return found
    raise EffectBusy(f"{act.key} changes hands too quickly to be claimed", retry_after=0)


def renew(held: Claim, lease: timedelta) -> Transaction[bool]:
    """Extend the lease; `False` when the claim is lost."""
    rows = yield "renew_lease", {**_fence(held), "lease_ms": lease // MILLISECOND}
    return bool(rows)


def settle(held: Claim, answer: Found) -> Transaction[EffectRecord | None]:
    """Write down what came of a claim; `None` when it is lost (the attempt's end is kept all the same)."""
    rows = yield "settle_effect", {**_fence(held), **_outcome(answer), "ended": _ending(answer)}
    return record(rows[0]) if rows else None


def void(act: Act, held: Claim | None) -> Transaction[EffectRecord | None]:
    """Write the tombstone; `None` when the claim is lost."""
    if held is None:
        rows = yield "void_unseen", _columns(act)
        return record(rows[0]) if rows else (yield from get(act.key))
    rows = yield "settle_effect", {**_fence(held), **_changes(EffectState.VOIDED), "ended": "absent"}
    return record(rows[0]) if rows else None


def claim_undo(undo: Act, of: Act, *, holder: str, lease: timedelta) -> Transaction[Claim | EffectRecord]:
    """Mark `of` as being taken back and claim `undo`; see `EffectLedger.claim_undo`."""
    nothing_to_undo = yield from _begin_reversal(of)
    if nothing_to_undo is not None:
        return nothing_to_undo
    undone = yield from get(undo.key)
    if undone is not None and undone.state is EffectState.VOIDED:
        raise EffectReversed(f"{of.key} was settled by a person: it is not taken back any more")
    claimed = yield from claim(undo, holder=holder, lease=lease)
    if isinstance(claimed, Claim):
        return claimed
    reversed_meanwhile = yield from get(of.key)
    return reversed_meanwhile or claimed


def settle_undo(held: Claim, of: Act, answer: Found) -> Transaction[EffectRecord | None]:
    """Write down what came of an undo, on both rows; `None` when the claim is lost."""
    rows = yield "settle_effect", {**_fence(held), **_undo_outcome(answer), "ended": _ending(answer)}
    if not rows:
        return None
    if isinstance(answer, Done):
        yield "end_reversal", {"key": of.key, "refunded_minor": answer.amount_minor}
    return (yield from get(of.key))


def _begin_reversal(of: Act) -> Transaction[EffectRecord | None]:
    """Give the record that shows that nothing is left to undo, or `None` with `of` REVERSING.

    `None` also for a tombstone that was claimed before: who held it may have slept and acted since. It stays VOIDED.
    """
    for _ in range(_READS):
        rows = yield "void_unseen", _columns(of)
        if rows:
            return record(rows[0])
        if (yield "begin_reversal", {"key": of.key, "intent_digest": of.intent_digest}):
            return None
        found = yield from _read_again(of)
        if found is not None and (found.state is EffectState.REVERSING or _was_claimed_and_voided(found)):
            return None
        if found is not None and found.state is not EffectState.PENDING:
            return found
    raise EffectBusy(f"{of.key} changes hands too quickly to be undone", retry_after=0)


def _was_claimed_and_voided(found: EffectRecord) -> bool:
    return found.state is EffectState.VOIDED and found.token > 0


def _read_again(act: Act) -> Transaction[EffectRecord | None]:
    """Read why a statement gave no row: raise for a conflict and for another's live lease."""
    rows = yield "get_effect", {"key": act.key}
    if not rows:
        return None
    found = record(rows[0])
    if found.intent_digest != act.intent_digest:
        raise IntentConflict(f"{act.key} was used before with another intent")
    if found.state is EffectState.PENDING and rows[0]["lease_left_ms"] > 0:
        raise EffectBusy(f"{act.key} is in flight elsewhere", retry_after=rows[0]["lease_left_ms"] / 1000)
    return found


def _columns(act: Act) -> dict[str, object]:
    return act.model_dump(exclude={"intent"})


def _fence(held: Claim) -> dict[str, object]:
    return {"key": held.record.key, "token": held.record.token}


def _changes(
    state: EffectState,
    *,
    reference: str | None = None,
    captured_minor: int | None = None,
    decline_code: str | None = None,
    result_json: str | None = None,
) -> dict[str, object]:
    return {
        "state": state.value,
        "reference": _storable(reference),
        "captured_minor": captured_minor,
        "decline_code": _storable(decline_code),
        "result_json": result_json,
    }


def _outcome(answer: Found) -> dict[str, object]:
    match answer:
        case Done(reference=reference, amount_minor=amount, result=result):
            written = json.dumps(result, separators=(",", ":"), sort_keys=True)
            return _changes(EffectState.COMMITTED, reference=reference, captured_minor=amount, result_json=written)
        case Refused(code=code):
            return _changes(EffectState.DECLINED, decline_code=code)
        case Pending(reference=reference):
            return _changes(EffectState.PENDING, reference=reference)
        case _:
            return _changes(EffectState.PENDING)


def _undo_outcome(answer: Found) -> dict[str, object]:
    """As `_outcome`, but the money stands on the row of what is undone, and a refusal is not the end."""
    if isinstance(answer, Refused):
        return _changes(EffectState.PENDING)
    return {**_outcome(answer), "captured_minor": None}


def _ending(answer: Found) -> str:
    match answer:
        case Refused(code=note) | Unknown(detail=note) if note:
            return f"{answer.answer}: {_storable(note)}"
        case _:
            return answer.answer


def _storable(text: str | None) -> str | None:
    """What a provider may say and PostgreSQL cannot keep in a text is replaced, on every backend alike."""
    return text and text.replace("\0", "\ufffd")


def record(row: Row) -> EffectRecord:
    """Give a row of `effects` as a record; `UnreadableRow` names one that cannot be read."""
    try:
        return EffectRecord(
            key=row["key"],
            workflow_id=row["workflow_id"],
            step=row["step"],
            provider=row["provider"],
            operation=row["operation"],
            intent_digest=row["intent_digest"],
            state=EffectState(row["state"]),
            token=row["token"],
            amount_minor=row["amount_minor"],
            currency=row["currency"],
            reference=row["reference"],
            captured_minor=row["captured_minor"],
            refunded_minor=row["refunded_minor"],
            decline_code=row["decline_code"],
            result_json=row["result_json"],
            created_at=time(row["created_at"]),
            updated_at=time(row["updated_at"]),
            settled_at=None if row["settled_at"] is None else time(row["settled_at"]),
            age=row["age_ms"] * MILLISECOND,
        )
    except (ValueError, OverflowError) as error:
        raise _unreadable(row, error) from error


def _attempt(row: Row) -> AttemptRecord:
    try:
        return AttemptRecord(
            key=row["key"],
            token=row["token"],
            holder=row["holder"],
            started_at=time(row["started_at"]),
            ended_at=None if row["ended_at"] is None else time(row["ended_at"]),
            ended=row["ended"],
        )
    except (ValueError, OverflowError) as error:
        raise _unreadable(row, error) from error


def _unreadable(row: Row, error: Exception) -> UnreadableRow:
    """A row that is damaged, or of another release, is named, so that it stops its own order only (W18)."""
    return UnreadableRow(
        f"the ledger's row of {row['key']} cannot be read: {error}; restore it, or run the orderflow that wrote it"
    )


def time(milliseconds: int) -> datetime:
    """Give a time of the ledger as an aware one."""
    return _EPOCH + milliseconds * MILLISECOND


def milliseconds(at: datetime) -> int:
    """Give an aware time as the ledger keeps it."""
    return (at - _EPOCH) // MILLISECOND
