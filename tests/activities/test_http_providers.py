"""From what a network and a server can do to one typed answer: what it proves is believed, its text never is."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orderflow.domain.effects import (
    Absent,
    Busy,
    Done,
    Found,
    Pending,
    Refused,
    Unavailable,
    Undone,
    Unknown,
)
from orderflow.domain.errors import InvalidSettings
from orderflow.providers.http import (
    MAX_ANSWER_BYTES,
    MAX_LIST_BYTES,
    MAX_RETRY_AFTER,
    HttpProvider,
    Timeouts,
    open_http_providers,
)
from tests.support.providers import act, within

CANARY = "canary-4711"
CHARGE, REFUND = act("charge", "order-http"), act("refund", "order-http")

Handler = Callable[[httpx2.Request], httpx2.Response]


def provider(handler: Handler, timeouts: Timeouts | None = None) -> HttpProvider:
    """A provider whose server is `handler`."""
    client = httpx2.AsyncClient(transport=httpx2.MockTransport(handler))
    return HttpProvider(client, "http://payments.test/v1/", "payments", timeouts or Timeouts())


async def ask(asked: HttpProvider, method: str) -> Found:
    """Call one of the three methods that answer."""
    match method:
        case "perform":
            return await within(asked.perform(CHARGE))
        case "undo":
            return await within(asked.undo(REFUND, CHARGE))
        case _:
            return await within(asked.lookup(CHARGE))


def answering(status: int, body: object = None, retry_after: bytes | None = None) -> Handler:
    """A server that says this; a body that is not bytes is sent as JSON."""
    headers = [] if retry_after is None else [(b"Retry-After", retry_after)]
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return lambda request: httpx2.Response(status, content=arriving(content), headers=headers)


async def arriving(content: bytes) -> AsyncIterator[bytes]:
    """`content` as a network brings it."""
    yield content


DONE = {"answer": "done", "reference": "ch_1", "amount_minor": 1000}
ABSENT = {"answer": "absent"}
UNDONE = {"answer": "undone", "reference": "ch_1"}
NO = {"answer": "declined", "code": "card_declined"}


@pytest.mark.parametrize(
    ("status", "body", "acted", "looked_up"),
    [
        (200, DONE, Done(reference="ch_1", amount_minor=1000), Done(reference="ch_1", amount_minor=1000)),
        (202, {"answer": "pending", "reference": "p"}, Pending(reference="p"), Pending(reference="p")),
        (422, NO, Refused(code="card_declined"), Refused(code="card_declined")),
        (404, ABSENT, Refused(code="http_404"), Absent()),
        (410, UNDONE, Refused(code="http_410"), Undone(reference="ch_1")),
        # A no without proof: an act was refused, but of a lookup it says nothing about the act.
        (402, {"code": "insufficient_funds"}, Refused(code="insufficient_funds"), Unknown(detail="http_402")),
        (403, NO, Refused(code="card_declined"), Unknown(detail="http_403")),
        # Nobody was let in, so nobody acted: an expired credential, a proxy's own page.
        (401, {"error": CANARY}, Unavailable(), Unknown(detail="http_401")),
        (403, {"code": "forbidden"}, Unavailable(), Unknown(detail="http_403")),
        (404, b"<h1>Not found</h1>", Unavailable(), Unknown(detail="http_404")),
        (405, b"", Unavailable(), Unknown(detail="http_405")),
        (407, b"", Unavailable(), Unknown(detail="http_407")),
        (422, {"code": f"{CANARY} in a sentence"}, Refused(code="http_422"), Unknown(detail="http_422")),
        (422, {"answer": "declined", "code": "a sentence, as it were"}, Refused(code="http_422"), None),
        (422, {"code": 7}, Refused(code="http_422"), Unknown(detail="http_422")),
        # Come back later.
        (409, NO, Busy(), Busy()),
        (429, b"", Busy(), Busy()),
        (425, b"", Busy(), Busy()),
        (503, b"", Unavailable(), Unavailable()),
        # It may have acted.
        *((status, b"", Unknown(detail=f"http_{status}"), None) for status in (204, 302, 408, 499, 500, 502, 504, 599)),
        # Success that is none (M04).
        (200, {"ok": True, "error": CANARY}, Unknown(detail="http_200"), None),
        (200, DONE | {"error": CANARY}, Unknown(detail="http_200"), None),
        (200, NO, Unknown(detail="http_200"), None),
        (200, {"answer": "pending", "reference": "p"}, Unknown(detail="http_200"), None),
        (202, DONE, Unknown(detail="http_202"), None),
        (200, DONE | {"amount_minor": 10.5}, Unknown(detail="http_200"), None),
        (200, DONE | {"amount_minor": "1000"}, Unknown(detail="http_200"), None),
        (200, DONE | {"amount_minor": -1}, Unknown(detail="http_200"), None),
        (200, b"", Unknown(detail="http_200"), None),
        (200, b"\xff", Unknown(detail="http_200"), None),
        (200, b'{"answer":"declined","answer":"done","reference":"x"}', Unknown(detail="http_200"), None),
        (200, b"[" * 5000, Unknown(detail="http_200"), None),
    ],
    ids=lambda value: str(value)[:60],
)
async def test_an_answer_is_what_it_proves(status: int, body: object, acted: Found, looked_up: Found | None) -> None:
    """Status and body must agree; whatever leaves open if it acted is unknown, never failed (I06, M04, W14, W16)."""
    asked = provider(answering(status, body))

    answers = [await ask(asked, method) for method in ("perform", "undo", "lookup")]

    assert answers == [acted, acted, acted if looked_up is None else looked_up]
    assert CANARY not in repr(answers)


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (httpx2.ConnectError("refused"), Unavailable()),
        (httpx2.ConnectTimeout("slow"), Unavailable()),
        (httpx2.PoolTimeout("full"), Unavailable()),
        (httpx2.ProxyError("no"), Unavailable()),
        (httpx2.ReadTimeout("slow"), Unknown(detail="timeout")),
        (httpx2.WriteTimeout("slow"), Unknown(detail="timeout")),
        (httpx2.ReadError("cut"), Unknown(detail="connection_lost")),
        (httpx2.WriteError("cut"), Unknown(detail="connection_lost")),
        (httpx2.RemoteProtocolError("cut"), Unknown(detail="connection_lost")),
        (httpx2.DecodingError("gzip"), Unknown(detail="connection_lost")),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
@pytest.mark.parametrize("method", ["perform", "undo", "lookup"])
async def test_only_what_was_never_reached_did_not_act(error: Exception, answer: Found, method: str) -> None:
    """A connection that was never made is proof; one that ended in the middle is none (I06)."""

    def failing(request: httpx2.Request) -> httpx2.Response:
        raise error

    assert await ask(provider(failing), method) == answer


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("0", 0),
        ("7", 7),
        ("99999999999", MAX_RETRY_AFTER),
        ("9" * 400, None),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("", None),
        ("٣", None),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", MAX_RETRY_AFTER),
        ("Sunday, 06-Nov-94 08:49:37 GMT", 0),
        ("Sun, 99 Nov 1994 08:49:37 GMT", None),
        ("Sun, 06 Nov 1994 08:49:37", 0),
    ],
)
@pytest.mark.parametrize(("status", "kind"), [(503, Unavailable), (429, Busy), (409, Busy)])
async def test_retry_after_is_read_and_bounded(
    header: str, seconds: float | None, status: int, kind: type[Busy | Unavailable]
) -> None:
    """Seconds or a date (RFC 9110 section 10.2.3), never more than the cap; nonsense is no advice."""
    answer = await ask(provider(answering(status, b"", header.encode())), "perform")

    assert answer == kind(retry_after=seconds)


async def test_retry_after_as_a_date_is_counted_from_now() -> None:
    """A date a minute ahead means about a minute."""
    header = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)

    answer = await ask(provider(answering(503, b"", header.encode())), "perform")

    assert isinstance(answer, Unavailable)
    assert answer.retry_after is not None
    assert 30 < answer.retry_after <= 60


@pytest.mark.parametrize(("status", "answer"), [(422, Refused(code="http_422")), (500, Unknown(detail="http_500"))])
async def test_three_megabytes_of_error_text_are_not_read(status: int, answer: Found) -> None:
    """Reading stops at the cap, and the text goes nowhere (T43, T46)."""
    sent = 0

    async def flood() -> AsyncIterator[bytes]:
        nonlocal sent
        yield b'{"code":"'
        for _ in range(3 * 1024):
            sent += 1024
            yield CANARY.encode().ljust(1024)

    asked = provider(lambda request: httpx2.Response(status, content=flood()))

    assert await ask(asked, "perform") == answer
    assert sent <= MAX_ANSWER_BYTES + 2048


async def test_a_server_that_drips_its_answer_times_out() -> None:
    """Each byte comes in time and the answer never does: the limit is for the whole answer."""

    async def drip() -> AsyncIterator[bytes]:
        while True:
            yield b" "
            await asyncio.sleep(0.01)

    asked = provider(lambda request: httpx2.Response(200, content=drip()), Timeouts(connect=0.1, read=0.1))

    assert await ask(asked, "perform") == Unknown(detail="timeout")


async def test_a_request_carries_its_key_and_its_limits() -> None:
    """The idempotency key stands in the header and in the body; each phase has a limit; nothing is compressed."""
    seen: list[httpx2.Request] = []

    def record(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return answering(200, DONE)(request)

    asked = provider(record, Timeouts(connect=1.5, read=4))
    for method in ("perform", "undo", "lookup"):
        await ask(asked, method)

    assert [str(request.url) for request in seen] == [
        f"http://payments.test/v1/payments/{path}" for path in ("acts", "undo", "lookup")
    ]
    assert [request.headers["Idempotency-Key"] for request in seen] == [CHARGE.key, REFUND.key, CHARGE.key]
    for request in seen:
        assert request.headers["Accept-Encoding"] == "identity"
        assert request.extensions["timeout"] == {"connect": 1.5, "read": 4, "write": 4, "pool": 1.5}
    assert json.loads(seen[0].content) == CHARGE.model_dump(mode="json")


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, [{"key": "k", "operation": "charge", "reference": "r", "at": "yesterday"}]),
        (200, {"acts": []}),
        (404, []),
        (503, b""),
        (200, b" " * (MAX_LIST_BYTES + 1)),
    ],
    ids=["no_times", "no_list", "not_found", "unavailable", "too_big"],
)
async def test_a_list_that_cannot_be_had_is_none(status: int, body: object) -> None:
    """`None` says that this provider cannot tell; an empty list would say that it did nothing."""
    assert await within(provider(answering(status, body)).list(datetime.now(UTC))) is None


async def test_nobody_there_is_unavailable() -> None:
    """A real connection to a port where nothing listens: never reached, so it did not act."""
    providers = open_http_providers("http://127.0.0.1:9", ["payments"], Timeouts(connect=5, read=5))

    answer = await within(providers["payments"].perform(CHARGE))
    await providers["payments"].aclose()

    assert answer == Unavailable()


@pytest.mark.parametrize(
    "address", ["", "payments.test", "ftp://payments.test", "http://", "http://a:b:c", "http://[::1"]
)
def test_an_address_that_is_none_is_refused_at_once(address: str) -> None:
    """A wrong base URL is found when providers are opened, not at the first charge."""
    with pytest.raises(InvalidSettings, match="http"):
        open_http_providers(address, ["payments"])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)
likely = st.fixed_dictionaries(
    {"answer": st.sampled_from(["done", "pending", "declined", "busy", "unavailable", "unknown", "absent", "undone"])},
    optional={"reference": json_values, "code": json_values, "amount_minor": json_values, "result": json_values},
)


@given(
    status=st.integers(200, 599),
    body=st.binary(max_size=60) | (json_values | likely).map(lambda value: json.dumps(value).encode()),
    retry_after=st.none() | st.binary(max_size=40),
    method=st.sampled_from(["perform", "undo", "lookup"]),
)
async def test_no_answer_of_a_server_makes_a_provider_raise(
    status: int, body: bytes, retry_after: bytes | None, method: str
) -> None:
    """Any status with any body gives a typed answer; done and the proofs of a lookup need a body that says so."""
    answer = await ask(provider(answering(status, body, retry_after)), method)

    if isinstance(answer, Done | Absent | Undone | Pending):
        assert json.loads(body)["answer"] == answer.answer
        assert status in (200, 202) or method == "lookup"
    if isinstance(answer, Busy | Unavailable) and answer.retry_after is not None:
        assert 0 <= answer.retry_after <= MAX_RETRY_AFTER
