"""What the world may do to a server of ours before, around and instead of a request (W08)."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

import psutil
import pytest
from starlette.types import Message, Receive, Scope, Send

from orderflow.domain.errors import InvalidSettings
from orderflow.serving import Limits, listen, run_server, served, url_of
from orderflow.serving.limits import within_descriptors
from tests.support.raw_http import PATIENCE, Answer, Peer, connected, request

BODY_LIMIT = 1000
NEVER = 3600.0
PATIENT = Limits(headers_within=NEVER, idle=NEVER, parting=NEVER, stalled=NEVER)
"""No time limits, so that nothing but what a test is about closes a connection."""
GET = request(method="GET")
MEGABYTE = 1024 * 1024


@dataclass
class Door:
    """A tiny application: it reads at most `BODY_LIMIT` bytes, says what it read, and keeps what it was asked."""

    asked: list[tuple[str, str, bytes]] = field(default_factory=list)
    hangs: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    cut_off: list[str] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 200 with the number of bytes, 413, or not at all."""
        body = bytearray()
        while scope["path"] != "/unread":
            message: Message = await receive()
            if message["type"] == "http.disconnect":
                self.cut_off.append(message["type"])
                self.left.set()
                return
            body += message.get("body", b"")
            if len(body) > BODY_LIMIT or not message.get("more_body", False):
                break
        self.asked.append((scope["method"], scope["path"], bytes(body[:BODY_LIMIT])))
        if scope["path"] == "/hang":
            self.hangs.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cut_off.append("cancelled")
                raise
        said = str(len(body)).encode()
        status = 413 if len(body) > BODY_LIMIT else 405 if scope["method"] == "CONNECT" else 200
        headers = [] if scope["path"] == "/large" else [(b"content-length", str(len(said)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        if scope["path"] == "/large":
            await send({"type": "http.response.body", "body": b"x" * 8 * MEGABYTE, "more_body": True})
            self.hangs.set()
            self.cut_off.append((await receive())["type"])
            self.left.set()
        await send({"type": "http.response.body", "body": said})


def door(limits: Limits, app: Door | None = None) -> AbstractAsyncContextManager[str]:
    """A running server over the tiny application; gives its URL."""
    return served(app or Door(), listen("127.0.0.1", 0), limits)


@asynccontextmanager
async def peer_of(limits: Limits, app: Door | None = None) -> AsyncIterator[Peer]:
    """One connection to a running server."""
    async with door(limits, app) as url, connected(url) as peer:
        yield peer


@pytest.fixture(scope="module")
async def shared() -> AsyncIterator[tuple[str, Door]]:
    """One running server for all tests that need nothing but patience; a server takes a fifth of a second to end."""
    app = Door()
    async with door(PATIENT, app) as url:
        yield url, app


def problem(answer: Answer) -> str:
    """The sentence of a problem document that is what it says it is."""
    document = json.loads(answer.body)
    assert answer.headers["content-type"] == "application/problem+json"
    assert (document["status"], answer.headers["connection"]) == (answer.status, "close")
    detail: str = document["detail"]
    return detail


async def closed_with(peer: Peer, status: int) -> str:
    """See that the server answers with a problem and then closes, in peace; gives the sentence."""
    detail = problem(await peer.answer())
    assert await peer.rest() == b""
    return detail


async def test_a_connection_serves_one_request_after_the_other() -> None:
    """Keep-alive: senders need not connect anew for each event; nothing tells which software answers."""
    app = Door()
    async with peer_of(PATIENT, app) as peer:
        for number in range(3):
            answer = await peer.ask(request("Content-Length: 3", target=f"/{number}", body=b"abc"))
            assert (answer.status, answer.body) == (200, b"3")
            assert "server" not in answer.headers
    assert [path for _, path, _ in app.asked] == ["/0", "/1", "/2"]


async def test_requests_sent_ahead_are_answered_in_order() -> None:
    """Pipelining: two requests in one packet, and half of a third that comes later."""
    app = Door()
    async with peer_of(PATIENT, app) as peer:
        await peer.send(
            request("Content-Length: 3", body=b"abc") + request("Content-Length: 5", body=b"abcde") + GET[:9]
        )
        assert [(await peer.answer()).body, (await peer.answer()).body] == [b"3", b"5"]
        assert (await peer.ask(GET[9:])).body == b"0"


async def test_half_a_head_that_was_sent_ahead_has_its_deadline() -> None:
    """The rest of it never comes: 408, as for any other slow head."""
    async with peer_of(Limits(headers_within=0.1, idle=NEVER)) as peer:
        await peer.send(GET + GET[:9])
        assert (await peer.answer()).status == 200
        await closed_with(peer, 408)


async def test_http_1_0_is_answered_and_closed() -> None:
    """As old monitoring probes speak it, without a host."""
    async with peer_of(PATIENT) as peer:
        answer = await peer.ask(b"GET / HTTP/1.0\r\n\r\n")
        assert (answer.status, await peer.rest()) == (200, b"")


@pytest.mark.parametrize(
    ("target", "path"),
    [("http://door/a?b=c", "/a"), ("HTTPS://door:8443/", "/"), ("http://door", "/"), ("http://door?b", "/")],
)
async def test_a_target_that_names_the_whole_url_is_its_path(target: str, path: str) -> None:
    """RFC 9112, 3.2.2: a server takes what is meant for a proxy too."""
    app = Door()
    async with peer_of(PATIENT, app) as peer:
        assert (await peer.ask(request(target=target))).status == 200
    assert [asked for _, asked, _ in app.asked] == [path]


async def test_a_head_request_has_no_body() -> None:
    """And the connection goes on."""
    async with peer_of(PATIENT) as peer:
        await peer.send(request(method="HEAD"))
        answer = await peer.answer(to="HEAD")
        assert (answer.status, answer.headers["content-length"]) == (200, "1")
        assert (await peer.ask(GET)).status == 200


async def test_a_sender_that_expects_100_continue_gets_it_when_its_body_is_wanted() -> None:
    """And a refusal at once when it is not, upon which the connection ends: nobody knows if the body still comes."""
    expecting = ("Expect: 100-continue", "Content-Length: 3")
    async with peer_of(PATIENT) as peer:
        assert (await peer.ask(request(*expecting))).status == 100
        assert (await peer.ask(b"abc")).body == b"3"
        answer = await peer.ask(request(*expecting, target="/unread"))
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await peer.rest() == b""


async def test_a_silent_connection_is_cut_without_a_word() -> None:
    """Nobody asked anything, so nothing is answered (slow sender limits)."""
    async with peer_of(Limits(headers_within=0.05)) as peer:
        assert await peer.rest() == b""


async def test_a_slow_head_is_cut_with_408() -> None:
    """A byte now and then does not move the deadline (slowloris); who still sends can read the answer."""
    async with peer_of(Limits(headers_within=0.3)) as peer:
        telling = asyncio.create_task(dribble(peer, GET[:-2] + b"X-A: b\r\n" * 6))
        assert "0.3 s" in await closed_with(peer, 408)
        assert not telling.done()
        await telling


async def dribble(peer: Peer, data: bytes) -> None:
    """Send a byte at a time. Raises `ConnectionError` when the server does not even read them any more."""
    for at in range(len(data)):
        await peer.send(data[at : at + 1])
        await asyncio.sleep(0.01)


async def test_an_idle_connection_is_cut_and_a_further_request_gets_the_whole_time() -> None:
    """After an answer the time to say nothing is short; from the first byte on a head has its own."""
    async with door(Limits(headers_within=NEVER, idle=0.05)) as url, connected(url) as idle:
        assert (await idle.ask(GET)).status == 200
        assert await idle.rest() == b""
    async with peer_of(Limits(headers_within=NEVER, idle=0.3)) as begun, connected(begun.url) as idle:
        for peer in (begun, idle):
            assert (await peer.ask(GET)).status == 200
        await begun.send(GET[:9])
        assert await idle.rest() == b""  # the idle time of both is over
        assert (await begun.ask(GET[9:])).status == 200


async def test_two_hundred_slow_heads_do_not_keep_a_sender_waiting() -> None:
    """Issue: they hold every place there is, and each of the honest sender's connections is taken in all the same."""
    limits = Limits(headers_within=NEVER, idle=NEVER, connections=200)
    async with door(limits) as url, AsyncExitStack() as opened:
        slow = [await opened.enter_async_context(connected(url)) for _ in range(200)]
        for peer in slow:
            await peer.send(GET[:9])
        for _ in range(3):
            async with connected(url) as honest:
                assert (await honest.ask(GET)).status == 200
        assert await slow[0].rest() == b""  # the one that had waited longest
        assert (await slow[-1].ask(GET[9:])).status == 200


async def test_one_connection_too_many_is_told_to_come_back() -> None:
    """503 with Retry-After when every other one has a request under way; those are not disturbed."""
    app = Door()
    async with door(Limits(connections=1, in_flight=0), app) as url, connected(url) as busy:
        await busy.send(request(method="GET", target="/hang"))
        await asyncio.wait_for(app.hangs.wait(), PATIENCE)
        async with connected(url) as other:
            answer = await other.answer()
            assert (answer.status, answer.headers["retry-after"]) == (503, "1")
            assert problem(answer) == "too many connections"
            assert await other.rest() == b""
        assert app.cut_off == []


TOO_MUCH = {
    "many headers": (request(*(f"X-{number}: 1" for number in range(100))), 431),
    "one long header": (request("X-Long: " + "x" * 20_000), 431),
    "a long target": (request(target="/" + "x" * 20_000), 431),
    "no end of a header": (b"GET / HTTP/1.1\r\nX-Long: " + b"x" * 20_000, 431),
}
LIES = {
    "no number": ("Content-Length: ten",),
    "negative": ("Content-Length: -3",),
    "signed": ("Content-Length: +3",),
    "hexadecimal": ("Content-Length: 0x3",),
    "empty": ("Content-Length: ",),
    "fraction": ("Content-Length: 3.0",),
    "endless": ("Content-Length: " + "9" * 5000,),
    "two that differ": ("Content-Length: 3", "Content-Length: 4"),
    "two in one": ("Content-Length: 3, 4",),
    "length and chunks": ("Content-Length: 3", "Transfer-Encoding: chunked"),
    "chunks and length": ("Transfer-Encoding: chunked", "Content-Length: 3"),
    "chunks twice": ("Transfer-Encoding: chunked, chunked",),
    "two encodings": ("Transfer-Encoding: gzip, chunked",),
    "another encoding": ("Transfer-Encoding: identity",),
    "obscured encoding": ("Transfer-Encoding: xchunked",),
    "a space before the colon": ("Content-Length : 3",),
    "a control character": ("X: \x00",),
    "a second host": ("Host: other",),
}
NONSENSE = {
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 is what TLS begins with\r\n\r\n",
    "HTTP/0.9": b"GET /\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "a space too many": b"GET  / HTTP/1.1\r\nHost: door\r\n\r\n",
    "a line that is no header": b"GET / HTTP/1.1\r\nHost: door\r\nno header\r\n\r\n",
    "chunks in HTTP/1.0": request("Transfer-Encoding: chunked", version="1.0", body=b"0\r\n\r\n"),
    "no number of a chunk": request("Transfer-Encoding: chunked", body=b"ten\r\n"),
    "a negative chunk": request("Transfer-Encoding: chunked", body=b"-3\r\nabc\r\n"),
    "a chunk that is too long": request("Transfer-Encoding: chunked", body=b"3\r\nabcdef\r\n"),
    "an endless chunk": request("Transfer-Encoding: chunked", body=b"F" * 21 + b"\r\n"),
    "an endless extension": request("Transfer-Encoding: chunked", body=b"3;" + b"x" * 20_000),
}


@pytest.mark.parametrize(
    ("data", "status"),
    [
        *TOO_MUCH.values(),
        *((request(*headers, body=b"3\r\nabc\r\n0\r\n\r\n"), 400) for headers in LIES.values()),
        *((data, 400 if name != "an endless extension" else 431) for name, data in NONSENSE.items()),
    ],
    ids=[*TOO_MUCH, *LIES, *NONSENSE],
)
async def test_what_is_no_request_is_refused_and_the_connection_ends(
    data: bytes, status: int, shared: tuple[str, Door]
) -> None:
    """400 or 431 as a problem document; the application never takes the bytes for a request (W08)."""
    url, app = shared
    app.asked.clear()
    async with connected(url) as peer:
        await peer.send(data)
        answer = await peer.answer()
        assert (answer.status, bool(problem(answer))) == (status, True)
        assert await peer.rest() == b""
    assert app.asked == []


async def test_who_ends_its_side_after_a_whole_request_is_answered() -> None:
    """W06: a sender that half-closes would otherwise never learn that its event was taken; then it is over."""
    ended = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/slow":
            await ended.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    async with served(app, listen("127.0.0.1", 0), PATIENT) as url, connected(url) as other:
        reader, writer = await asyncio.open_connection(urlsplit(url).hostname, urlsplit(url).port)
        try:
            writer.write(request(method="GET", target="/slow"))
            writer.write_eof()
            for _ in range(3):  # by then the server has seen the end
                assert (await other.ask(GET)).status == 200
            ended.set()
            async with asyncio.timeout(PATIENCE):
                assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        finally:
            writer.close()


@pytest.mark.parametrize(("descriptors", "connections"), [(1024, 512), (512, 384), (256, 128), (128, 1), (64, 1)])
def test_no_more_connections_are_taken_in_than_there_are_descriptors_for(descriptors: int, connections: int) -> None:
    """W08: without one left the event loop writes tracebacks and answers nobody; macOS gives a process 256."""
    assert within_descriptors(Limits(), descriptors).connections == connections


PRIVATE = b"alice@example.org"


@pytest.mark.parametrize(
    "data",
    [
        request("Authorization: Bearer alice@example.org\x00"),
        request("alice@example.org"),
        request("Transfer-Encoding: chunked", body=PRIVATE + b"\r\n"),
        request("Transfer-Encoding: chunked", body=b"1\r\n{" + PRIVATE + b"\r\n"),
        b"GET /" + PRIVATE + b" \x00 HTTP/1.1\r\nHost: door\r\n\r\n",
        request("Content-Length: alice@example.org"),
        request("Transfer-Encoding: alice@example.org"),
    ],
    ids=["a header", "no header", "the size of a chunk", "the end of a chunk", "a target", "a length", "a coding"],
)
async def test_a_refusal_of_what_is_no_request_repeats_nothing_of_it(data: bytes) -> None:
    """W09: where framing breaks, what stands in the way may be a secret or somebody's order."""
    async with peer_of(PATIENT, Door()) as peer:
        await peer.send(data)
        answer = await peer.answer()
        assert answer.status == 400
        assert b"alice" not in answer.body
        assert b"bytearray" not in answer.body


async def test_a_request_that_was_smuggled_behind_another_is_not_seen() -> None:
    """Where two readers could disagree on the end of a body, neither the first nor the second counts."""
    app = Door()
    hidden = request(method="GET", target="/hidden")
    for length in (len(hidden), 3):
        async with peer_of(PATIENT, app) as peer:
            headers = (f"Content-Length: {length}", "Transfer-Encoding: chunked")
            await peer.send(request(*headers, body=b"0\r\n\r\n" + hidden))
            await closed_with(peer, 400)
    assert app.asked == []


@pytest.mark.parametrize("size", [10, BODY_LIMIT], ids=["ten", "the limit"])
async def test_more_bytes_than_announced_are_no_part_of_the_body(size: int) -> None:
    """`Content-Length: 10` with more data: what is over is the next request, and no good one (W08)."""
    app = Door()
    async with peer_of(PATIENT, app) as peer:
        answer = await peer.ask(request(f"Content-Length: {size}", body=b"x" * (size + 5000)))
        assert (answer.status, answer.body) == (200, str(size).encode())
        assert len(app.asked[0][2]) == size
        await peer.send(b"\r\n\r\n")
        await closed_with(peer, 400)
    assert len(app.asked) == 1


async def test_a_body_of_many_tiny_chunks_is_refused() -> None:
    """Each costs as much as a packet: 64 KiB, a byte at a time, would keep the loop busy for a second."""
    app = Door()
    async with peer_of(replace(PATIENT, chunks=100), app) as peer:
        await peer.send(request("Transfer-Encoding: chunked", body=b"1\r\nx\r\n" * 101))
        assert "100 chunks" in await closed_with(peer, 400)
        await asyncio.wait_for(app.left.wait(), PATIENCE)  # the application is told before the peer hangs up
    assert (app.asked, app.cut_off) == ([], ["http.disconnect"])


async def test_fifty_megabytes_are_refused_and_never_held() -> None:
    """Chunked, so that no header tells: 413 arrives though the sender still sends, and memory stays flat (W08)."""
    chunk = b"%x\r\n%b\r\n" % (65536, b"x" * 65536)
    async with peer_of(Limits()) as peer:
        await peer.send(request("Transfer-Encoding: chunked"))
        before = psutil.Process().memory_info().rss
        sending = asyncio.create_task(send_on(peer, chunk, 50 * MEGABYTE // 65536))
        answer = await peer.answer()
        assert (answer.status, answer.headers["connection"]) == (413, "close")
        await peer.rest()
        await asyncio.wait({sending}, timeout=PATIENCE)
        assert sending.done()
        assert psutil.Process().memory_info().rss - before < 5 * MEGABYTE


async def send_on(peer: Peer, data: bytes, times: int) -> None:
    """Send `data` so many times."""
    for _ in range(times):
        await peer.send(data)


async def test_a_sender_that_never_ends_is_hung_up_on() -> None:
    """The time to take leave is bounded, however much still comes."""
    async with peer_of(Limits(parting=0.2)) as peer:
        await peer.send(request("Transfer-Encoding: chunked"))
        with pytest.raises(ConnectionError):
            async with asyncio.timeout(PATIENCE):
                await send_on(peer, b"%x\r\n%b\r\n" % (65536, b"x" * 65536), 10**9)


async def test_a_reader_that_takes_nothing_is_hung_up_on() -> None:
    """It asked for megabytes and reads none of them: neither they nor its connection stay."""
    app = Door()
    async with peer_of(Limits(stalled=0.2), app) as peer:
        peer.pause()
        await peer.send(request(method="GET", target="/large"))
        await asyncio.wait_for(app.left.wait(), PATIENCE)
    assert app.cut_off == ["http.disconnect"]


async def test_methods_that_nobody_knows_are_the_applications_to_refuse(shared: tuple[str, Door]) -> None:
    """Any token is a method; none hangs, none ends in a 5xx."""
    for method in ("CONNECT", "TRACE", "OPTIONS", "BREW", "get", "M-SEARCH", "!", "X" * 1000):
        async with connected(shared[0]) as peer:
            await peer.send(request(method=method, target="*"))
            assert (await peer.answer(to=method)).status == (405 if method == "CONNECT" else 200)


@pytest.mark.parametrize("protocol", ["websocket", "h2c", "TLS/1.0"])
async def test_who_asks_for_another_protocol_is_answered_in_this_one(protocol: str) -> None:
    """And the connection goes on: nothing is upgraded."""
    async with peer_of(PATIENT) as peer:
        for _ in range(2):
            answer = await peer.ask(request("Connection: Upgrade", f"Upgrade: {protocol}", method="GET"))
            assert answer.status == 200


@pytest.mark.parametrize("busy", [True, False], ids=["under way", "idle"])
async def test_a_stopping_server_lets_requests_end_and_takes_no_more(busy: bool) -> None:
    """What is under way is answered, who only waits is let go, and nobody gets in any more."""
    app = Door()
    stop, listener = asyncio.Event(), listen("127.0.0.1", 0)
    url = url_of(listener)
    running = asyncio.create_task(run_server(app, listener, replace(PATIENT, in_flight=NEVER), stop))
    async with connected(url) as peer:
        await peer.send(request("Content-Length: 3") if busy else GET[:9])
        async with connected(url) as first:
            assert (await first.ask(GET)).status == 200
            stop.set()
            assert await first.rest() == b""
        if busy:
            assert (await peer.ask(b"abc")).body == b"3"
        assert await peer.rest() == b""
        await asyncio.wait_for(running, PATIENCE)  # nobody is waited for who does not hang up
    with pytest.raises(OSError, match=r"."):
        await Peer.to(url)


async def test_a_request_that_does_not_end_is_cut_off_without_an_answer() -> None:
    """Nobody knows how far it came, so neither 500 nor 503 would be true; the application has ended when we have."""
    app = Door()
    async with door(Limits(in_flight=0.1), app) as url:
        peer = await Peer.to(url)
        await peer.send(request(method="GET", target="/hang"))
        await asyncio.wait_for(app.hangs.wait(), PATIENCE)
    assert app.cut_off == ["cancelled"]
    assert await peer.rest() == b""
    peer.close()


def test_an_address_that_cannot_be_listened_on_is_one_clear_line() -> None:
    """It names the address and what to do."""
    with listen("127.0.0.1", 0) as taken, pytest.raises(InvalidSettings, match=r"127.0.0.1 port .* another port"):
        listen("127.0.0.1", taken.getsockname()[1])
