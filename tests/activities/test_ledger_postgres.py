"""The ledger on PostgreSQL: what it waits for and tries again, what it survives, and what it refuses to open."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from threading import Thread
from typing import Any, Final

import psycopg
import pytest

from orderflow.domain.effects import EffectState
from orderflow.domain.errors import EffectBusy, InvalidSettings, LedgerUnavailable
from orderflow.ledger import Claim, EffectRecord, postgres
from orderflow.ledger.postgres import PostgresLedger
from orderflow.ledger.schema import LATEST
from orderflow.ledger.transactions import Transaction, claim, settle
from tests.support.bank import Bank, Told
from tests.support.ledger import CHARGE, LONG, NO_TIME, PATIENT, charge, perform
from tests.support.ledger_states import DONE, claimed, committed, pending
from tests.support.observing import eventually
from tests.support.postgres import GUARDED, PASSWORD, Postgres

pytestmark = pytest.mark.timeout(60)

Connection = psycopg.Connection[tuple[Any, ...]]

FIRST_INSERT: Final = """
INSERT INTO effects (
    key, workflow_id, step, provider, operation, intent_digest, state, token, lease_until, amount_minor, currency,
    created_at, updated_at, settled_at
) VALUES (%s, 'order-1', 'charge', 'payments', 'charge', %s, %s, 1, %s, 1000, 'EUR', 1, 1, %s)
"""


@pytest.fixture
def server(postgres: Postgres) -> Postgres:
    """The server, its ledger without an effect."""
    postgres.emptied()
    return postgres


Open = Callable[..., Awaitable[PostgresLedger]]


@pytest.fixture
async def open_ledger(server: Postgres) -> AsyncIterator[Open]:
    """Opens one more ledger; all are closed with the test."""
    opened: list[PostgresLedger] = []

    async def open_at(url: str = "", **options: Any) -> PostgresLedger:
        opened.append(await PostgresLedger.open(url or server.url(), **options))
        return opened[-1]

    yield open_at
    for ledger in opened:
        await ledger.aclose()


@pytest.fixture
async def ledger(open_ledger: Open) -> PostgresLedger:
    """A ledger with two connections."""
    return await open_ledger(connections=2)


def sessions(server: Postgres) -> list[tuple[int, str, str]]:
    """Process id, state and wait of each connection of the ledger."""
    return server.run(
        "SELECT pid, state, coalesce(wait_event_type, '') FROM pg_stat_activity"
        " WHERE application_name = 'orderflow' AND datname = 'ledger'"
    )


@contextmanager
def another_transaction(server: Postgres, *, state: str, lease_ms: int) -> Iterator[Connection]:
    """Somebody else's first insert of the charge, not committed yet."""
    with server.connect() as other:
        other.execute("BEGIN")
        until = lease_ms and int(time.time() * 1000) + lease_ms
        settled_at = None if state == "pending" else 1
        other.execute(FIRST_INSERT, (CHARGE.key, CHARGE.intent_digest, state, until, settled_at))
        yield other


async def until_one_waits(server: Postgres) -> None:
    """Wait until a connection of the ledger waits for a lock, and then for the half second that the case names."""

    async def look() -> bool:
        return any(wait == "Lock" for _, _, wait in sessions(server))

    await eventually(look)
    await asyncio.sleep(0.5)


@pytest.mark.parametrize("ending", ["COMMIT", "ROLLBACK"])
@pytest.mark.parametrize(("state", "lease_ms"), [("pending", 60_000), ("pending", 0), ("committed", 0)])
async def test_a_first_insert_that_is_not_committed_yet_is_waited_for(
    server: Postgres, ledger: PostgresLedger, state: str, lease_ms: int, ending: str
) -> None:
    """The second caller reads the winner's row, or is the first after all; never nothing, never both (D03)."""
    with another_transaction(server, state=state, lease_ms=lease_ms) as other:
        second = asyncio.ensure_future(ledger.claim(CHARGE, holder="two", lease=LONG))
        await until_one_waits(server)
        assert not second.done()
        other.execute(ending)
    (outcome,) = await asyncio.gather(second, return_exceptions=True)
    if ending == "ROLLBACK":
        assert isinstance(outcome, Claim)
        assert outcome.fresh
    elif state == "committed":
        assert isinstance(outcome, EffectRecord)
        assert outcome == await ledger.get(CHARGE.key)
    elif lease_ms:
        assert isinstance(outcome, EffectBusy)
        assert outcome.retry_after is not None
        assert 0 < outcome.retry_after <= 60
    else:
        assert isinstance(outcome, Claim)
        assert (outcome.fresh, outcome.record.token) == (False, 2)


