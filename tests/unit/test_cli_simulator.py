"""`orderflow simulator log`, `fault` and `reset` over the log in the state folder."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from orderflow.domain.effects import Unknown
from orderflow.providers.simulated import SimulatedWorld
from tests.support.command_line import orderflow, unconfigure
from tests.support.providers import act, within

LOG = Path(".orderflow/simulator.jsonl")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to run in, with nothing configured."""
    return unconfigure(tmp_path, monkeypatch)


@pytest.fixture
def corrupt_log() -> None:
    """A log that somebody has written into."""
    LOG.parent.mkdir()
    LOG.write_bytes(b"{}\nnonsense\n")


@pytest.mark.usefixtures("corrupt_log")
async def test_a_corrupt_log_is_found_by_doctor_and_stops_no_provider() -> None:
    """An act on it is neither done nor refused: the order waits until a person has put the file right."""
    told = {check["name"]: check for check in orderflow("doctor", "--json").json["checks"]}
    assert told["providers"]["health"] == "fail"
    assert f"{LOG} line 1 is no line of a simulator's log" in told["providers"]["says"]
    payments = SimulatedWorld(LOG).provider("payments")
    charge, refund = act("charge", "order-1"), act("refund", "order-1")
    for asked in (payments.perform(charge), payments.undo(refund, charge), payments.lookup(charge)):
        answer = await within(asked)
        assert isinstance(answer, Unknown)
        assert "corrupt" in answer.detail
    assert await within(payments.list(datetime.now(UTC))) is None


def test_looking_at_a_world_that_was_never_used_makes_none() -> None:
    """`simulator log` in the wrong folder leaves nothing there."""
    assert orderflow("simulator", "log").code == 0
    assert orderflow("simulator", "log", "--json").json == []
    assert not LOG.exists()


async def test_a_fault_that_was_ordered_strikes() -> None:
    """The command and the worker share one world."""
    ran = orderflow("simulator", "fault", "--operation", "charge", "--kind", "decline", "--order", "order-1")
    assert ran.code == 0
    payments = SimulatedWorld(LOG).provider("payments")
    answer = await within(payments.perform(act("charge", "order-1")))
    assert answer.answer == "declined"
    lines = orderflow("simulator", "log").out.splitlines()
    assert "decline at charge" in lines[1]
    assert "declined" in lines[2]


def test_seconds_become_the_time_of_the_fault() -> None:
    """Seconds are what people think in."""
    ran = orderflow(
        *(
            "simulator",
            "fault",
            "--operation",
            "charge",
            "--kind",
            "delay",
            "--seconds",
            "1.5",
            "--times",
            "3",
            "--json",
        )
    )
    assert ran.json["injected"] | {"milliseconds": 1500, "times": 3, "kind": "delay"} == ran.json["injected"]


def test_the_log_can_be_narrowed_to_one_order() -> None:
    """Among thousands."""
    inventory = SimulatedWorld(LOG).provider("inventory")

    async def reserve() -> None:
        for order in ("order-1", "order-2"):
            await within(inventory.perform(act("reserve", order)))

    asyncio.run(reserve())
    told = orderflow("simulator", "log", "--order", "order-2", "--json").json
    assert [line["workflow_id"] for line in told] == ["order-2"]


def test_reset_begins_anew() -> None:
    """The file keeps what was before."""
    orderflow("simulator", "fault", "--operation", "charge", "--kind", "decline")
    assert orderflow("simulator", "reset").code == 0
    assert [line["kind"] for line in orderflow("simulator", "log", "--json").json] == ["reset"]
    assert len(LOG.read_text().splitlines()) == 2


@pytest.mark.parametrize("verb", [("log",), ("reset",), ("fault", "--operation", "charge", "--kind", "decline")])
def test_a_log_that_cannot_be_used_is_told(verb: tuple[str, ...]) -> None:
    """Something else stands in its place."""
    LOG.mkdir(parents=True)
    ran = orderflow("simulator", *verb)
    assert ran.code == 3
    assert "simulator.jsonl" in ran.err


def test_a_file_that_is_no_log_is_told() -> None:
    """And what to do with it."""
    LOG.parent.mkdir()
    LOG.write_text("hello\nworld\n")
    ran = orderflow("simulator", "log")
    assert ran.code == 2
    assert "remove the file" in ran.err
