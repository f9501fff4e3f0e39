"""Providers over HTTP: one request with an `Idempotency-Key`, one typed answer, whatever comes back.

The protocol (JSON; the same act twice acts once):

    POST /{provider}/acts     {act}          200 done · 202 pending · 422 declined · 409, 429 busy · 503 unavailable
                                             401, 403, 404, 405, 407: unavailable, unless the body says declined
    POST /{provider}/undo     {undo, of}     the same
    POST /{provider}/lookup   {act}          also 404 absent · 410 undone; here only a body that says so proves anything
         …?by=merchant_reference             found by workflow_id, step and operation, where the provider is declared so
    GET  /{provider}/acts?since=TIME         what was done since, as a list
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final, TypeVar

import httpx2
from pydantic import TypeAdapter, ValidationError

from orderflow.domain.effects import (
    Absent,
    Act,
    Answer,
    Busy,
    Capabilities,
    Done,
    Found,
    Handle,
    Listed,
    Pending,
    Performed,
    Provider,
    Refused,
    Unavailable,
    Undone,
    Unknown,
)
from orderflow.domain.errors import InvalidJson, InvalidSettings
from orderflow.domain.strict_json import JsonValue, read_json

T = TypeVar("T")

MAX_ANSWER_BYTES: Final = 65_536
MAX_LIST_BYTES: Final = 8_388_608
MAX_RETRY_AFTER: Final = 300.0
"""Seconds: a provider may slow an order down, never stop it."""

_ANSWER: Final[TypeAdapter[Found]] = TypeAdapter(Answer)
_LISTED: Final = TypeAdapter(list[Listed])
_CODE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}")
_STATED: Final[dict[int, type[Found]]] = {200: Done, 202: Pending, 404: Absent, 410: Undone, 422: Refused}
"""The answer that a body must hold for the status to be believed."""

_BUSY: Final = frozenset({409, 425, 429})
_MAY_HAVE_ACTED: Final = frozenset({408, 499})
_NOT_LET_IN: Final = frozenset({401, 403, 404, 405, 407})
"""An expired credential, a wrong address, a proxy in between: nobody decided on the act, and operators can mend it."""

_NEVER_SENT: Final = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
)


@dataclass(frozen=True)
class Timeouts:
    """Seconds: to connect, and from then on until the whole answer has been read."""

    connect: float = 3.0
    read: float = 10.0

    @property
    def by_phase(self) -> httpx2.Timeout:
        """The client's own limits: for connecting, and for each single read and write."""
        return httpx2.Timeout(self.read, connect=self.connect, pool=self.connect)

    @property
    def in_all(self) -> float:
        """The limit for the whole request, which a server that drips its answer cannot stretch."""
        return self.connect + self.read


@dataclass(frozen=True)
class _Response:
    """What came back; `body` is `None` when it was too big to read."""

    status: int
    body: bytes | None
    retry_after: float | None


def open_http_providers(
    base_url: str,
    names: Iterable[str],
    timeouts: Timeouts | None = None,
    declared: Mapping[str, Capabilities] | None = None,
) -> dict[str, Provider]:
    """Give a provider for each name, all over one pool of connections: `aclose` of any closes it for all.

    `declared` says what those can do that can more, or less, than one of which nothing is known.

    Raises:
        InvalidSettings: when `base_url` is no absolute http or https URL.
    """
    timeouts, declared = timeouts or Timeouts(), declared or {}
    try:
        url = httpx2.URL(base_url)
    except httpx2.InvalidURL:
        url = httpx2.URL("")
    if url.scheme not in ("http", "https") or not url.host:
        raise InvalidSettings("the providers' address must be an absolute http:// or https:// URL")
    client = open_client()
    return {name: HttpProvider(client, base_url, name, timeouts, declared.get(name)) for name in names}


def open_client() -> httpx2.AsyncClient:
    """One pool of connections. Only our own settings say where effects go: no proxy, no .netrc of the environment."""
    return httpx2.AsyncClient(trust_env=False)