async def test_a_tombstone_waits_for_a_first_insert_too(server: Postgres, ledger: PostgresLedger) -> None:
    """ON CONFLICT DO NOTHING gives no row: it is read again, and is the winner's (D03)."""
    with another_transaction(server, state="committed", lease_ms=0) as other:
        second = asyncio.ensure_future(ledger.void(CHARGE))
        await until_one_waits(server)
        other.execute("COMMIT")
    assert (await second).state is EffectState.COMMITTED


async def test_a_lease_that_was_waited_for_is_counted_from_when_it_is_given(
    server: Postgres, ledger: PostgresLedger
) -> None:
    """The clock goes on while a claim waits for a lock, so that nobody is given a lease that is partly over."""
    await pending(ledger)
    with server.connect() as other:
        other.execute("BEGIN")
        other.execute("SELECT * FROM effects FOR UPDATE")
        second = asyncio.ensure_future(ledger.claim(CHARGE, holder="two", lease=LONG))
        await until_one_waits(server)
        ((let_go,),) = other.execute("SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint").fetchall()
        other.execute("COMMIT")
    assert isinstance(await second, Claim)
    ((until,),) = server.run("SELECT lease_until FROM effects")
    assert until >= let_go + LONG // timedelta(milliseconds=1)


@contextmanager
def failing_commits(server: Postgres, sqlstate: str, times: int) -> Iterator[None]:
    """Let the database refuse COMMIT after an attempt was begun, so many times: sequences never roll back."""
    server.run(
        "CREATE SEQUENCE refused; CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        f" IF nextval('refused') <= {times} THEN RAISE EXCEPTION 'injected' USING ERRCODE = '{sqlstate}'; END IF;"
        " RETURN NULL; END $$;"
        "CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON attempts DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION refuse()"
    )
    try:
        yield
    finally:
        server.run("DROP TRIGGER refuse ON attempts; DROP FUNCTION refuse; DROP SEQUENCE refused")


@pytest.mark.parametrize("sqlstate", ["40001", "40P01"])
async def test_a_commit_that_the_database_refuses_is_tried_again_from_the_start(
    server: Postgres, ledger: PostgresLedger, sqlstate: str
) -> None:
    """Twice at COMMIT: the effect is recorded once, the provider is called once, outside of it (D05)."""
    bank = Bank()
    with failing_commits(server, sqlstate, times=2):
        record = await perform(ledger, bank)
    assert (record.state, record.token) == (EffectState.COMMITTED, 1)
    assert bank.calls == [("perform", CHARGE.key)]
    assert [attempt.ended for attempt in await ledger.attempts("order-1")] == ["done"]


async def test_trying_again_ends(server: Postgres, ledger: PostgresLedger) -> None:
    """A database that always refuses is one that cannot be used now; nothing was sent (D05)."""
    bank = Bank()
    with failing_commits(server, "40001", times=1000), pytest.raises(LedgerUnavailable, match="injected"):
        await perform(ledger, bank)
    assert bank.calls == []
    assert await ledger.get(CHARGE.key) is None


