"""`orderflow submit --jsonl`: a file of many events, against a door that answers as the test says."""

import asyncio
import json
import os
import pty
import signal
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from orderflow.cli.event_lines import EventLines
from orderflow.cli.many_events import HOPELESS
from orderflow.domain.deliveries import MAX_EVENT_BYTES
from orderflow.domain.events import workflow_id
from orderflow.embedded import free_port
from tests.order_events import EXAMPLE, event
from tests.support.command_line import PATIENCE, PROGRAM, Ran, orderflow
from tests.support.observing import eventually
from tests.support.scripted_door import Received, Reply, ScriptedDoor, as_a_sender, refused, scripted_door, taken


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to run in, with the secret of a caller."""
    return as_a_sender(tmp_path, monkeypatch)


def write(count: int) -> list[bytes]:
    """A file of so many events; gives its lines."""
    lines = [json.dumps(event(id=f"e-{number}")).encode() for number in range(1, count + 1)]
    Path("events.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    return lines


def write_large() -> None:
    """A file of 3300 lines and a last one of 20 MB."""
    block = (b"x" * 60_000 + b"\n") * 100
    with Path("events.jsonl").open("wb") as file:
        for _ in range(33):
            file.write(block)
        file.write(b"y" * 20_000_000)


def submit(door: ScriptedDoor, *arguments: object) -> Ran:
    """Send the file to this door."""
    return orderflow("submit", "--jsonl", "events.jsonl", "--url", door.url, *arguments)


def number_of(received: Received) -> int:
    """Which event it is."""
    return int(json.loads(received.body)["id"].removeprefix("e-"))


def mixed(received: Received) -> Reply:
    """New, duplicate, conflict, refused in two ways, by turns; each busy once in 50 before it is taken."""
    number = number_of(received)
    match number % 10:
        case 1:
            return taken(workflow_id("/shop", f"e-{number}"), duplicate=True)
        case 2:
            return refused(409, "conflict")
        case 3:
            return refused(422, "invalid-order", ("$.data.total_minor", "must equal the sum"))
        case 4:
            return refused(403, "of-a-later-release")
        case _:
            return taken(workflow_id("/shop", f"e-{number}"))


def documents(ran: Ran) -> tuple[list[Any], Mapping[str, Any]]:
    """What it printed as JSON: the line of each event, and the summary."""
    *lines, last = [json.loads(line) for line in ran.out.splitlines()]
    return lines, last["summary"]


def test_each_line_is_sent_once_and_answers_are_counted() -> None:
    """Issue: 500 lines, by the door's own record; the table tells each answer, and which lines to look at."""
    lines = write(500)
    with scripted_door(mixed) as door:
        ran = submit(door)
    assert Counter(received.body for received in door.received) == Counter(lines)
    assert ran.code == 2
    rows = [line.rsplit(maxsplit=1) for line in ran.out.splitlines()]
    for answer, count in (("new", 300), ("duplicate", 50), ("conflict", 50), ("invalid-order", 50), ("other", 50)):
        assert [answer, str(count)] in rows
    assert ran.out.startswith("500 events\n")
    assert "the first 10 of 150 lines that failed" in ran.out
    assert [int(row[0]) for row in map(str.split, ran.out.splitlines()) if row and row[0] in {"2", "3", "4"}] == [
        2,
        3,
        4,
    ]
    assert "$.data.total_minor: must equal the sum" in ran.out


def test_programs_get_a_json_line_for_each_event_and_a_summary() -> None:
    """O01: each with its line's number."""
    write(50)
    with scripted_door(mixed) as door:
        ran = submit(door, "--json", "--parallel", "64")
    lines, summary = documents(ran)
    assert sorted(line["line"] for line in lines) == list(range(1, 51))
    by_line = {line["line"]: line for line in lines}
    new = {"line": 10, "order": workflow_id("/shop", "e-10"), "duplicate": False, "status": 202, "attempts": 1}
    assert by_line[10] == new
    assert by_line[3]["type"] == "urn:orderflow:problem:invalid-order"
    assert by_line[3]["error"]["problems"] == [{"path": "$.data.total_minor", "message": "must equal the sum"}]
    assert summary == {
        "events": 50,
        "new": 30,
        "duplicate": 5,
        "conflict": 5,
        "refused": {"invalid-order": 5, "other": 5},
        "not_delivered": 0,
        "under_way": 0,
        "last_line": 50,
        "stopped": False,
        "interrupted": False,
        "exit_code": 2,
    }
    assert ran.err == ""


@pytest.mark.parametrize(
    ("replies", "code"),
    [
        ([taken(), taken(duplicate=True)], 0),
        ([taken(), refused(409, "conflict")], 1),
        ([refused(403, "source-not-permitted"), refused(400, "invalid-json")], 2),
        ([refused(400, "invalid-json"), refused(409, "conflict")], 2),
        ([refused(503, "intake-paused"), refused(400, "invalid-json")], 3),
        ([taken(), Reply(200, b"<html>")], 3),
    ],
)
def test_the_exit_code_is_that_of_the_worst_line(replies: list[Reply], code: int) -> None:
    """O01: 3 when something was not delivered, else 2 or 1 when something was refused."""
    write(2)
    with scripted_door(lambda received: replies[number_of(received) - 1]) as door:
        assert submit(door, "--attempts", "1").code == code


