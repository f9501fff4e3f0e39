"""The state machine: workers perform, undo and settle, stop and die anywhere; after each step the books are compared.

Steps: a call of the store begins (and runs to the boundary where it stops), a stopped one goes on, or renews its lease;
a lease ends; a request that lost its sender arrives, or is lost; a person refunds by hand. Leases end without waiting:
they are granted for hours, and a step ages the row by SQL.

After each step: the ledger's rows are the reference's (state, fencing token, lease, amounts) and each went there by
`TRANSITIONS`; tokens only grow; the bank took and gave back each amount once, and never more than it took; what the
ledger calls COMMITTED, DECLINED, REVERSED or VOIDED is so at the bank; nothing was sent that the store had to know
about; what a call answered is true. At the end everybody comes back, and every effect is retried to its end, then taken
back.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from orderflow.domain.effects import Act, EffectState
from orderflow.ledger import EffectLedger, EffectRecord
from orderflow.ledger.effects import EffectStore
from tests.model.agreement import disagreements, left_over
from tests.model.answers import Asked
from tests.model.bank import SILENT, Entry, Told
from tests.model.calls import BankLine, Call, Fate, FollowedLedger, World
from tests.model.rows import Rows
from tests.support.ledger import charge, refund

T = TypeVar("T")

_S = EffectState
_LEASE: Final = timedelta(hours=6)
_ROUNDS: Final = 12
"""How often everything is tried at the end; a healthy bank and no other worker need fewer."""

AMOUNT: Final = 1000
OTHER_AMOUNT: Final = 900

# Weighted so that an order lives for a while before it is taken back.
OPERATIONS = st.sampled_from(["perform"] * 5 + ["settle", "void", "void", "undo", "undo"])
AMOUNTS = st.sampled_from([AMOUNT] * 9 + [OTHER_AMOUNT])
TOLD = st.sampled_from([*Told, *[Told.DONE] * 6])
NOISE = st.lists(st.sampled_from([Told.DONE, Told.DONE, *SILENT]), max_size=2)
STOPS = st.sampled_from([None, None, *range(12)])
FATES = st.sampled_from([*Fate, Fate.WAITS, Fate.WAITS])
ORDERS = st.sampled_from([0, 0, 0, 1])
ONE_OF_MANY = st.integers(0, 5)


@dataclass
class Harness:
    """What all examples of one run share: an event loop, workers' ledgers on one database, and its rows."""

    loop: asyncio.AbstractEventLoop
    ledgers: list[EffectLedger]
    rows: Rows
    examples: int = 0
    prefix: str = "m"

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run on the loop of this harness."""
        return self.loop.run_until_complete(work)


class EffectMachine(RuleBasedStateMachine):
    """One example: orders of its own in a database that all examples share. Subclasses give `harness`."""

    harness: Harness

    def __init__(self) -> None:
        super().__init__()
        self.harness.examples += 1
        self.example = f"{self.harness.prefix}-{self.harness.examples}-"
        self.world = World()
        self.asked: list[Asked] = []
        self.tokens: dict[str, int] = {}
        self.is_broken = False

    @rule(
        operation=OPERATIONS,
        worker=st.integers(0, 2),
        order=ORDERS,
        amount=AMOUNTS,
        told=TOLD,
        noise=NOISE,
        patient=st.booleans(),
        stop=STOPS,
        fate=FATES,
        oversleeps=st.booleans(),
    )
    def a_call_begins(
        self,
        operation: str,
        worker: int,
        order: int,
        amount: int,
        told: Told,
        noise: list[Told],
        patient: bool,
        stop: int | None,
        fate: Fate,
        oversleeps: bool,
    ) -> None:
        call = Call(self.world, told, noise)
        self._begin(operation, worker, self._charge(order, amount), call, patient, stop, fate)
        if oversleeps and call.claim and self.world.reference.rows[call.claim.record.key].live:
            self._end_lease(call.claim.record.key)

    @precondition(lambda self: self.stopped)
    @rule(which=ONE_OF_MANY, stop=STOPS, fate=FATES)
    def a_stopped_call_goes_on(self, which: int, stop: int | None, fate: Fate) -> None:
        self.harness.run(self._one(self.stopped, which).go_on(stop, fate))

    @precondition(lambda self: any(call.claim for call in self.stopped))
    @rule(which=ONE_OF_MANY)
    def a_stopped_call_renews_its_lease(self, which: int) -> None:
        call = self._one([call for call in self.stopped if call.claim], which)
        ledger = FollowedLedger(self.harness.ledgers[0], call)
        assert call.claim is not None
        self.harness.run(_whatever_comes(ledger.renew(call.claim, _LEASE)))

    @precondition(lambda self: any(row.live for row in self.world.reference.rows.values()))
    @rule(which=ONE_OF_MANY)
    def a_lease_ends(self, which: int) -> None:
        self._end_lease(self._one([key for key, row in self.world.reference.rows.items() if row.live], which))

    @precondition(lambda self: self.orphans)
    @rule(which=ONE_OF_MANY, lost=st.booleans())
    def a_request_without_its_sender_arrives(self, which: int, lost: bool) -> None:
        request = self._one(self.orphans, which)
        if lost:
            self.world.bank.lose(request)
        else:
            _arrive(partial(self.world.bank.receive, request))

    @precondition(lambda self: any(entry.left > 0 for entry in self.charges))
    @rule(which=ONE_OF_MANY, amount=st.sampled_from([300, AMOUNT]))
    def a_person_refunds(self, which: int, amount: int) -> None:
        charge = self._one([entry for entry in self.charges if entry.left > 0], which)
        self.world.bank.refund_by_hand(charge.key, amount)

    @invariant()
    def the_books_agree(self) -> None:
        self._must(self._disagreements())

    def teardown(self) -> None:
        try:
            if not self.is_broken:
                self._everybody_comes_back()
                self._must(self._disagreements())
                self._must(left_over(self.world))
        finally:
            for asked in self.asked:
                self.harness.run(asked.call.kill())
                asked.call.outcome()

    @property
    def stopped(self) -> list[Call]:
        """Calls that wait at a boundary."""
        return [asked.call for asked in self.asked if not asked.call.is_over]

    @property
    def orphans(self) -> list[Any]:
        """Requests on their way whose callers died or were cancelled."""
        stopped = self.stopped
        return [request for request in self.world.bank.in_flight if request.caller not in stopped]

    @property
    def charges(self) -> list[Entry]:
        """What the bank knows of charges."""
        return [entry for entry in self.world.bank.entries if entry.is_charge]

    def _charge(self, order: int, amount: int = AMOUNT) -> Act:
        return charge(f"{self.example}{order}", amount)

    def _begin(
        self,
        operation: str,
        worker: int,
        act: Act,
        call: Call,
        patient: bool,
        stop: int | None = None,
        fate: Fate = Fate.WAITS,
    ) -> None:
        call.is_patient, call.takes_last_look = patient, operation == "void"
        store = EffectStore(FollowedLedger(self.harness.ledgers[worker], call), poll_interval=0)  # type: ignore[arg-type]
        terms: Any = {
            "holder": f"worker-{worker}",
            "lease": _LEASE,
            "patience": timedelta(hours=1) if patient else timedelta(0),
        }
        bank = BankLine(call)
        match operation:
            case "perform":
                work: Any = store.perform(act, bank, **terms)
            case "undo":
                work = store.undo(refund(act.workflow_id), act, bank, **terms)
            case _:
                work = store.settle(act, bank, void=operation == "void", **terms)
        self.asked.append(Asked(call, operation, act))
        self.harness.run(call.begin(work, stop, fate))

    def _end_lease(self, key: str) -> None:
        self.harness.rows.end_lease(key)
        self.world.reference.end_lease(key)

    def _one(self, many: list[T], which: int) -> T:
        return many[which % len(many)]

    def _must(self, disagreements: Iterator[str]) -> None:
        found = [*disagreements]
        self.is_broken = bool(found)
        if found:
            raise AssertionError("\n".join(found))

    def _disagreements(self) -> Iterator[str]:
        rows = self.harness.rows.of(self.example)
        yield from disagreements(self.world, rows)
        for key, row in rows.items():
            if row.token < self.tokens.get(key, 0):
                yield f"{key}: token {row.token} after {self.tokens[key]}"
            self.tokens[key] = row.token
        for asked in [asked for asked in self.asked if asked.call.is_over]:
            if false := asked.false_answer():
                yield false
            self.asked.remove(asked)

    def _everybody_comes_back(self) -> None:
        """Who was stopped goes on, what is on its way arrives, what was left open is finished, then taken back."""
        for _ in range(_ROUNDS):
            for call in self.stopped:
                self.harness.run(call.go_on(None, Fate.WAITS))
                self._must(self._disagreements())
            self._end_leases()
            for request in self.orphans:
                _arrive(partial(self.world.bank.receive, request))
        touched = [order for order in range(2) if self._charge(order).key in self.world.reference.rows]
        for operation in ("perform", "undo"):
            for order in touched:
                self._finish(operation, self._charge(order, self._amount(order)))

    def _finish(self, operation: str, act: Act) -> None:
        for _ in range(_ROUNDS):
            if self._is_finished(operation, act.key):
                return
            self._begin(operation, 0, act, Call(self.world), patient=True)
            self._must(self._disagreements())
            self._end_leases()
        self._must(iter([f"{operation} {act.key} does not come to an end: {self.world.reference.rows[act.key]}"]))

    def _is_finished(self, operation: str, key: str) -> bool:
        if operation == "undo":
            return self.world.reference.state(key) in {_S.VOIDED, _S.DECLINED, _S.REVERSED}
        charge = self.world.bank.entry(key)
        taken_back = bool(charge.moved) and not charge.left  # by a person: only an undo settles it
        return self.world.reference.state(key) is not _S.PENDING or taken_back

    def _end_leases(self) -> None:
        for key in [key for key, row in self.world.reference.rows.items() if row.live]:
            self._end_lease(key)

    def _amount(self, order: int) -> int:
        row = self.world.reference.rows.get(self._charge(order).key)
        amounts = [AMOUNT, OTHER_AMOUNT]
        return next((one for one in amounts if row and self._charge(order, one).intent_digest == row.digest), AMOUNT)


async def _whatever_comes(work: Coroutine[Any, Any, EffectRecord | None]) -> None:
    await asyncio.gather(work, return_exceptions=True)


def _arrive(receive: Callable[[], object]) -> None:
    """Nobody waits for the reply any more."""
    try:
        receive()
    except Exception as fault:  # noqa: BLE001
        del fault