async def test_of_two_that_deadlock_both_come_to_their_end(server: Postgres, open_ledger: Open) -> None:
    """The one that the database picks, here ours as it looks first, is tried again (D05)."""
    ledger = await open_ledger(server.url(options="-c%20deadlock_timeout%3D50"))
    one, two = charge("order-1"), charge("order-2")
    for act in (one, two):
        await ledger.claim(act, holder="x", lease=NO_TIME)
    begun: list[Thread] = []

    def lock_the_other_way() -> None:
        with server.connect() as other:
            other.execute("BEGIN")
            other.execute("SELECT * FROM effects WHERE key = %s FOR UPDATE", (two.key,))
            other.execute("SELECT * FROM effects WHERE key = %s FOR UPDATE", (one.key,))
            other.execute("COMMIT")

    def both() -> Transaction[None]:
        yield from claim(one, holder="x", lease=NO_TIME)
        begun.append(Thread(target=lock_the_other_way))
        if len(begun) == 1:
            begun[0].start()
            while server.run("SELECT 1 FROM pg_locks WHERE NOT granted") == []:
                time.sleep(0.01)
        yield from claim(two, holder="x", lease=NO_TIME)

    await ledger._write(both)
    begun[0].join(10)
    assert len(begun) == 2
    assert server.run("SELECT token FROM effects") == [(2,), (2,)]


async def test_ten_orders_share_two_connections_while_providers_work(server: Postgres, ledger: PostgresLedger) -> None:
    """Nothing is held while a provider is called: no transaction, no connection (D07)."""
    gate, orders = asyncio.Event(), [charge(f"order-{number}") for number in range(10)]
    bank = Bank()
    bank.told.extend(Told(DONE, acts=True, gate=gate) for _ in orders)
    running = [asyncio.create_task(perform(ledger, bank, act, lease=LONG)) for act in orders]

    async def all_are_there() -> bool:
        return len(bank.calls) == len(orders)

    await eventually(all_are_there)
    found = sessions(server)
    assert 0 < len(found) <= 2
    assert {state for _, state, _ in found} == {"idle"}
    gate.set()
    records = await asyncio.gather(*running)
    assert {record.state for record in records} == {EffectState.COMMITTED}
    assert len(sessions(server)) <= 2


def end_sessions(server: Postgres) -> int:
    """Cut every connection of a ledger; gives how many there were."""
    ended = server.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'orderflow'")
    assert set(ended) == {(True,)}
    return len(ended)


async def test_every_session_is_bounded_by_the_server_too(ledger: PostgresLedger) -> None:
    """A worker that is stopped within a transaction holds its locks for seconds, not for ever (D07)."""
    names = ("statement_timeout", "idle_in_transaction_session_timeout", "application_name")

    async def shown(connection: postgres.Connection) -> list[str]:
        found = [await (await connection.execute(f"SHOW {name}".encode())).fetchone() for name in names]
        return [value for row in found if row for value in row.values()]

    assert await ledger._call(shown) == ["5s", "5s", "orderflow"]


async def test_a_transaction_that_sleeps_is_ended_by_the_server_and_tried_again(
    server: Postgres, open_ledger: Open
) -> None:
    """Whoever waits for its locks goes on; when it wakes up, nothing of it was kept, so it begins anew."""
    url = server.url(options="-c%20idle_in_transaction_session_timeout%3D200")
    ledger, begun = await open_ledger(url, connections=1), 0

    def sleepy() -> Transaction[object]:
        nonlocal begun
        begun += 1
        outcome = yield from claim(CHARGE, holder="sleepy", lease=LONG)
        if begun == 1:
            time.sleep(0.6)
        yield "get_effect", {"key": CHARGE.key}
        return outcome

    outcome = await ledger._write(sleepy)
    assert isinstance(outcome, Claim)
    assert (outcome.fresh, begun) == (True, 2)


async def test_connections_that_the_server_closed_are_replaced(server: Postgres, open_ledger: Open) -> None:
    """However many: no caller hears of it, as what was to run on them had not begun."""
    ledger, all_are_open = await open_ledger(connections=8), asyncio.Barrier(8)

    async def wait(_: postgres.Connection) -> None:
        await asyncio.wait_for(all_are_open.wait(), 30)

    await asyncio.gather(*(ledger._call(wait) for _ in range(8)))
    assert end_sessions(server) == 8
    assert (await claimed(ledger)).fresh