def test_each_line_goes_out_as_its_own_bytes() -> None:
    """W01: without its end, blank lines left out, the last one also without a newline; the door judges the rest."""
    Path("events.jsonl").write_bytes(b'\n{"a":\t1} \r\n   \n\xef\xbb\xbf{}\n\xff\n\r\n[2]')
    with scripted_door(lambda _: taken()) as door:
        ran = submit(door, "--parallel", "1", "--json")
    assert [received.body for received in door.received] == [b'{"a":\t1} ', b"\xef\xbb\xbf{}", b"\xff", b"[2]"]
    assert [line["line"] for line in documents(ran)[0]] == [2, 4, 5, 7]


def test_a_line_that_is_too_large_is_not_sent_and_the_next_one_is() -> None:
    """W08: told as such, with its number."""
    fits, large = b"x" * MAX_EVENT_BYTES, b"y" * (MAX_EVENT_BYTES + 1)
    Path("events.jsonl").write_bytes(b"\n".join([fits, large, b"z" * 1_000_000, fits + b"\r", b"{}"]))
    with scripted_door(lambda _: taken()) as door:
        ran = submit(door, "--parallel", "1", "--json")
    assert [received.body for received in door.received] == [fits, fits, b"{}"]
    lines, summary = documents(ran)
    assert [line["line"] for line in lines if "error" in line] == [2, 3]
    assert (ran.code, summary["refused"]) == (2, {"body-too-large": 2})


def test_so_many_are_under_way_at_once_and_no_more() -> None:
    """Issue: `--parallel`, as the door sees it."""
    write(60)
    at_once, most, lock, more = [0], [0], threading.Lock(), threading.Event()

    def script(received: Received) -> Reply:
        with lock:
            at_once[0] += 1
            most[0] = max(most[0], at_once[0])
            if at_once[0] > 5:
                more.set()
        if received.number <= 5:
            more.wait(1)  # one too many would come meanwhile
        with lock:
            at_once[0] -= 1
        return taken()

    with scripted_door(script) as door:
        assert submit(door, "--parallel", "5").code == 0
    assert most[0] == 5


def test_a_busy_door_gets_each_event_in_the_end() -> None:
    """W07: every third delivery finds the door busy; nothing is lost, nothing is told twice."""
    lines = write(60)
    with scripted_door(lambda got: refused(503, "unavailable") if got.number % 3 == 0 else taken()) as door:
        ran = submit(door, "--json", "--attempts", "20", "--parallel", "16")
    told, summary = documents(ran)
    assert (ran.code, summary["new"], len(told)) == (0, 60, 60)
    assert {received.body for received in door.received} == set(lines)
    assert sum(line["attempts"] for line in told) == len(door.received)


@pytest.mark.parametrize("reply", [None, refused(401, "signature-invalid")], ids=["nobody", "wrong secret"])
def test_a_file_is_not_thrown_line_by_line_at_a_door_that_takes_none(reply: Reply | None) -> None:
    """O01: after some failures in a row that concern every line, the rest stays unsent, and that is told."""
    write(1000)
    with scripted_door(lambda _: reply or taken()) as door:
        url = door.url if reply else f"http://127.0.0.1:{free_port()}"
        ran = orderflow("submit", "--jsonl", "events.jsonl", "--url", url, "--attempts", "1", "--parallel", "4")
    assert ran.code == (2 if reply else 3)
    assert "stopped after line" in ran.out
    assert "send the same file again" in ran.out
    assert len(door.received) <= HOPELESS + 4


def test_refusals_of_single_events_stop_nothing() -> None:
    """The next event may be a good one."""
    write(100)
    with scripted_door(lambda _: refused(400, "invalid-event")) as door:
        assert submit(door).code == 2
    assert len(door.received) == 100


def test_a_file_without_events_is_done_at_once() -> None:
    """An export of a quiet day is no mistake."""
    Path("events.jsonl").write_bytes(b"\n \n")
    with scripted_door(lambda _: taken()) as door:
        assert submit(door).out == "0 events\n"


@pytest.mark.parametrize("file", ["missing.jsonl", ".", "a\0b"])
def test_a_file_that_cannot_be_read_is_exit_code_2(file: str) -> None:
    """O01: one line with its name."""
    ran = orderflow("submit", "--jsonl", file, "--url", "http://127.0.0.1:9")
    assert ran.code == 2
    assert len(ran.err.splitlines()) == 1
    assert ran.out == ""


def test_settings_that_cannot_be_used_are_told_before_anything_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """O01: no summary of a run that never was."""
    write(1)
    monkeypatch.delenv("ORDERFLOW_CALLER_SECRET")
    ran = orderflow("submit", "--jsonl", "events.jsonl", "--url", "http://127.0.0.1:9")
    assert (ran.code, ran.out) == (2, "")
    assert "ORDERFLOW_CALLER_SECRET" in ran.err


