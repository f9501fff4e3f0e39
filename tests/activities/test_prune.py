"""`orderflow db prune`: what the ledger forgets, what it never does, and what that costs."""

import asyncio
import dataclasses
import itertools
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from orderflow.domain.effects import EffectState
from orderflow.domain.errors import InvalidInput, LedgerUnavailable
from orderflow.domain.operations import Resolution
from orderflow.ledger.retention import SHORTEST_PERIOD, prune
from orderflow.ledger.review import Ledger
from tests.activities.test_review_ledger import ORDER, signed, standing
from tests.support.bank import Bank
from tests.support.command_line import orderflow, unconfigure
from tests.support.events import delivery
from tests.support.ledger import (
    CHARGE,
    LONG,
    NO_TIME,
    REFUND,
    TABLES,
    LedgerDatabase,
    charge,
    perform,
    state_of,
    undo,
)
from tests.support.ledger_states import REACH, committed, reversed_, reversing
from tests.support.observing import eventually
from tests.support.postgres import Postgres

pytestmark = pytest.mark.timeout(60)

PERIOD = timedelta(days=400)
NONE = "0 review items, 0 events; 0 events that never became an order"


@pytest.fixture
async def ledger(database: LedgerDatabase) -> Ledger:
    """A ledger whose rows a test may make older."""
    opened: Ledger = await database.open()  # type: ignore[assignment]
    return opened


def age(database: LedgerDatabase, order: str, days: float) -> None:
    """Let the order have ended so long ago."""
    database.run(f"UPDATE endings SET ended_at = ended_at - {int(days * 86_400_000)} WHERE workflow_id = '{order}'")


async def an_old_order(database: LedgerDatabase, ledger: Ledger, order: str, *, days: float = 401) -> None:
    """An order that was charged and completed, so many days ago."""
    await perform(ledger, Bank(), charge(order))
    await ledger.end_order(order, "completed")
    age(database, order, days)


async def pruned(ledger: Ledger, *, dry_run: bool = False) -> list[str]:
    """Prune; gives the orders that were forgotten."""
    return [order.workflow_id async for page in prune(ledger, PERIOD, dry_run=dry_run) for order in page]


def rows(database: LedgerDatabase) -> dict[str, list[tuple[object, ...]]]:
    """All that the ledger holds."""
    return {table: sorted(database.run(f"SELECT * FROM {table}"), key=repr) for table in TABLES}


async def test_an_order_that_ended_long_ago_is_forgotten_whole(database: LedgerDatabase, ledger: Ledger) -> None:
    """Effects, attempts, ending and closed items, of this order alone; what an operator signed stays for ever."""
    await an_old_order(database, ledger, "order-2", days=399.9)
    untouched = rows(database)
    await reversed_(ledger)
    event = dataclasses.replace(delivery(), workflow_id=ORDER)
    await ledger.receive(event)
    await ledger.put_in_review(ORDER, "order", [standing()])
    await ledger.put_in_review(ORDER, "order", [])
    await ledger.book_operation(signed(), "a.b.c")
    await ledger.end_order(ORDER, "failed_compensated")
    age(database, ORDER, 400.1)
    (page,) = [page async for page in prune(ledger, PERIOD, dry_run=False) if page]
    ((gone, ended_at),) = [(dataclasses.asdict(order), order.ended_at) for order in page]
    counts = {"effects": 2, "attempts": 2, "review_items": 1, "events": 1, "still_open": 0}
    assert gone == {"workflow_id": ORDER, "ended_at": ended_at, **counts}
    left = rows(database)
    assert left.pop("nonces") != untouched.pop("nonces")
    assert [row[0] for row in left.pop("operations")] == ["j" * 16]
    assert left == {table: untouched[table] for table in left}


def may_be_forgotten(state: EffectState | None, ending: str | None, item: str | None, days: int) -> bool:
    """The policy, in words: it has ended, long ago, and nothing of it is open."""
    if ending is None or days < PERIOD.days or item == "open":
        return False
    if state is EffectState.COMMITTED:
        return ending == "completed" or item == "kept"
    return state not in {EffectState.PENDING, EffectState.REVERSING}


