"""Any sequence of deliveries, starts, endings, pauses and prunes against a model of what `EventLedger` promises."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orderflow.domain.events import workflow_id
from orderflow.ledger.events import Arrival, Delivery
from orderflow.ledger.review import Ledger
from tests.support.events import NOW, delivery, pause
from tests.support.ledger import NO_TIME, LedgerDatabase, sqlite_database

pytestmark = pytest.mark.timeout(300)

LONG_AGO = 1
IDENTITIES = [("/a", "b::caf\u00e9"), ("/a", "b::cafe\u0301"), ("/a::b", "caf\u00e9")]
DELIVERIES = st.builds(
    lambda identity, **changes: delivery(identity[1], identity[0], **changes),
    st.sampled_from(IDENTITIES),
    caller=st.sampled_from(["shop", "shop", "Shop"]),
    webhook_id=st.sampled_from(["msg_1", "msg_1", "msg_2"]),
    timestamp=st.sampled_from([NOW, NOW, LONG_AGO]),
    fingerprint=st.sampled_from(["fp1:a", "fp1:a", "fp1:a", "fp1:b"]),
)
STEPS = st.one_of(
    st.tuples(st.just("receive"), DELIVERIES),
    st.tuples(st.just("receive"), DELIVERIES),
    st.tuples(st.just("start"), st.tuples(st.sampled_from(IDENTITIES), st.sampled_from(["fp1:a", "fp1:a", "fp1:b"]))),
    st.tuples(st.just("end"), st.sampled_from(IDENTITIES)),
    st.tuples(st.just("pause"), st.sampled_from([False, False, True])),
    st.tuples(st.sampled_from(["forget_nonces", "forget_orders", "forget_unstarted"]), st.none()),
)


@dataclass
class Model:
    """The contract in plain words; `events` has the fingerprint, and whether the order was started."""

    paused: bool = False
    events: dict[tuple[str, str], tuple[str, bool]] = field(default_factory=dict)
    nonces: dict[tuple[str, str, int], tuple[str, str]] = field(default_factory=dict)
    ended: set[tuple[str, str]] = field(default_factory=set)

    def receive(self, one: Delivery) -> Arrival:
        identity, nonce = (one.source, one.event_id), (one.caller, one.webhook_id, one.timestamp)
        known, started = self.events.get(identity, (None, False))
        waits = known is not None and not started and identity not in self.ended
        if self.paused:
            return Arrival.PAUSED
        if known not in (None, one.fingerprint):
            return Arrival.CONFLICT
        if nonce in self.nonces and not (self.nonces[nonce] == identity and waits):
            return Arrival.REPLAYED
        if known is None and identity in self.ended:
            return Arrival.ELSEWHERE
        self.nonces[nonce] = identity
        if known is None:
            self.events[identity] = (one.fingerprint, False)
            return Arrival.NEW
        return Arrival.RESUMED if waits else Arrival.DUPLICATE

    def start(self, really: tuple[tuple[str, str], str]) -> None:
        identity, fingerprint = really
        if identity in self.events:
            self.events[identity] = (fingerprint, True)

    def end(self, identity: tuple[str, str]) -> None:
        self.ended.add(identity)

    def pause(self, paused: bool) -> None:
        self.paused = paused

    def forget_nonces(self, _: None) -> int:
        gone = [nonce for nonce in self.nonces if nonce[2] == LONG_AGO]
        return len([self.nonces.pop(nonce) for nonce in gone])

    def forget_orders(self, _: None) -> int:
        gone = len(self.ended)
        for identity in self.ended:
            self.events.pop(identity, None)
        self.ended.clear()
        return gone

    def forget_unstarted(self, _: None) -> int:
        gone = [known for known, (_, started) in self.events.items() if not started and known not in self.ended]
        return len([self.events.pop(known) for known in gone])


async def taken(ledger: Ledger, verb: str, given_to_it: Any) -> Any:
    """Take the step on a ledger."""
    match verb:
        case "receive":
            return await ledger.receive(given_to_it)
        case "start":
            (source, event_id), fingerprint = given_to_it
            return await ledger.event_started(source, event_id, fingerprint)
        case "end":
            return await ledger.end_order(workflow_id(*given_to_it), "completed")
        case "pause":
            return await pause(ledger, given_to_it)
        case "forget_orders":
            return len(await ledger.forget(NO_TIME, None, 100))
        case "forget_unstarted":
            return await ledger.forget_unstarted(NO_TIME)
        case _:
            return await ledger.forget_nonces(timedelta(days=1))


@pytest.fixture(params=["sqlite", "postgres"])
def doors(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[asyncio.Runner, LedgerDatabase, list[Any]]]:
    """Two ledgers on one database, as two doors have them."""
    sqlite = request.param == "sqlite"
    database = (
        sqlite_database(tmp_path / "l.db") if sqlite else LedgerDatabase(request.getfixturevalue("postgres").url())
    )
    with asyncio.Runner() as runner:
        yield runner, database, [runner.run(database.open(ledger_connections=1)) for _ in range(2)]
        runner.run(database.aclose())


def test_whatever_happens_the_ledger_says_what_the_model_says(
    doors: tuple[asyncio.Runner, LedgerDatabase, list[Any]],
) -> None:
    """W05, W06, W07, C04, I01, I12: each answer, and what is kept, whichever of two doors is asked."""
    runner, database, ledgers = doors

    @settings(max_examples=200, derandomize=True, database=None, suppress_health_check=[*HealthCheck])
    @given(st.lists(STEPS, min_size=6, max_size=25))
    def agrees(steps: list[tuple[str, Any]]) -> None:
        database.empty()
        model = Model()
        for number, (verb, given_to_it) in enumerate(steps):
            expected = getattr(model, verb)(given_to_it)
            assert runner.run(taken(ledgers[number % 2], verb, given_to_it)) == expected, (number, steps)
        events = database.run("SELECT source, event_id, fingerprint, started_at IS NOT NULL FROM events")
        nonces = database.run("SELECT caller, webhook_id, timestamp, source, event_id FROM nonces")
        assert sorted((*row[:3], bool(row[3])) for row in events) == sorted(
            (*identity, *state) for identity, state in model.events.items()
        )
        assert sorted(nonces) == sorted((*nonce, *identity) for nonce, identity in model.nonces.items())

    agrees()