async def test_a_settlement_whose_answer_was_lost_was_made_and_is_adopted(
    server: Postgres, ledger: PostgresLedger
) -> None:
    """D06: run again it finds the claim gone; the next attempt finds what was written, and asks nobody."""
    held, bank = await claimed(ledger), Bank()

    def cut() -> Transaction[object]:
        outcome = yield from settle(held, DONE)
        if outcome is not None:
            end_sessions(server)
        yield "get_effect", {"key": CHARGE.key}
        return outcome

    assert await ledger._write_once(cut) is None
    assert (await perform(ledger, bank)).state is EffectState.COMMITTED
    assert bank.calls == []


async def test_a_claim_whose_answer_was_lost_was_made_and_ends_with_its_lease(
    server: Postgres, ledger: PostgresLedger
) -> None:
    """D06: nobody has it until then, not even who asked; then it is looked up before anything is sent (I05)."""
    bank = Bank()

    def cut() -> Transaction[object]:
        yield from claim(CHARGE, holder="one", lease=timedelta(seconds=1))
        end_sessions(server)
        yield "get_effect", {"key": CHARGE.key}
        return None

    with pytest.raises(EffectBusy):
        await ledger._write_once(cut)
    assert (await perform(ledger, bank, patience=PATIENT)).state is EffectState.COMMITTED
    assert bank.calls == [("lookup", CHARGE.key), ("perform", CHARGE.key)]


