"""Sending events to the door as any sender of Standard Webhooks would: signed, and retried with patience.

A retry can do no harm: the event's identity (source, id) makes a second arrival a duplicate. Each attempt keeps its
`webhook-id` and is signed anew with a timestamp of its own, because the door takes the pair of both only once (W07).
"""

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, Self, TypeVar

import httpx2
from pydantic import BaseModel, Field, ValidationError

from orderflow.domain.deliveries import MEDIA_TYPE, TYPE_PREFIX
from orderflow.domain.errors import InvalidJson, Problem
from orderflow.domain.events import is_order_id
from orderflow.domain.problems import MAX_PROBLEMS
from orderflow.domain.strict_json import read_json
from orderflow.providers.http import MAX_ANSWER_BYTES, read_capped, retry_after_seconds
from orderflow.webhooks import SigningSecret, signed_headers

RETRIED: Final = frozenset({408, 429, 502, 503, 504})
"""Statuses after which the same event may well be taken a little later."""

_TAKEN: Final = frozenset({200, 202})
_CHANCE: Final = secrets.SystemRandom()
_TICK: Final = timedelta(seconds=1)

_Shape = TypeVar("_Shape", bound=BaseModel)


@dataclass(frozen=True)
class Patience:
    """How long a sender keeps at one event. Seconds, but for `attempts`."""

    attempts: int = 5
    first_wait: float = 0.5
    longest_wait: float = 30.0
    """Of one wait; `Retry-After` is followed up to here as well."""
    in_all: float = 120.0
    """From the first attempt until the last one may begin."""
    connect_within: float = 5.0
    answer_within: float = 30.0
    """From the beginning of an attempt until its whole answer has been read."""

    def wait_after(self, attempt: int, retry_after: float | None) -> float:
        """Give the wait after a failed attempt (1 is the first): what was asked for, and full jitter on top."""
        backoff = min(self.longest_wait, self.first_wait * 2 ** (attempt - 1))
        return min(retry_after or 0.0, self.longest_wait) + _CHANCE.uniform(0.0, backoff)


@dataclass(frozen=True)
class Taken:
    """The event has an order: a new one, or as a `duplicate` the one that it began before."""

    order: str
    duplicate: bool
    status: int
    attempts: int = 1


@dataclass(frozen=True)
class TurnedAway:
    """The door said no, and why: `cause` as in `orderflow.domain.deliveries`, the rest as it came over the wire."""

    cause: str
    title: str
    detail: str
    problems: tuple[Problem, ...]
    status: int
    retry_after: float | None = None
    attempts: int = 1

    @property
    def retry(self) -> bool:
        """Whether the same event may be taken later."""
        return self.status in RETRIED


@dataclass(frozen=True)
class Undelivered:
    """No door was reached, or what answered is none; `status` is what it answered, if it did."""

    reason: str
    status: int | None = None
    retry_after: float | None = None
    attempts: int = 1

    @property
    def retry(self) -> bool:
        """Whether another attempt may get through."""
        return self.status is None or self.status in RETRIED


Answered = Taken | TurnedAway | Undelivered
"""What came of one event."""


@dataclass(frozen=True)
class Retry:
    """What the next attempt waits for: the answer so far, how long (seconds), and which attempt of how many it is."""

    after: TurnedAway | Undelivered
    wait: float
    attempt: int
    attempts: int