async def test_what_is_open_is_never_forgotten(database: LedgerDatabase, ledger: Ledger) -> None:
    """Every state, ending and item together: all of an order goes, or nothing of it, as the policy says."""
    old = itertools.product(REACH, (None, "completed", "terminated"), (None, "open", "undone", "kept"), (401,))
    young = itertools.product(REACH, ("completed",), (None,), (399,))
    for state, ending, item, days in itertools.chain(old, young):
        database.empty()
        await REACH[state](ledger)
        if item:
            await ledger.put_in_review(ORDER, "reconcile", [standing()])
        if item == "undone":
            await ledger.put_in_review(ORDER, "reconcile", [])
        if item == "kept":
            database.run("UPDATE review_items SET closed_at = opened_at, closed_as = 'kept'")
        if ending:
            await ledger.end_order(ORDER, ending)
            age(database, ORDER, days)
        before, case = rows(database), (state, ending, item, days)
        gone = may_be_forgotten(*case)
        assert await pruned(ledger) == ([ORDER] if gone else []), case
        assert rows(database) == ({table: [] for table in TABLES} if gone else before), case


async def test_what_reconciliation_still_asks_about_is_never_forgotten(
    database: LedgerDatabase, ledger: Ledger
) -> None:
    """I-4: a charge of a run that was terminated stays until somebody settled it; then it may go."""
    await committed(ledger)
    await ledger.end_order(ORDER, "terminated")
    age(database, ORDER, 4000)
    assert (await pruned(ledger), len((await ledger.unsettled("", 9)).orders)) == ([], 1)
    await ledger.put_in_review(ORDER, "reconcile", [standing()])
    await ledger.resolve(CHARGE.key, REFUND.key, Resolution.KEPT)
    assert (await pruned(ledger), await ledger.effects(ORDER)) == ([ORDER], [])


@pytest.mark.parametrize("outcome", list(Resolution))
@pytest.mark.parametrize("reach", [committed, reversing])
async def test_what_people_resolved_may_be_forgotten(
    database: LedgerDatabase, ledger: Ledger, outcome: Resolution, reach: Callable[[Ledger], Awaitable[None]]
) -> None:
    """Issue 3: their word is the end of it, also if taking it back was begun; before, it stays."""
    await reach(ledger)
    await ledger.put_in_review(ORDER, "order", [standing()])
    await ledger.end_order(ORDER, "failed_compensated")
    age(database, ORDER, 401)
    assert await pruned(ledger) == []
    await ledger.resolve(CHARGE.key, REFUND.key, outcome)
    assert (await pruned(ledger), await ledger.effects(ORDER)) == ([ORDER], [])


async def test_an_undo_on_its_way_keeps_the_order(database: LedgerDatabase, ledger: Ledger) -> None:
    """However long ago it began, and whether or not somebody holds it."""
    await reversing(ledger)
    await ledger.end_order(ORDER, "completed")
    age(database, ORDER, 4000)
    assert await pruned(ledger) == []
    assert await state_of(ledger, REFUND.key) is EffectState.PENDING


async def test_many_orders_are_forgotten_in_small_transactions(database: LedgerDatabase, ledger: Ledger) -> None:
    """Page by page, the oldest first; those that stay are passed by; again, nothing is left."""
    orders = [f"order-{number:03}" for number in range(120)]
    kept = {"order-000", "order-049", "order-050", "order-119"}
    for number, order in enumerate(orders):
        await ledger.claim(charge(order), holder="x", lease=NO_TIME)
        if order not in kept:
            await ledger.void(charge(order), await ledger.claim(charge(order), holder="y", lease=LONG))  # type: ignore[arg-type]
        await ledger.end_order(order, "completed")
        database.run(f"UPDATE endings SET ended_at = {number // 70} WHERE workflow_id = '{order}'")
    expected = [order for order in orders if order not in kept]
    dry = [page async for page in prune(ledger, PERIOD, dry_run=True)]
    assert len((await ledger.unsettled("", 200)).orders) == len(kept)
    pages = [page async for page in prune(ledger, PERIOD, dry_run=False)]
    assert pages == dry
    assert [len(page) for page in pages] == [48, 49, 19]
    assert [order.workflow_id for page in pages for order in page] == expected
    assert await pruned(ledger) == []
    assert {row[0] for row in rows(database)["endings"]} == kept


