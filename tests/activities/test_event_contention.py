"""Any ledger with several doors on it: the database decides which delivery is the first; the others are told so."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pytest

from orderflow.ledger.events import Arrival, Delivery
from orderflow.ledger.review import Ledger
from tests.support.events import NOW, delivery
from tests.support.ledger import LedgerDatabase
from tests.support.observing import eventually
from tests.support.postgres import Postgres

pytestmark = pytest.mark.timeout(120)

WITHIN = 60.0
DOORS = 4
DELIVERIES = 50


async def delivered(database: LedgerDatabase, doors: Sequence[Sequence[Delivery]]) -> list[str]:
    """Let a process for each list take it in, all from one moment on; what came of each. None may say anything else."""
    all_ready = asyncio.Barrier(len(doors))

    async def takes_in(own: Sequence[Delivery]) -> list[str]:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.support.deliverer", database.url,
            cwd=Path(__file__).parents[2], stdin=PIPE, stdout=PIPE, stderr=PIPE,
        )  # fmt: skip
        try:
            async with asyncio.timeout(WITHIN):
                assert await process.stdout.readline() == b"ready\n"  # type: ignore[union-attr]
                await all_ready.wait()
                out, err = await process.communicate(json.dumps([asdict(one) for one in own]).encode() + b"\n")
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert (process.returncode, err) == (0, b"")
        said: list[str] = json.loads(out)
        return said

    return [arrival for said in await asyncio.gather(*map(takes_in, doors)) for arrival in said]


@pytest.fixture
async def ledger(database: LedgerDatabase) -> Ledger:
    """A ledger that is there before the doors."""
    opened: Ledger = await database.open()  # type: ignore[assignment]
    return opened


def shared(deliveries: Sequence[Delivery]) -> list[Sequence[Delivery]]:
    """The deliveries dealt out to the doors."""
    return [deliveries[door::DOORS] for door in range(DOORS)]


@pytest.mark.parametrize("nonces", ["one", "each"])
async def test_identical_deliveries_at_once_are_one_event(
    database: LedgerDatabase, ledger: Ledger, nonces: str
) -> None:
    """I02: one is new, all others may start the same order; never an error, with one nonce or one for each."""
    sent = [delivery(timestamp=NOW + (number if nonces == "each" else 0)) for number in range(DELIVERIES)]
    assert Counter(await delivered(database, shared(sent))) == {"new": 1, "resumed": DELIVERIES - 1}
    assert database.run("SELECT COUNT(*) FROM events") == [(1,)]
    assert database.run("SELECT COUNT(*) FROM nonces") == [(DELIVERIES if nonces == "each" else 1,)]
    await ledger.event_started("/shop", "1", "fp1:a")
    late = [delivery(timestamp=NOW - 1 - (number if nonces == "each" else 0)) for number in range(DELIVERIES)]
    others = {"duplicate": DELIVERIES} if nonces == "each" else {"duplicate": 1, "replayed": DELIVERIES - 1}
    assert Counter(await delivered(database, shared(late))) == others


async def test_one_nonce_with_many_events_at_once_takes_one_in(database: LedgerDatabase, ledger: Ledger) -> None:
    """W05: whoever is first keeps it; of the others nothing is written."""
    sent = [delivery(str(number)) for number in range(DELIVERIES)]
    assert Counter(await delivered(database, shared(sent))) == {"new": 1, "replayed": DELIVERIES - 1}
    assert database.run("SELECT COUNT(*) FROM events") == database.run("SELECT COUNT(*) FROM nonces") == [(1,)]


async def test_one_identity_with_two_contents_at_once_is_a_conflict(database: LedgerDatabase, ledger: Ledger) -> None:
    """I01: one content is the event's; every delivery of the other one is a conflict, and keeps no nonce."""
    sent = [delivery(timestamp=NOW + number, fingerprint=f"fp1:{number % 8 // 4}") for number in range(48)]
    assert Counter(await delivered(database, shared(sent))) == {"new": 1, "resumed": 23, "conflict": 24}
    assert database.run("SELECT COUNT(*) FROM nonces") == [(24,)]


async def test_many_events_at_once_are_all_new(database: LedgerDatabase, ledger: Ledger) -> None:
    """Nobody stands in another's way."""
    sent = [delivery(str(number), timestamp=NOW + number) for number in range(200)]
    assert Counter(await delivered(database, shared(sent))) == {"new": 200}


async def test_a_nonce_that_another_door_keeps_at_this_moment_takes_its_event_back(postgres: Postgres) -> None:
    """W05: on PostgreSQL the second of two events waits for the first one's nonce, and is then judged anew."""
    postgres.emptied()
    database = LedgerDatabase(postgres.url())
    ledger: Ledger = await database.open()  # type: ignore[assignment]
    with postgres.connect() as other:
        other.execute("BEGIN")
        other.execute(f"INSERT INTO nonces VALUES ('shop', 'msg_1', {NOW}, '/shop', 'first')".encode())
        running = asyncio.ensure_future(ledger.receive(delivery("second")))

        async def it_waits() -> bool:
            return postgres.run("SELECT 1 FROM pg_locks WHERE NOT granted") != []

        await eventually(it_waits)
        other.execute("COMMIT")
    assert await running is Arrival.REPLAYED
    assert database.run("SELECT COUNT(*) FROM events") == [(0,)]
    assert await ledger.receive(delivery("second", timestamp=NOW + 1)) is Arrival.NEW
    await database.aclose()