class Sender:
    """`async with Sender(...) as sender`: sends events to the door at `url`, over at most `parallel` connections.

    `tell` hears of each retry before its wait.
    """

    def __init__(
        self,
        url: str,
        secret: SigningSecret,
        patience: Patience | None = None,
        parallel: int = 1,
        tell: Callable[[Retry], None] = lambda _: None,
    ) -> None:
        self._url = f"{url.rstrip('/')}/v1/events"
        self._secret = secret
        self._patience = patience or Patience()
        self._tell = tell
        # Only our own settings say where events go, and a redirect leads nowhere: what is signed is for this door.
        self._client = httpx2.AsyncClient(
            trust_env=False,
            follow_redirects=False,
            limits=httpx2.Limits(max_connections=parallel, max_keepalive_connections=parallel),
            timeout=httpx2.Timeout(self._patience.answer_within, connect=self._patience.connect_within),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def send(self, body: bytes) -> Answered:
        """Send one event as these very bytes until the door has decided, or patience is at its end.

        It raises for nothing that a network or a server can do.
        """
        webhook_id, stamp = f"msg_{secrets.token_hex(16)}", datetime.now(UTC)
        attempt, end = 1, time.monotonic() + self._patience.in_all
        while True:
            answered = replace(await self._attempt(body, webhook_id, stamp), attempts=attempt)
            if isinstance(answered, Taken) or not answered.retry or attempt >= self._patience.attempts:
                return answered
            wait = self._patience.wait_after(attempt, answered.retry_after)
            if time.monotonic() + wait > end:
                return answered
            attempt += 1
            self._tell(Retry(answered, wait, attempt, self._patience.attempts))
            await asyncio.sleep(wait)
            stamp = max(datetime.now(UTC), stamp + _TICK)  # two attempts within a second would be one delivery twice

    async def _attempt(self, body: bytes, webhook_id: str, stamp: datetime) -> Answered:
        headers = {
            **signed_headers(self._secret, webhook_id, body, stamp),
            "content-type": MEDIA_TYPE,
            "accept": "application/json, application/problem+json",
            "accept-encoding": "identity",  # so that the cap counts what arrives
        }
        request = self._client.build_request("POST", self._url, content=body, headers=headers)
        try:
            async with asyncio.timeout(self._patience.answer_within):
                response = await self._client.send(request, stream=True)
                try:
                    content = await read_capped(response, MAX_ANSWER_BYTES)
                finally:
                    await response.aclose()
        except (TimeoutError, httpx2.TimeoutException):
            return Undelivered(f"{self._url} gave no answer in time")
        except httpx2.HTTPError as error:
            return Undelivered(f"{self._url} cannot be reached ({str(error) or type(error).__name__})")
        retry_after = retry_after_seconds(response.headers.get("Retry-After"))
        try:
            return _read_answer(response.status_code, content, retry_after)
        except _Stray as stray:
            reason = f"{self._url} answered {response.status_code}, and not as orderflow does ({stray})"
            return Undelivered(reason, response.status_code, retry_after)


class _Stray(Exception):
    """Why an answer is none of orderflow's."""


class _Receipt(BaseModel):
    order: str
    duplicate: bool


class _Fault(BaseModel):
    path: str
    message: str


class _Document(BaseModel):
    """Problem details (RFC 9457) as the door writes them."""

    type: Annotated[str, Field(pattern=rf"\A{TYPE_PREFIX}[a-z0-9-]{{1,60}}\z")]
    title: str
    detail: str = ""
    problems: Annotated[list[_Fault], Field(max_length=MAX_PROBLEMS)] = []


def _read_answer(status: int, content: bytes | None, retry_after: float | None) -> Answered:
    if content is None:
        raise _Stray(f"more than {MAX_ANSWER_BYTES} bytes")
    if 300 <= status < 400:
        raise _Stray("a redirect, which is not followed")
    if status in _TAKEN:
        receipt = _typed(_Receipt, content)
        if not is_order_id(receipt.order) or receipt.duplicate != (status == 200):
            raise _Stray("it names no order")
        return Taken(receipt.order, receipt.duplicate, status)
    if not 400 <= status < 600:
        raise _Stray("a status that it never gives")
    document = _typed(_Document, content)
    problems = tuple(Problem(fault.path, fault.message) for fault in document.problems)
    cause = document.type.removeprefix(TYPE_PREFIX)
    return TurnedAway(cause, document.title, document.detail, problems, status, retry_after)


def _typed(shape: type[_Shape], content: bytes) -> _Shape:
    try:
        return shape.model_validate(read_json(content, max_bytes=MAX_ANSWER_BYTES), strict=True)
    except InvalidJson:
        raise _Stray("not JSON") from None
    except ValidationError:
        raise _Stray("JSON of another kind") from None