async def test_a_prune_that_was_stopped_goes_on_where_it_was(database: LedgerDatabase, ledger: Ledger) -> None:
    """What was forgotten stays forgotten; the rest is found again."""
    orders = [f"order-{number}" for number in range(60)]
    for order in orders:
        await an_old_order(database, ledger, order)
    stopped = prune(ledger, PERIOD, dry_run=False)
    first = [order.workflow_id for order in await anext(stopped)]
    await stopped.aclose()  # type: ignore[attr-defined]
    assert sorted(first + await pruned(ledger)) == sorted(orders)


async def test_workers_go_on_beside_it(database: LedgerDatabase, ledger: Ledger) -> None:
    """New orders are charged while old ones are forgotten; neither waits for the other, nothing new is touched."""
    old, new = ([f"{name}-{number}" for number in range(60)] for name in ("old", "new"))
    for order in old:
        await an_old_order(database, ledger, order)
    keeper: Ledger = await database.open()  # type: ignore[assignment]
    bank = Bank()
    charging = asyncio.gather(*(perform(ledger, bank, charge(order), lease=LONG) for order in new))
    forgotten, records = await asyncio.gather(pruned(keeper), charging)
    assert (sorted(forgotten), len(records), bank.acts("charge")) == (sorted(old), 60, 60)
    assert {row[1] for row in rows(database)["effects"]} == set(new)


async def test_an_order_that_comes_back_to_life_is_not_forgotten(postgres: Postgres) -> None:
    """Somebody begins to take its charge back meanwhile: nothing of the page is lost, the next run goes on."""
    postgres.emptied()
    database = LedgerDatabase(postgres.url())
    ledger: Ledger = await database.open()  # type: ignore[assignment]
    for order in ("order-1", "order-2"):
        await an_old_order(database, ledger, order)
    before = rows(database)
    with postgres.connect() as other:
        other.execute("BEGIN")
        other.execute("UPDATE effects SET state = 'reversing' WHERE workflow_id = 'order-2'")
        running = asyncio.ensure_future(pruned(ledger))

        async def it_waits() -> bool:
            return postgres.run("SELECT 1 FROM pg_locks WHERE NOT granted") != []

        await eventually(it_waits)
        other.execute("COMMIT")
    with pytest.raises(LedgerUnavailable, match="order-2 came back to life just now; run it again"):
        await running
    assert len(rows(database)["attempts"]) == len(before["attempts"])
    assert await pruned(ledger) == ["order-1"]
    assert await state_of(ledger, charge("order-2").key) is EffectState.REVERSING
    await database.aclose()


async def test_an_event_that_is_delivered_after_its_order_was_forgotten_is_charged_again(
    database: LedgerDatabase, ledger: Ledger
) -> None:
    """What docs/ledger-operations.md warns of, and the reason for the shortest period: before, it is adopted (I07)."""
    bank = Bank()
    await perform(ledger, bank)
    await ledger.end_order(ORDER, "completed")
    age(database, ORDER, 401)
    await perform(ledger, bank)
    assert bank.acts("charge") == 1
    await pruned(ledger)
    await perform(ledger, bank)
    assert bank.acts("charge") == 2


async def test_a_run_that_comes_back_after_its_order_was_forgotten_takes_nothing_back(
    database: LedgerDatabase, ledger: Ledger
) -> None:
    """A compensation finds nothing, and leaves a tombstone that keeps a late charge from happening (T02)."""
    await an_old_order(database, ledger, ORDER)
    await pruned(ledger)
    bank = Bank()
    assert (await undo(ledger, bank)).state is EffectState.VOIDED
    assert bank.calls == []