async def test_reading_takes_no_more_memory_for_many_lines() -> None:
    """Issue: a file is streamed, 200 MB of it here."""
    write_large()
    before = psutil.Process().memory_info().rss
    count = 0
    with EventLines("events.jsonl", MAX_EVENT_BYTES) as lines:
        while (line := await lines.next()) is not None:
            count += 1
    assert (count, line) == (3301, None)
    assert psutil.Process().memory_info().rss - before < 5_000_000


class Typed:
    """`orderflow …` as a process at a terminal of its own; standard output goes to a pipe."""

    def __init__(self, *arguments: object) -> None:
        self._arguments = tuple(map(str, arguments))
        self._screen, self._terminal = pty.openpty()
        self.shown = b""

    async def __aenter__(self) -> "Typed":
        self.process = await asyncio.create_subprocess_exec(
            *PROGRAM,
            *self._arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=self._terminal,
        )
        os.close(self._terminal)
        os.set_blocking(self._screen, False)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        os.close(self._screen)

    def look(self) -> bytes:
        """What stands on the screen so far."""
        try:
            while chunk := os.read(self._screen, 65_536):
                self.shown += chunk
        except OSError:  # nothing more for now, or the process has ended
            pass
        return self.shown

    async def ended(self) -> tuple[int, str]:
        """Wait for its end; gives exit code and standard output."""
        async with asyncio.timeout(PATIENCE):
            out = await self.process.stdout.read() if self.process.stdout else b""
            return await self.process.wait(), out.decode()


async def test_an_interruption_ends_with_what_was_done_so_far() -> None:
    """O01: Ctrl+C while events are on their way: exit code 130, the counts, no traceback."""
    write(100)
    hold = threading.Event()

    def script(received: Received) -> Reply:
        if number_of(received) > 40:
            hold.wait(PATIENCE)
        return taken()

    with scripted_door(script) as door:
        async with Typed("submit", "--jsonl", "events.jsonl", "--url", door.url) as typed:

            async def all_wait() -> bool:
                return len(door.received) == 48

            await eventually(all_wait)
            typed.process.send_signal(signal.SIGINT)
            code, out = await typed.ended()
            shown = typed.look()
        hold.set()
    assert code == 130
    assert out.startswith("40 events\n")
    assert "interrupted after line 48" in out
    assert "8 more were on their way" in out
    assert b"Traceback" not in shown


async def test_an_interruption_does_not_wait_for_standard_input() -> None:
    """O01: a producer that is silent keeps nobody."""
    with scripted_door(lambda _: taken()) as door:
        async with Typed("submit", "--jsonl", "-", "--url", door.url) as typed:
            stdin = typed.process.stdin
            assert stdin is not None
            stdin.write(EXAMPLE.replace(b"\n", b"") + b"\n")

            async def one_came() -> bool:
                return bool(door.received)

            await eventually(one_came)
            typed.process.send_signal(signal.SIGINT)
            code, out = await typed.ended()
    assert code == 130
    assert "interrupted" in out


async def test_a_terminal_shows_a_bar_and_nothing_of_it_is_left() -> None:
    """Issue: a progress bar on standard error; what is piped on is the table alone."""
    write(100)
    with scripted_door(lambda _: taken()) as door:
        async with Typed("submit", "--jsonl", "events.jsonl", "--url", door.url) as typed:
            code, out = await typed.ended()
            shown = typed.look().decode()
    assert code == 0
    assert "━" in shown or "100%" in shown
    assert out.splitlines()[0] == "100 events"
    assert "\x1b" not in out


async def test_a_bar_on_the_terminal_keeps_out_of_what_is_piped_on() -> None:
    """O01: each line of standard output stays JSON while the bar is painted."""
    write(50)
    with scripted_door(lambda _: taken()) as door:
        async with Typed("submit", "--jsonl", "events.jsonl", "--url", door.url, "--json") as typed:
            _, out = await typed.ended()
            shown = typed.look().decode()
    assert len([json.loads(line) for line in out.splitlines()]) == 51
    assert "{" not in shown


async def test_a_terminal_tells_why_nothing_happens_just_now() -> None:
    """O01: one line for each wait, with its reason and its length; a log of it does too."""
    script = iter([refused(503, "intake-paused", detail="Paused for stocktaking."), taken()])
    with scripted_door(lambda _: next(script)) as door:
        async with Typed("submit", "event.json", "--url", door.url) as typed:
            code, _ = await typed.ended()
            shown = typed.look().decode()
    assert code == 0
    [line] = shown.splitlines()
    assert "Paused for stocktaking." in line
    assert "attempt 2 of 5 in 0." in line
    script = iter([refused(503, "intake-paused"), taken()])
    with scripted_door(lambda _: next(script)) as door:
        assert "attempt 2 of 5 in 0." in orderflow("submit", "event.json", "--url", door.url).err