class HttpProvider(Provider):
    """A provider at `base_url`/`name`. It raises for nothing that a network or a server can do.

    Never reached is `Unavailable`; anything that leaves open whether it acted is `Unknown`. Of an answer only its typed
    fields and a short code are taken over, never its text (T43, T46).
    """

    def __init__(
        self,
        client: httpx2.AsyncClient,
        base_url: str,
        name: str,
        timeouts: Timeouts,
        capabilities: Capabilities | None = None,
    ) -> None:
        self._client = client
        self._capabilities = capabilities or Capabilities()
        self._url = f"{base_url.rstrip('/')}/{name}"
        self._timeouts = timeouts
        self.name = name

    @property
    def capabilities(self) -> Capabilities:
        """See `Provider`."""
        return self._capabilities

    async def perform(self, act: Act) -> Performed:
        """See `Provider`."""
        return _performed(await self._post("acts", act.key, act.model_dump(mode="json")))

    async def lookup(self, act: Act, by: Handle = Handle.KEY) -> Found:
        """See `Provider`."""
        path = "lookup" if by is Handle.KEY else f"lookup?by={by}"
        response = await self._post(path, act.key, act.model_dump(mode="json"))
        return _found(response) if isinstance(response, _Response) else response

    async def undo(self, undo: Act, of: Act) -> Performed:
        """See `Provider`."""
        body: dict[str, JsonValue] = {"undo": undo.model_dump(mode="json"), "of": of.model_dump(mode="json")}
        return _performed(await self._post("undo", undo.key, body))

    async def list(self, since: datetime) -> "list[Listed] | None":
        """See `Provider`; `None` also when it did not answer, or with too much."""
        request = self._client.build_request(
            "GET", f"{self._url}/acts", params={"since": since.isoformat()}, timeout=self._timeouts.by_phase
        )
        response = await self._send(request, MAX_LIST_BYTES)
        if not isinstance(response, _Response) or response.status != 200 or response.body is None:
            return None
        try:
            read_json(response.body, max_bytes=MAX_LIST_BYTES)
            return _LISTED.validate_json(response.body)
        except (InvalidJson, ValidationError):
            return None

    async def aclose(self) -> None:
        """Close the connections, those of every provider that shares them."""
        await self._client.aclose()

    async def _post(self, path: str, key: str, body: dict[str, JsonValue]) -> _Response | Unavailable | Unknown:
        request = self._client.build_request(
            "POST",
            f"{self._url}/{path}",
            json=body,
            headers={"Idempotency-Key": key, "Accept": "application/json"},
            timeout=self._timeouts.by_phase,
        )
        return await self._send(request, MAX_ANSWER_BYTES)

    async def _send(self, request: httpx2.Request, max_bytes: int) -> _Response | Unavailable | Unknown:
        async def read(response: httpx2.Response) -> _Response:
            body = await read_capped(response, max_bytes)
            return _Response(response.status_code, body, retry_after_seconds(response.headers.get("Retry-After")))

        return await exchange(self._client, request, self._timeouts, read)


async def exchange(
    client: httpx2.AsyncClient,
    request: httpx2.Request,
    timeouts: Timeouts,
    read: Callable[[httpx2.Response], Awaitable[T]],
) -> T | Unavailable | Unknown:
    """Send `request` and give what `read` makes of the streamed answer, all of it in time; redirects are not followed.

    Never reached is `Unavailable`; cut off or too late is `Unknown`, with a short code.
    """
    request.headers["Accept-Encoding"] = "identity"  # so that a cap counts what arrives
    try:
        async with asyncio.timeout(timeouts.in_all):
            response = await client.send(request, stream=True, follow_redirects=False)
            try:
                return await read(response)
            finally:
                await response.aclose()
    except _NEVER_SENT:
        return Unavailable()
    except (httpx2.TimeoutException, TimeoutError):
        return Unknown(detail="timeout")
    except httpx2.HTTPError:
        return Unknown(detail="connection_lost")


async def read_capped(response: httpx2.Response, max_bytes: int) -> bytes | None:
    """Give the body of a streamed answer as it was sent, `None` when it has more bytes; no more of it is read then."""
    body = bytearray()
    async with aclosing(response.aiter_raw()) as chunks:
        async for chunk in chunks:
            body += chunk
            if len(body) > max_bytes:
                return None
    return bytes(body)


def retry_after_seconds(value: str | None) -> float | None:
    """Seconds from `Retry-After` (RFC 9110 section 10.2.3: seconds or a date), within 0 and `MAX_RETRY_AFTER`."""
    if value is None:
        return None
    if re.fullmatch(r"[0-9]{1,20}", value):
        return min(float(value), MAX_RETRY_AFTER)
    try:
        date = parsedate_to_datetime(value)
    except ValueError:
        return None
    seconds = (date.replace(tzinfo=date.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    return min(max(seconds, 0.0), MAX_RETRY_AFTER)


def _performed(response: _Response | Unavailable | Unknown) -> Performed:
    """What came of an act: a 4xx is the provider's no, also when its body says nothing, unless it let nobody in."""
    if not isinstance(response, _Response):
        return response
    answer = _found(response)
    if isinstance(answer, Absent | Undone):
        return Refused(code=_code(response))
    if not isinstance(answer, Unknown):
        return answer
    if response.status in _NOT_LET_IN and not isinstance(_typed(response.body), Refused):
        return Unavailable(retry_after=response.retry_after)
    is_no = 400 <= response.status < 500 and response.status not in _MAY_HAVE_ACTED
    return Refused(code=_code(response)) if is_no else answer


def _found(response: _Response) -> Found:
    if response.status in _BUSY:
        return Busy(retry_after=response.retry_after)
    if response.status == 503:
        return Unavailable(retry_after=response.retry_after)
    answer = _typed(response.body)
    stated = _STATED.get(response.status)
    if stated is None or not isinstance(answer, stated):
        return Unknown(detail=f"http_{response.status}")
    return Refused(code=_code(response)) if isinstance(answer, Refused) else answer


def _typed(body: bytes | None) -> Found | None:
    try:
        return _ANSWER.validate_python(read_json(body or b""))
    except (InvalidJson, ValidationError):
        return None


def _code(response: _Response) -> str:
    """Give the provider's short code if it is one; its free text would end in event history (T46)."""
    try:
        body = read_json(response.body or b"")
    except InvalidJson:
        body = None
    code = body.get("code") if isinstance(body, dict) else None
    return code if isinstance(code, str) and _CODE.fullmatch(code) else f"http_{response.status}"