@pytest.mark.parametrize("period", [timedelta(days=29, hours=23), timedelta(seconds=1)])
async def test_a_period_in_which_events_are_still_delivered_again_is_refused(ledger: Ledger, period: timedelta) -> None:
    """With the reason; the shortest one is taken."""
    with pytest.raises(InvalidInput, match=r"at least 30 days .*\(P30D\): what is forgotten can be charged again"):
        await anext(prune(ledger, period, dry_run=True))
    assert [page async for page in prune(ledger, SHORTEST_PERIOD, dry_run=True)] == []


async def settled_orders(database: LedgerDatabase, days: Iterable[float]) -> None:
    """Orders that ended so many days ago."""
    ledger: Ledger = await database.open()  # type: ignore[assignment]
    for number, ago in enumerate(days):
        await an_old_order(database, ledger, f"order-{number}", days=ago)


async def test_the_verb_counts_forgets_and_says_so(
    database: LedgerDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For people and for programs; a dry run changes nothing, a second run finds nothing."""
    await settled_orders(database, [401, 402, 399, 31, 29])
    unconfigure(tmp_path, monkeypatch)
    monkeypatch.setenv("ORDERFLOW_LEDGER_URL", database.url)
    before = rows(database)
    db = partial(asyncio.to_thread, orderflow, "db", "prune")
    dry = await db("--dry-run")
    assert (dry.code, dry.out) == (0, f"would forget 2 orders with 2 effects, 2 attempts, {NONE}\n")
    assert rows(database) == before
    monkeypatch.setattr("orderflow.cli.database._TOLD_EVERY", 2)
    assert ((await db("--dry-run")).err, (await db("--dry-run", "--json")).err) == ("2 orders so far\n", "")
    counts = {"orders": 2, "effects": 2, "attempts": 2, "review_items": 0, "events": 0, "unstarted_events": 0}
    assert (await db("--json")).json == {"older_than": "P400D", "dry_run": False, **counts}
    assert (await db()).out == f"forgot 0 orders with 0 effects, 0 attempts, {NONE}\n"
    assert (await db("--older-than", "P30D", "--json")).json["orders"] == 2
    assert len(rows(database)["endings"]) == 1


@pytest.mark.parametrize(
    ("period", "says"),
    [("P29D", "at least 30 days"), ("P1Y", "must be an ISO 8601 duration"), ("400", "must be an ISO 8601 duration")],
)
async def test_the_verb_refuses_a_period_with_the_reason(
    period: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O01: exit code 2 and one line."""
    unconfigure(tmp_path, monkeypatch)
    assert (await asyncio.to_thread(orderflow, "db", "upgrade")).code == 0
    ran = await asyncio.to_thread(orderflow, "db", "prune", "--older-than", period)
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1)
    assert says in ran.err


@pytest.mark.parametrize(
    ("role", "code"), [("orderflow_keeper", 0), ("orderflow_operator", 3), ("orderflow_worker", 3)]
)
async def test_a_keeper_prunes_and_nobody_else(
    postgres: Postgres, role: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator's and a worker's users can count what would go, and may not delete it."""
    postgres.emptied()
    database = LedgerDatabase(postgres.url())
    await settled_orders(database, [401])
    unconfigure(tmp_path, monkeypatch)
    monkeypatch.setenv("ORDERFLOW_LEDGER_URL", postgres.url(user=postgres.member(role)))
    assert (await asyncio.to_thread(orderflow, "db", "prune", "--dry-run", "--json")).json["orders"] == 1
    ran = await asyncio.to_thread(orderflow, "db", "prune")
    assert ran.code == code
    assert code == 0 or "permission denied for table attempts; this takes another role" in ran.err
    assert len(rows(database)["effects"]) == (0 if code == 0 else 1)
    await database.aclose()