async def test_a_server_that_died_is_unavailable_and_found_again(
    server: Postgres, ledger: PostgresLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was committed is there after its crash; nobody has to restart a worker."""
    await committed(ledger)
    record = await ledger.get(CHARGE.key)
    await server.stop()
    try:
        monkeypatch.setattr(postgres, "_WITHIN", 1.0)
        with pytest.raises(LedgerUnavailable, match="cannot be used now"):
            await ledger.get(CHARGE.key)
        with pytest.raises(LedgerUnavailable, match=r"cannot be used now.*check ORDERFLOW_LEDGER_URL"):
            await PostgresLedger.open(server.url())
    finally:
        await server.start()
    monkeypatch.undo()
    assert await ledger.get(CHARGE.key) == record


async def test_a_server_that_hangs_is_unavailable_too(
    server: Postgres, ledger: PostgresLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call ends, whatever the server does, so that a worker can be stopped."""
    await claimed(ledger)
    hanging = [pid for pid, _, _ in sessions(server)]
    monkeypatch.setattr(postgres, "_WITHIN", 0.3)
    for pid in hanging:
        os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(LedgerUnavailable, match="does not answer in time"):
            await ledger.get(CHARGE.key)
    finally:
        for pid in hanging:
            os.kill(pid, signal.SIGCONT)
    monkeypatch.undo()
    assert await ledger.get(CHARGE.key) is not None


async def test_the_check_says_what_and_where(server: Postgres, ledger: PostgresLedger) -> None:
    """One line for `doctor`."""
    line = await ledger.check()
    assert line.startswith("PostgreSQL database ledger at ")
    assert line.endswith(f"schema {LATEST}")
    assert "\n" not in line


async def test_the_check_notices_who_may_not_write(server: Postgres, open_ledger: Open) -> None:
    """A user without rights is told so before the first order is, with what to grant."""
    server.run(f"REVOKE orderflow_worker FROM {GUARDED}")
    server.run(f"GRANT SELECT ON effects, attempts, ledger_schema TO {GUARDED}")
    ledger = await open_ledger(server.url(user=GUARDED), password=PASSWORD)
    with pytest.raises(
        InvalidSettings, match=r'guarded lacks INSERT on attempts, .*GRANT orderflow_worker TO "guarded"'
    ):
        await ledger.check()
    assert await ledger.get(CHARGE.key) is None
    with pytest.raises(LedgerUnavailable, match="permission denied"):
        await claimed(ledger)


def secretive(server: Postgres) -> dict[str, tuple[str, str | None, str]]:
    """Addresses that cannot be used, each with its password and what is said of it."""
    guarded, secret = server.url(user=GUARDED), PASSWORD
    return {
        "wrong password": (guarded, f"not{secret}", "password authentication failed.*ORDERFLOW_LEDGER_PASSWORD"),
        "no password": (guarded, None, "no password supplied; set ORDERFLOW_LEDGER_PASSWORD"),
        "no such user": (server.url(user="nobody"), secret, 'role "nobody" does not exist; create that user'),
        "no such database": (server.url("nowhere"), secret, 'database "nowhere" does not exist; create that database'),
        "bad escape": (f"postgresql://u:{secret}%zz@h/d", None, "is no address of a database"),
        "unknown parameter": (f"postgresql://u:{secret}@h/d?pasword={secret}", None, "is no address of a database"),
        "bad value": (server.url(sslmode="maybe"), secret, "sslmode.*correct ORDERFLOW_LEDGER_URL"),
        "no tables": (server.url("postgres"), secret, "has no tables yet; run `orderflow db upgrade`"),
    }


@pytest.mark.parametrize(
    "fault",
    [
        "wrong password", "no password", "no such user", "no such database", "bad escape", "unknown parameter",
        "bad value", "no tables",
    ],
)  # fmt: skip
async def test_what_somebody_has_to_put_right_is_one_line_without_the_password(server: Postgres, fault: str) -> None:
    """It says what is wrong and what to do; neither it nor its causes repeat a secret."""
    url, password, says = secretive(server)[fault]
    with pytest.raises(InvalidSettings, match=says) as refused:
        await PostgresLedger.open(url, password=password)
    assert "\n" not in refused.value.message
    error: BaseException | None = refused.value
    while error is not None:
        assert PASSWORD not in repr(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


@pytest.mark.parametrize("address", ["127.0.0.1:9", "no-such-host.invalid"])
async def test_a_server_that_is_not_there_is_unavailable(address: str) -> None:
    """It may come back: no setting is called wrong."""
    with pytest.raises(LedgerUnavailable, match="check ORDERFLOW_LEDGER_URL, and that the server runs") as refused:
        await PostgresLedger.open(f"postgresql://u:{PASSWORD}@{address}/d")
    assert PASSWORD not in repr(refused.value) + repr(refused.value.__cause__)


async def test_of_several_hosts_the_one_that_answers_is_used(server: Postgres, open_ledger: Open) -> None:
    """As libpq does it, so that a failover needs no new settings."""
    ledger = await open_ledger(server.url().replace("?host=", "?host=/nowhere,"))
    assert (await claimed(ledger)).fresh


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE effects SET state = 'done'",
        "UPDATE effects SET captured_minor = -1",
        "UPDATE effects SET amount_minor = 'ten'",
        "UPDATE effects SET state = 'declined'",
        "INSERT INTO attempts (key, token, holder, started_at) VALUES ('nowhere', 1, 'x', 0)",
    ],
)
async def test_the_database_refuses_rows_that_cannot_be(server: Postgres, ledger: PostgresLedger, damage: str) -> None:
    """Whoever writes past the ledger still meets its rules."""
    await pending(ledger)
    with pytest.raises((psycopg.IntegrityError, psycopg.DataError)):
        server.run(damage)


@pytest.mark.parametrize("write", [PostgresLedger._write, PostgresLedger._write_once], ids=["begun", "by itself"])
async def test_a_database_with_other_defaults_changes_nothing(
    server: Postgres, open_ledger: Open, write: Callable[..., Awaitable[object]]
) -> None:
    """Under a stricter isolation level, set for all transactions, whoever waited would have to begin anew."""
    begun = []

    def counted() -> Transaction[object]:
        begun.append(1)
        return (yield from claim(CHARGE, holder="two", lease=LONG))

    server.run("ALTER DATABASE ledger SET default_transaction_isolation = 'serializable'")
    try:
        ledger = await open_ledger()
        with another_transaction(server, state="pending", lease_ms=0) as other:
            second = asyncio.ensure_future(write(ledger, counted))
            await until_one_waits(server)
            other.execute("COMMIT")
        assert isinstance(await second, Claim)
        assert begun == [1]
    finally:
        server.run("ALTER DATABASE ledger RESET default_transaction_isolation")
