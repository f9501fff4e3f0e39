"""The simulated world's own rules: one log, shared by processes, is all the state there is."""

import asyncio
import json
import signal
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError

from orderflow.domain.effects import Absent, Busy, Done, Refused, Unknown
from orderflow.domain.errors import InvalidInput
from orderflow.providers.simulated import PROVIDERS, Fault, SimulatedWorld
from orderflow.providers.simulation import rules
from orderflow.providers.simulation.books import Books
from orderflow.providers.simulation.journal import Journal
from tests.support.providers import Backend, act, do, seen, within


async def test_a_new_process_finds_the_same_world(world: SimulatedWorld, tmp_path: Path, order: str) -> None:
    """State and faults are a fold over the file: nothing is lost by a restart, and no fault strikes twice."""
    here = Backend(world, {name: world.provider(name) for name in PROVIDERS})
    here.fault("busy", "charge", order, times=2)
    await do(here, act("reserve", order, quantity=3))
    assert await do(here, act("charge", order)) == Busy()

    restarted = SimulatedWorld(tmp_path / "state" / "log.jsonl")
    there = Backend(restarted, {name: restarted.provider(name) for name in PROVIDERS})

    assert restarted.stock(f"sku-{order}") == 997
    assert await do(there, act("charge", order)) == Busy()
    assert isinstance(await do(there, act("charge", order)), Done)
    assert world.net_charged(order) == 10_00
    assert world.log() == restarted.log()


async def test_a_reset_world_is_a_new_one(world: SimulatedWorld, order: str) -> None:
    """Acts, stock and faults are gone, for other processes too; the log begins with the reset."""
    here = Backend(world, {name: world.provider(name) for name in PROVIDERS})
    other = SimulatedWorld(world.path)
    await do(here, act("reserve", order))
    here.fault("decline", "charge", order)
    assert other.stock(f"sku-{order}") == 998

    world.reset()

    assert [line["kind"] for line in other.log()] == ["reset"]
    assert other.stock(f"sku-{order}") == 1000
    assert isinstance(await do(here, act("charge", order)), Done)


@pytest.mark.parametrize("torn", [b"{", b'{"seq":3,"kind":"act","outcome":"do', b"\x00\x00\x00"])
async def test_a_torn_last_line_is_cut_off(world: SimulatedWorld, order: str, torn: bytes) -> None:
    """A process that was killed in the middle of a line leaves no damage: the line never was."""
    here = Backend(world, {name: world.provider(name) for name in PROVIDERS})
    await do(here, act("reserve", order))
    with world.path.open("ab") as file:
        file.write(torn)

    for reader in (world, SimulatedWorld(world.path)):
        assert [line["outcome"] for line in reader.log()] == ["done"]
    assert isinstance(await do(here, act("charge", order)), Done)
    assert [line["seq"] for line in SimulatedWorld(world.path).log()] == [1, 2]


def test_a_damaged_line_is_named(world: SimulatedWorld) -> None:
    """A file that is no log of ours is said to be, with file and line, and left alone."""
    world.reset()
    with world.path.open("ab") as file:
        file.write(b"hello\n")

    for reader in (world, SimulatedWorld(world.path)):
        with pytest.raises(InvalidInput, match="line 2"):
            reader.log()
    assert world.path.read_bytes().endswith(b"hello\n")


def test_a_removed_file_is_an_empty_world(world: SimulatedWorld) -> None:
    """Somebody removes the state folder of a running process: it goes on with an empty world."""
    world.reset()
    world.path.unlink()

    assert world.log() == []


async def test_a_delay_whose_process_died_is_absent_after_its_time(world: SimulatedWorld, order: str) -> None:
    """A started act blocks its key while it may still act, and no longer; once said to be absent it never acts."""
    here = Backend(world, {name: world.provider(name) for name in PROVIDERS})
    here.fault("delay", "charge", order, milliseconds=60_000)
    asked = act("charge", order)
    call = asyncio.create_task(do(here, asked))
    await seen(lambda: here.outcomes(asked) == ["started"])
    await world.aclose()
    await asyncio.gather(call, return_exceptions=True)
    assert await within(here.of(asked).lookup(asked)) == Busy()

    _age(world.path, timedelta(minutes=2))
    revived = SimulatedWorld(world.path)
    later = Backend(revived, {name: revived.provider(name) for name in PROVIDERS})

    assert await within(later.of(asked).lookup(asked)) == Absent()
    with Journal(world.path, Books).turn() as turn:  # the sleeper was only slow, and wakes up now
        assert isinstance(rules.perform(turn, asked, started=2).answer, Unknown)
    assert revived.net_charged(order) == 0
    assert isinstance(await do(later, asked), Done)


def _age(path: Path, by: timedelta) -> None:
    lines = [json.loads(raw) for raw in path.read_bytes().splitlines()]
    for line in lines:
        line["at"] = (datetime.fromisoformat(line["at"]) - by).isoformat()
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


