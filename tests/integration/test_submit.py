"""`orderflow submit` over HTTP, against a door that answers as the test says."""

import json
import socket
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook

from orderflow.domain.deliveries import MAX_EVENT_BYTES, Cause
from orderflow.embedded import free_port
from orderflow.sending import Patience, Sender, Taken, Undelivered
from orderflow.webhooks import read_secret
from tests.order_events import EXAMPLE
from tests.support.command_line import Ran, orderflow
from tests.support.scripted_door import (
    ORDER,
    SECRET,
    Received,
    Reply,
    ScriptedDoor,
    as_a_sender,
    refused,
    scripted_door,
    taken,
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to run in, with an event, and with the secret of a caller."""
    return as_a_sender(tmp_path, monkeypatch)


def submit(door: ScriptedDoor, *arguments: object) -> Ran:
    """Send the event to this door."""
    return orderflow("submit", "event.json", "--url", door.url, *arguments)


def answered(reply: Reply, *arguments: object) -> Ran:
    """Send the event to a door that answers always so."""
    with scripted_door(lambda _: reply) as door:
        return submit(door, *arguments)


def verified(received: Received) -> None:
    """Raise unless the standardwebhooks library takes the request as signed by our caller."""
    Webhook(SECRET).verify(received.body, dict(received.headers), json_parse=False)


def test_an_event_is_sent_byte_for_byte_and_signed_as_standard_webhooks_are() -> None:
    """W01: what is signed is what stands in the file, with its tabs, escapes and its line's end."""
    raw = b'{"b":\t"\\u00e9 \xc3\xa9 \\/",\r\n "a": 1}\n'
    Path("event.json").write_bytes(raw)
    with scripted_door(lambda _: taken()) as door:
        ran = submit(door)
    [received] = door.received
    assert (ran.code, received.path, received.body) == (0, "/v1/events", raw)
    assert received.headers["content-type"] == "application/cloudevents+json"
    verified(received)


def test_the_door_is_found_by_its_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """O01: a slash at its end is no other address."""
    with scripted_door(lambda _: taken()) as door:
        monkeypatch.setenv("ORDERFLOW_INGRESS_URL", f"{door.url}/")
        assert orderflow("submit", "event.json").code == 0
    assert [received.path for received in door.received] == ["/v1/events"]


def test_a_new_order_is_told_with_what_to_do_next() -> None:
    """Issue: 202 gives the order, for people and for programs."""
    told = answered(taken())
    assert told.code == 0
    assert ORDER in told.out
    assert "new" in told.out
    assert f"orderflow show {ORDER}" in told.out
    assert answered(taken(), "--json").json == {"order": ORDER, "duplicate": False, "status": 202, "attempts": 1}


def test_a_duplicate_is_no_failure() -> None:
    """W07: 200 names the order that the event began before."""
    told = answered(taken(duplicate=True))
    assert told.code == 0
    assert f"duplicate: already started as {ORDER}" in told.out
    assert "new" not in told.out.split()
    assert answered(taken(duplicate=True), "--json").json["duplicate"] is True


@pytest.mark.parametrize(
    ("status", "cause", "code", "advice"),
    [
        (400, Cause.INVALID_JSON, 2, ""),
        (400, Cause.INVALID_EVENT, 2, ""),
        (401, Cause.SIGNATURE_MISSING, 2, "headers"),
        (401, Cause.SIGNATURE_INVALID, 2, "ORDERFLOW_CALLER_SECRET"),
        (401, Cause.TIMESTAMP_OUTSIDE_WINDOW, 2, "clock"),
        (401, "of-a-later-release", 2, "ORDERFLOW_CALLER_SECRET"),
        (403, Cause.SOURCE_NOT_PERMITTED, 1, ""),
        (403, Cause.AMOUNT_NOT_PERMITTED, 1, ""),
        (404, Cause.NOT_FOUND, 2, "ORDERFLOW_INGRESS_URL"),
        (408, Cause.BODY_TOO_SLOW, 3, "again later"),
        (409, Cause.CONFLICT, 1, "new id"),
        (409, Cause.REPLAYED, 1, ""),
        (413, Cause.BODY_TOO_LARGE, 2, ""),
        (415, Cause.UNSUPPORTED_MEDIA_TYPE, 2, ""),
        (422, Cause.INVALID_ORDER, 2, ""),
        (429, Cause.RATE_LIMITED, 3, "again later"),
        (500, "of-a-later-release", 3, "again later"),
        (503, Cause.INTAKE_PAUSED, 3, "again later"),
        (503, Cause.UNAVAILABLE, 3, "again later"),
    ],
)
def test_each_refusal_has_its_exit_code_and_its_words(status: int, cause: str, code: int, advice: str) -> None:
    """O01: 1 is a no of business, 2 something to put right here, 3 a door that has judged nothing."""
    problems = (("$.data.total_minor", "must equal the sum"), ("$.id", "is missing"))
    ran = answered(refused(status, cause, *problems, detail="Told in detail."), "--json", "--attempts", "1")
    assert ran.code == code
    assert f"{status} Title of {cause}: Told in detail." in ran.err
    assert "orderflow: $.data.total_minor: must equal the sum\norderflow: $.id: is missing\n" in ran.err
    assert advice in ran.err
    assert ran.json["type"] == f"urn:orderflow:problem:{cause}"
    assert (ran.json["status"], ran.json["attempts"]) == (status, 1)
    assert ran.error["exit_code"] == code
    assert ran.error["problems"][0] == {"path": "$.data.total_minor", "message": "must equal the sum"}


def test_only_what_may_pass_later_is_sent_again() -> None:
    """Issue: a judgement stands; 408, 429 and 502-504 do not judge."""
    for status in (400, 401, 403, 404, 409, 413, 415, 422, 500):
        with scripted_door(lambda _, status=status: refused(status, "invalid-event")) as door:  # type: ignore[misc]
            submit(door)
        assert len(door.received) == 1, status
    for status in (408, 429, 502, 503, 504):
        with scripted_door(lambda _, status=status: refused(status, "unavailable")) as door:  # type: ignore[misc]
            assert submit(door, "--attempts", "2").code == 3
        assert len(door.received) == 2, status


def test_attempts_of_one_call_are_one_message_and_two_deliveries() -> None:
    """W07, W05: the same webhook-id with a later timestamp each, or the door would call the next one a replay."""
    script = iter([refused(503, "unavailable"), refused(429, "rate-limited"), refused(504, "unavailable"), taken()])
    with scripted_door(lambda _: next(script)) as door:
        ran = submit(door, "--json")
    assert ran.json == {"order": ORDER, "duplicate": False, "status": 202, "attempts": 4}
    assert len({received.headers["webhook-id"] for received in door.received}) == 1
    stamps = [int(received.headers["webhook-timestamp"]) for received in door.received]
    assert all(later > earlier for earlier, later in pairwise(stamps))
    for received in door.received:
        verified(received)


def test_two_calls_are_two_messages() -> None:
    """W07: a person who sends a file again makes a delivery of its own."""
    with scripted_door(lambda _: taken()) as door:
        submit(door)
        submit(door)
    assert len({received.headers["webhook-id"] for received in door.received}) == 2


def test_a_wait_that_the_door_asks_for_is_kept() -> None:
    """O01: `Retry-After` is a whole second, more than the first backoff can be."""
    script = iter([refused(503, "intake-paused", retry_after="1"), taken()])
    with scripted_door(lambda _: next(script)) as door:
        begun = time.monotonic()
        assert submit(door).code == 0
    assert time.monotonic() - begun >= 1.0
    assert len(door.received) == 2


@given(attempt=st.integers(1, 20), retry_after=st.none() | st.floats(0, 1e9))
def test_no_wait_is_longer_than_patience_says(attempt: int, retry_after: float | None) -> None:
    """T24: backoff grows and has a cap, and so has what a door may ask for."""
    patience = Patience(first_wait=0.5, longest_wait=20.0)
    asked = min(retry_after or 0.0, 20.0)
    assert asked <= patience.wait_after(attempt, retry_after) <= asked + min(20.0, 0.5 * 2 ** (attempt - 1))


async def test_the_time_in_all_is_bounded() -> None:
    """O01: a door that asks for ever more time is given up, with what it said."""
    patience = Patience(attempts=20, in_all=0.3)
    with scripted_door(lambda _: refused(503, "unavailable", retry_after="30")) as door:
        async with Sender(door.url, read_secret(SECRET), patience) as sender:
            refusal = await sender.send(EXAMPLE)
    assert (refusal.status, refusal.attempts, len(door.received)) == (503, 1, 1)


def test_a_door_that_is_not_there_is_exit_code_3() -> None:
    """O01: one line says where it was looked for and what to start."""
    ran = orderflow("submit", "event.json", "--url", f"http://127.0.0.1:{free_port()}", "--attempts", "2", "--json")
    assert ran.code == 3
    assert "orderflow ingress" in ran.err
    assert (ran.json["type"], ran.json["status"], ran.json["attempts"]) == (None, None, 2)
    assert "Traceback" not in ran.err


async def test_a_door_that_comes_up_meanwhile_takes_the_event() -> None:
    """W06: refused connections are tried again; the order's answer is that of the attempt that got through."""
    port, waiting = free_port(), threading.Event()
    opened: list[ScriptedDoor] = []

    def serve() -> None:
        waiting.wait(10)
        with scripted_door(lambda _: taken(), port) as door:
            opened.append(door)
            done.wait(10)

    done = threading.Event()
    thread = threading.Thread(target=serve)
    thread.start()
    try:
        patience = Patience(attempts=20, first_wait=0.05, longest_wait=0.2)
        async with Sender(
            f"http://127.0.0.1:{port}", read_secret(SECRET), patience, tell=lambda _: waiting.set()
        ) as sender:
            answer = await sender.send(EXAMPLE)
    finally:
        waiting.set()
        done.set()
        thread.join()
    assert isinstance(answer, Taken)
    assert answer.attempts > 1
    verified(opened[0].received[0])


def test_a_lost_reply_is_sent_again_and_told_as_what_it_may_be() -> None:
    """W07: the door took the event, the connection broke: the duplicate may be of our own making."""
    script = iter([Reply(raw=b""), taken(duplicate=True)])
    with scripted_door(lambda _: next(script)) as door:
        ran = submit(door)
    assert ran.code == 0
    assert "perhaps by an earlier attempt of this call" in ran.out


HTML: Final = b"<html>" + b"x" * 2000
NO_ORDER: Final = json.dumps({"order": "order-1\x1b[2J", "duplicate": False}).encode()
HOSTILE: Final[dict[str, Reply]] = {
    "html": Reply(200, HTML),
    "html refusal": Reply(403, HTML),
    "proxy": Reply(502, HTML),
    "empty": Reply(202),
    "no content": Reply(raw=b"HTTP/1.1 204 No Content\r\n\r\n"),
    "huge": Reply(202, b" " * 10_000_000),
    "no json": Reply(202, b"\xff\xfe"),
    "deep": Reply(202, b"[" * 60_000),
    "list": Reply(202, b"[]"),
    "other json": Reply(202, b'{"order": 5, "duplicate": "no"}'),
    "no order id": Reply(202, NO_ORDER),
    "contradiction": Reply(200, taken().body),
    "other problem": Reply(400, b'{"type": "about:blank", "title": "Bad Request"}'),
    "problem of five": Reply(400, b'{"type": "urn:orderflow:problem:x", "title": 5}'),
    "type that steers": Reply(400, b'{"type": "urn:orderflow:problem:\\u001b[2J", "title": "x"}'),
    "redirect": Reply(307, b"", (("Location", "http://127.0.0.1:9/v1/events"),)),
    "switching": Reply(raw=b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"),
    "cut": Reply(raw=b"HTTP/1.1 202 Accepted\r\nContent-Length: 100\r\n\r\n{"),
    "cut headers": Reply(raw=b"HTTP/1.1 202 Accepted\r\nContent-"),
    "no http": Reply(raw=b"SSH-2.0-OpenSSH_9.2\r\n"),
    "long header": Reply(raw=b"HTTP/1.1 202 Accepted\r\nX: " + b"x" * 1_000_000),
    "bad length": Reply(raw=b"HTTP/1.1 202 Accepted\r\nContent-Length: -5\r\n\r\n"),
    "gzip": Reply(202, b"\x1f\x8b\x08", (("Content-Encoding", "gzip"),)),
    "retry-after": Reply(503, HTML, (("Retry-After", "\u0661 soon"),)),
}


@pytest.mark.parametrize("reply", HOSTILE.values(), ids=HOSTILE)
def test_what_is_no_answer_of_orderflow_is_told_as_such(reply: Reply) -> None:
    """O01, W08: whatever answers at that address; no traceback, nothing that steers a terminal, exit code 3."""
    ran = answered(reply, "--json", "--attempts", "1")
    assert ran.code == 3
    assert ran.json["type"] is None
    assert "Traceback" not in ran.err
    assert "\x1b" not in ran.out + ran.err
    assert len(ran.err) < 2000


def test_a_redirect_is_not_followed() -> None:
    """What is signed is for this door, and for no other address."""
    with scripted_door(lambda _: taken()) as other:
        moved = Reply(308, b"", (("Location", f"{other.url}/v1/events"),))
        assert answered(moved).code == 3
    assert other.received == []


@settings(max_examples=40, deadline=None)
@given(status=st.integers(200, 599).filter(lambda status: status not in {204, 304}), body=st.binary(max_size=300))
def test_no_answer_at_all_leads_to_a_traceback(status: int, body: bytes) -> None:
    """O01: generated; an exit code of those that are documented."""
    ran = answered(Reply(status, body), "--attempts", "1")
    assert ran.code == 3
    assert ran.err.startswith("orderflow: ")


async def test_an_answer_that_drips_for_ever_is_given_up() -> None:
    """W08, the other way round: each byte is in time, the whole is not."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        patience = Patience(attempts=1, answer_within=0.6)
        stop = threading.Event()
        thread = threading.Thread(target=_drip, args=(listener, stop))
        thread.start()
        try:
            async with Sender(f"http://127.0.0.1:{listener.getsockname()[1]}", read_secret(SECRET), patience) as sender:
                begun = time.monotonic()
                answer = await sender.send(EXAMPLE)
        finally:
            stop.set()
            thread.join()
    assert isinstance(answer, Undelivered)
    assert "in time" in answer.reason
    assert time.monotonic() - begun < 5


def _drip(listener: socket.socket, stop: threading.Event) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.sendall(b"HTTP/1.1 202 Accepted\r\nContent-Length: 60000\r\n\r\n")
        while not stop.wait(0.05):
            try:
                connection.sendall(b" ")
            except OSError:
                return


@pytest.mark.parametrize("size", [MAX_EVENT_BYTES, MAX_EVENT_BYTES + 1])
def test_a_file_that_is_too_large_for_the_door_is_not_sent(size: int) -> None:
    """W08: exit code 2, with the limit; what just fits is the door's to judge."""
    Path("event.json").write_bytes(b"x" * size)
    with scripted_door(lambda _: refused(400, "invalid-json")) as door:
        ran = submit(door)
    assert ran.code == 2
    assert len(door.received) == (size == MAX_EVENT_BYTES)
    assert ("65536" in ran.err) == (size > MAX_EVENT_BYTES)


MISUSED: Final[dict[str, tuple[str, ...]]] = {
    "--print": ("event.json", "--print"),
    "--definition": ("event.json", "--definition", "d.json"),
    "--url": ("event.json", "--direct", "--url", "http://127.0.0.1:9"),
    "--attempts": ("event.json", "--direct", "--attempts", "2"),
    "--jsonl": ("event.json", "--jsonl", "events.jsonl"),
    "--parallel": ("event.json", "--parallel", "2"),
}


@pytest.mark.parametrize("option", MISUSED)
def test_an_option_of_the_other_way_is_refused_by_name(option: str) -> None:
    """O01: ignored, it would be believed."""
    ran = orderflow("submit", *MISUSED[option])
    assert (ran.code, ran.out) == (2, "")
    assert option in ran.err
    assert len(ran.err.splitlines()) == 1
