"""The model's teeth: each fault that the ledger could have is put in, and the model has to find it (issue 3)."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase

from orderflow.domain.effects import Absent, Act, Done, EffectState, Found, Pending, Refused, Undone, Unknown
from orderflow.ledger import Claim, sqlite, transactions
from orderflow.ledger.effects import EffectStore
from tests.model.harness import explore, on_sqlite

pytestmark = pytest.mark.timeout(300)

Fault = Callable[[pytest.MonkeyPatch], None]


def without(statement: str, condition: str) -> Fault:
    """Leave a condition out of a statement."""

    def put_in(patch: pytest.MonkeyPatch) -> None:
        sql = sqlite._STATEMENTS[statement]
        faulty = re.sub(condition, "", sql)
        assert faulty != sql
        patch.setitem(sqlite._STATEMENTS, statement, faulty)

    return put_in


def blind(method: str) -> Fault:
    """Take every claim for a fresh one: nothing is looked up before it is sent."""

    def put_in(patch: pytest.MonkeyPatch) -> None:
        original = getattr(EffectStore, method)

        async def faulty(self: EffectStore, *args: Any) -> Found:
            fresh = (replace(one, fresh=True) if isinstance(one, Claim) else one for one in args)
            found: Found = await original(self, *fresh)
            return found

        patch.setattr(EffectStore, method, faulty)

    return put_in


def takes_silence_for_absence(patch: pytest.MonkeyPatch) -> None:
    """A lookup that says nothing is read as "not done"."""
    original = EffectStore._perform

    class Credulous:
        def __init__(self, inner: Any) -> None:
            self.perform, self._inner = inner.perform, inner

        async def lookup(self, act: Act) -> Found:
            found: Found = await self._inner.lookup(act)
            return Absent() if isinstance(found, Unknown) else found

    async def faulty(self: EffectStore, act: Act, provider: Any, *args: Any) -> Found:
        credulous: Any = Credulous(provider)
        return await original(self, act, credulous, *args)

    patch.setattr(EffectStore, "_perform", faulty)


def undoes_with(key: Callable[[Act, Act, Claim], str]) -> Fault:
    """Undo under another key than the undo's own."""

    def put_in(patch: pytest.MonkeyPatch) -> None:
        original = EffectStore._undo

        async def faulty(self: EffectStore, undo: Act, of: Act, provider: Any, claim: Claim, *args: Any) -> Found:
            keyed = undo.model_copy(update={"key": key(undo, of, claim)})
            return await original(self, keyed, of, provider, claim, *args)

        patch.setattr(EffectStore, "_undo", faulty)

    return put_in


def books(answer: type[Found]) -> Fault:
    """Take an answer that is no end for one."""

    def put_in(patch: pytest.MonkeyPatch) -> None:
        original = transactions._outcome

        def faulty(found: Found) -> dict[str, object]:
            return {**original(found), "state": EffectState.COMMITTED} if isinstance(found, answer) else original(found)

        patch.setattr(transactions, "_outcome", faulty)

    return put_in


def voids_without_proof(patch: pytest.MonkeyPatch) -> None:
    """The last look writes the tombstone whatever it was told."""
    original = EffectStore._write_last

    async def faulty(self: EffectStore, act: Act, void: bool, claim: Claim, answer: Found) -> Any:
        return await original(
            self, act, void, claim, answer if isinstance(answer, Done | Refused | Undone) else Absent()
        )

    patch.setattr(EffectStore, "_write_last", faulty)


def adopts_what_was_undone(patch: pytest.MonkeyPatch) -> None:
    """A forward claim on an undone effect gives its record."""
    patch.setattr(transactions, "UNDONE", frozenset())


FAULTS: dict[str, Fault] = {
    "sends again without looking": blind("_perform"),
    "undoes again without looking": blind("_undo"),
    "takes silence for absence": takes_silence_for_absence,
    "ignores the fencing token": without("settle_effect", "AND token = :token"),
    "renews without the fencing token": without("renew_lease", "AND token = :token"),
    "settles what is settled": without("settle_effect", "AND state = 'pending'"),
    "claims what is held": without("claim_effect", r"AND effects\.lease_until <= .*(?=\n)"),
    "claims for another intent": without("claim_effect", r"AND effects\.intent_digest = excluded\.intent_digest"),
    "undoes what is held": without("begin_reversal", r"AND lease_until <= .*(?=\)\))"),
    "keeps the lease of what failed": without("settle_effect", "lease_until = 0,"),
    "undoes under the charge's key": undoes_with(lambda undo, of, claim: of.key),
    "undoes under a key of the attempt": undoes_with(lambda undo, of, claim: f"{undo.key}{claim.record.token}"),
    "commits what is unknown": books(Unknown),
    "commits what is pending": books(Pending),
    "voids without proof": voids_without_proof,
    "adopts what was undone": adopts_what_was_undone,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_model_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """Within examples that are the same on every machine, so that what the model checks is never quietly lost."""
    FAULTS[fault](monkeypatch)
    with on_sqlite(tmp_path) as harness:
        with pytest.raises(AssertionError):
            explore(
                harness, max_examples=1000, phases=[Phase.generate], derandomize=True, report_multiple_bugs=False,
                print_blob=False,
            )  # fmt: skip
        print(fault, harness.examples)