async def test_a_log_that_cannot_be_written_leaves_the_outcome_unknown(world: SimulatedWorld, order: str) -> None:
    """A provider never raises for its own trouble, and never says "failed" when it cannot know."""
    world.path.mkdir()

    answer = await within(world.provider("payments").perform(act("charge", order)))

    assert isinstance(answer, Unknown)


async def test_items_that_make_no_sense_are_refused(world: SimulatedWorld, order: str) -> None:
    """Inventory reserves whole positive quantities of named SKUs, or nothing."""
    for items in ([], "x", [{"sku": "a"}], [{"sku": "a", "quantity": True}], [{"sku": "a", "quantity": 0}], [1]):
        asked = act("reserve", order).model_copy(update={"intent": {"items": items}})

        assert await within(world.provider("inventory").perform(asked)) == Refused(code="invalid_items")


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "decline", "operation": "lookup"},
        {"kind": "pending", "operation": "lookup"},
        {"kind": "manual_review", "operation": "charge"},
        {"kind": "delay", "operation": "charge"},
        {"kind": "decline", "operation": "charge", "milliseconds": 5},
        {"kind": "busy", "operation": "charge", "commit": False},
        {"kind": "busy", "operation": "charge", "code": "x"},
        {"kind": "decline", "operation": "charge", "code": "free text"},
        {"kind": "busy", "operation": "charge", "times": 0},
        {"kind": "busy", "operation": "charge", "times": True},
        {"kind": "explode", "operation": "charge"},
        {"kind": "busy", "operation": "CHARGE"},
        {"kind": "busy", "operation": "charge", "often": 2},
        {"kind": "busy"},
        {"kind": "forget_keys", "operation": "lookup"},
        {"kind": "forget_keys", "operation": "charge", "times": 2},
        {"kind": "forget_keys", "operation": "charge", "milliseconds": 5},
    ],
    ids=str,
)
def test_a_fault_that_could_not_strike_as_meant_is_refused(fault: dict[str, object]) -> None:
    """A combination without a meaning is refused instead of ignored."""
    with pytest.raises(ValidationError):
        Fault.model_validate(fault)


ACTOR = """
import asyncio, sys
from pathlib import Path
from orderflow.domain.effects import Act
from orderflow.providers.simulated import SimulatedWorld

name, path, count = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])

def act(provider, operation, key, order):
    intent = {"items": [{"sku": "shared", "quantity": 1}]}
    return Act(key=key, workflow_id=order, step=operation, provider=provider, operation=operation, intent=intent,
               intent_digest="d", amount_minor=100 if operation == "charge" else None)

async def main():
    world = SimulatedWorld(path)
    inventory, payments = world.provider("inventory"), world.provider("payments")
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(count):
        await inventory.perform(act("inventory", "reserve", f"{name}-{number}", name))
        await payments.perform(act("payments", "charge", f"shared-{number}", "shared"))

asyncio.run(main())
"""


def _actor(name: str, path: Path, count: int) -> subprocess.Popen[bytes]:
    """A process that is ready to act, and begins when it is told to."""
    actor = subprocess.Popen(
        [sys.executable, "-c", ACTOR, name, str(path), str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    if actor.stdout is not None:
        actor.stdout.readline()
    return actor


def _begin(actor: subprocess.Popen[bytes]) -> None:
    if actor.stdin is not None:
        actor.stdin.write(b"\n")
        actor.stdin.flush()


async def _ended(process: subprocess.Popen[bytes]) -> int:
    _, errors = await within(asyncio.to_thread(process.communicate), 60)
    assert errors == b""
    return process.returncode


async def test_processes_share_one_world_exactly(world: SimulatedWorld) -> None:
    """Two processes, 50 reservations each and the same 50 charges: stock, money and numbering are exact."""
    actors = [_actor(name, world.path, 50) for name in ("a", "b")]
    for actor in actors:
        _begin(actor)

    assert [await _ended(actor) for actor in actors] == [0, 0]

    log = world.log()
    assert [line["seq"] for line in log] == list(range(1, 201))
    assert world.stock("shared") == 900
    assert world.net_charged("shared") == 50 * 100
    charges = [line["outcome"] for line in log if line["operation"] == "charge"]
    assert (charges.count("done"), charges.count("replayed")) == (50, 50)


async def test_a_killed_process_leaves_a_usable_log(world: SimulatedWorld, order: str) -> None:
    """SIGKILL in the middle of its work: the others go on at once, and every line that was written counts."""
    actor = _actor("victim", world.path, 100_000)
    _begin(actor)
    await seen(lambda: len(world.log()) >= 20)
    actor.send_signal(signal.SIGKILL)
    assert await _ended(actor) == -signal.SIGKILL

    here = Backend(world, {name: world.provider(name) for name in PROVIDERS})
    assert isinstance(await do(here, act("charge", order)), Done)
    log = world.log()
    assert [line["seq"] for line in log] == list(range(1, len(log) + 1))
    assert world.stock("shared") == 1000 - len([line for line in log if line["operation"] == "reserve"])
