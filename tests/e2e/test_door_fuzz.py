"""Whatever comes in: no 5xx, nothing invalid accepted, nothing valid refused, every answer as the document says."""

import json
from collections.abc import Callable
from typing import Any, Final

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.schemas import BaseSchema
from schemathesis.specs.openapi.checks import positive_data_acceptance

from tests.support.door import Door
from tests.support.oracle import CURRENCIES, order_in
from tests.support.senders import Sender, as_bytes
from tests.support.street import SOURCES, Street

ENDLESS: Final = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], derandomize=True
)
"""Fixtures of the session are no reason to start anew; the examples are the same each time, as are CI's verdicts."""

_SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20),
    st.sampled_from([0, -1, 2**53 - 1, 2**53, 2**63, "1.0", "EUR", "XXX", "/shop", "a b", "%zz", "a@b", "a@b@c"]),
    st.sampled_from(["", " ", "\ud800", "\x00", "\ufffe", "\x85", "\t", "application/json"]),
    st.sampled_from(["2026-01-31T12:00:00Z", "2026-02-30T12:00:00Z", "2026-01-31 12:00:00Z", "2024-02-29T24:00:00Z"]),
)  # fmt: skip
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(body=st.binary(max_size=3000))
@settings(ENDLESS, max_examples=100)
async def test_arbitrary_bytes_are_refused_signed_or_not(door: Door, street: Street, body: bytes) -> None:
    """W09, issue 4: 401 without a signature, 400 with one."""
    assert (await door.send(body)).told == (401, "signature-missing")
    answer = await door.post(body, street.shop)
    assert (answer.status == 400) is (order_in(body) is None)


_HEADERS: Final = (
    *("webhook-id", "webhook-timestamp", "webhook-signature"),
    *("content-type", "content-encoding", "authorization", "x-forwarded-for", "expect"),
)


@given(
    name=st.sampled_from(_HEADERS),
    value=st.binary(max_size=200).map(lambda raw: raw.translate(None, b"\r\n\x00").strip()),
)
@settings(ENDLESS, max_examples=150)
async def test_an_arbitrary_header_is_no_fault_of_ours(door: Door, street: Street, name: str, value: bytes) -> None:
    """W02, issue 4: in the place of a right one, or beside it; controls in it are for HTTP itself to refuse."""
    body = as_bytes(street.shop.placed())
    headers = street.shop.headers(body)
    replaced = [(each, value if each == name else old) for each, old in headers]
    for sent in (replaced, [*headers, (name, value)]):
        raw = await door.talk(door.head("POST", "/v1/events", [*sent, ("content-length", str(len(body)))]) + body)
        assert raw.startswith((b"HTTP/1.1 2", b"HTTP/1.1 4")), raw


def _paths(value: Any, before: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [before, *(path for name, each in inner for path in _paths(each, (*before, name)))]


def _set(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copied = dict(value) if isinstance(value, dict) else list(value)
    copied[path[0]] = _set(copied[path[0]], path[1:], new)
    return copied


def _removed(value: Any, path: tuple[Any, ...]) -> Any:
    if len(path) == 1:
        if isinstance(value, dict):
            return {name: each for name, each in value.items() if name != path[0]}
        return [each for place, each in enumerate(value) if place != path[0]]
    return _set(value, path[:1], _removed(value[path[0]], path[1:]))


@st.composite
def bent(draw: Callable[..., Any], sender: Sender) -> bytes:
    """A valid event of which one or two members are replaced, removed, added, or whose bytes are damaged."""
    value: Any = sender.placed()
    for _ in range(draw(st.integers(1, 2))):
        path = draw(st.sampled_from(_paths(value)[1:] or [()]))
        match draw(st.sampled_from(["replace", "remove", "add", "keep"])) if path else "keep":
            case "replace":
                value = _set(value, path, draw(_VALUES))
            case "remove":
                value = _removed(value, path)
            case "add":
                value = {**value, draw(st.text(max_size=10)): draw(_VALUES)}
            case _:
                pass
        if not isinstance(value, dict):
            break
    body = json.dumps(value, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 1]))).encode(
        "utf-8", "surrogatepass"
    )
    if draw(st.integers(0, 3)) == 0:
        at = draw(st.integers(0, len(body)))
        body = body[:at] + draw(st.binary(max_size=3)) + body[at + draw(st.integers(0, 3)) :]
    return body


@given(data=st.data())
@settings(ENDLESS, max_examples=400)
async def test_the_door_and_a_second_judge_agree_about_bent_events(
    door: Door, street: Street, data: st.DataObject
) -> None:
    """Issue 4: what is an event for one is one for the other; nothing invalid is accepted, nothing valid refused."""
    sender = data.draw(st.sampled_from([street.shop, street.anyone]))
    body = data.draw(bent(sender))
    answer, order = await door.post(body, sender), order_in(body)
    event(f"status {answer.status}")
    if order is None:
        assert answer.status in {400, 422}, body
    elif answer.status == 403:
        permitted = {"/shop"} if sender is street.shop else set(SOURCES)
        known = CURRENCIES if sender is street.shop else {"EUR"}
        assert order["source"] not in permitted or order["data"]["currency"] not in known, body
    elif answer.status == 400:
        assert order["data"]["currency"] not in CURRENCIES, body
    else:
        assert answer.status in {200, 202, 409}, body


class _Signed(requests.auth.AuthBase):
    """Signs a request over the bytes that will really be sent, and asks with the token."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        for name, value in self._sender.headers(_sent(request), media_type=None):
            request.headers[str(name)] = str(value)
        request.headers["authorization"] = f"Bearer {self._sender.token}"
        return request


def _sent(request: requests.PreparedRequest) -> bytes:
    body = request.body or b""
    if isinstance(body, str):
        return body.encode()
    if not isinstance(body, bytes):
        raise TypeError(f"a body of type {type(body)}")
    return body


@pytest.fixture(scope="module")
def api(door: Door) -> BaseSchema:
    """The document as the running door serves it."""
    return schemathesis.openapi.from_url(f"{door.url}/openapi.json")


def _whole(value: Any) -> Any:
    """A value with whole numbers written as such: what no schema can ask for, since 1.0 is an integer to it (I11)."""
    if isinstance(value, dict):
        return {name: _whole(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_whole(member) for member in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


@pytest.mark.parametrize("mode", list(GenerationMode), ids=str)
@pytest.mark.parametrize(
    ("path", "method"), [("/v1/events", "POST"), ("/v1/orders/{order}", "GET")], ids=["events", "orders"]
)
@given(data=st.data())
@settings(ENDLESS, max_examples=60)
def test_every_answer_to_what_the_document_describes_is_as_it_says(
    api: BaseSchema, street: Street, path: str, method: str, mode: GenerationMode, data: st.DataObject
) -> None:
    """Issue 4: schemathesis over /openapi.json, valid and invalid alike, signed as it is sent."""
    case = data.draw(api[path][method].as_strategy(mode))
    if mode is GenerationMode.POSITIVE:
        case.body = _whole(case.body)
    response = case.call(auth=_Signed(street.shop))
    case.validate_response(response, excluded_checks=[positive_data_acceptance])
    event(f"status {response.status_code}")
    if path == "/v1/events" and mode is GenerationMode.POSITIVE:
        assert response.status_code in {200, 202, 403, 409, 422}, response.text
    if path == "/v1/events" and response.status_code in {200, 202}:
        assert order_in(_sent(response.request)) is not None
