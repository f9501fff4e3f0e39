"""A subscriber as a provider: an announcement is one signed POST (Standard Webhooks) of a CloudEvent (structured JSON).

    2xx            done                       410            declined: it wants to hear nothing more
    429, 503       busy, with its Retry-After 408, 5xx, cut  unknown: it may have it
    3xx, other 4xx unavailable: it did not take it, and people can mend that at either end

A receiver knows what it has by `webhook-id` (or the CloudEvent's source and id), so sending again is harmless: the key
is remembered for ever. It cannot be asked what it has, and nothing it has been told can be taken back.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import httpx2

from orderflow.domain.effects import (
    Act,
    Busy,
    Capabilities,
    Done,
    Found,
    Handle,
    Listed,
    Performed,
    Provider,
    Refused,
    Unavailable,
    Unknown,
)
from orderflow.domain.intents import canonical_json
from orderflow.providers.http import MAX_ANSWER_BYTES, Timeouts, exchange, read_capped, retry_after_seconds
from orderflow.webhooks import SigningSecret, signed_headers

MEDIA_TYPE: Final = "application/cloudevents+json"
GONE: Final = "gone"
"""The code of a subscriber's definitive no."""

NOT_REACHED: Final = "not_reached"
NO_SUCH_SUBSCRIBER: Final = "no_such_subscriber"

_TIMEOUTS: Final = Timeouts(connect=3.0, read=10.0)
_BODY_WITHIN: Final = 1.0
"""Seconds that an answer's body is read for, so that its connection can be used again; what it says does not count."""

_CAPABILITIES: Final = Capabilities(key_horizon=None, lookup_by=frozenset(), lists=False)


@dataclass(frozen=True)
class _Answer:
    status: int
    retry_after: float | None


def _now() -> datetime:
    return datetime.now(UTC)


class WebhookProvider(Provider):
    """Tells one subscriber over `client`, which the caller closes. `answered` is a short code for the last answer."""

    def __init__(
        self, client: httpx2.AsyncClient, url: str, secret: SigningSecret, now: Callable[[], datetime] = _now
    ) -> None:
        self._client = client
        self._url = url
        self._secret = secret
        self._now = now
        self.answered: str | None = None

    @property
    def capabilities(self) -> Capabilities:
        """See `Provider`."""
        return _CAPABILITIES

    async def perform(self, act: Act) -> Performed:
        """Send the CloudEvent that `act` intends, under its id; the signature's time is that of this attempt."""
        body = canonical_json(act.intent)
        headers = signed_headers(self._secret, act.workflow_id, body, self._now())
        request = self._client.build_request(
            "POST",
            self._url,
            content=body,
            headers={**headers, "Content-Type": MEDIA_TYPE},
            timeout=_TIMEOUTS.by_phase,
        )
        answer = await exchange(self._client, request, _TIMEOUTS, _read)
        self.answered = _code(answer)
        return _performed(answer) if isinstance(answer, _Answer) else answer

    async def lookup(self, act: Act, by: Handle = Handle.KEY) -> Found:
        """See `Provider`: never asked, by its capabilities."""
        return Unknown()

    async def undo(self, undo: Act, of: Act) -> Performed:
        """See `Provider`: what was told cannot be taken back."""
        return Refused(code="not_to_be_taken_back")

    async def list(self, since: datetime) -> "list[Listed] | None":
        """See `Provider`."""
        return None

    async def aclose(self) -> None:
        """See `Provider`; the connections are the caller's."""


class NoSubscriber(WebhookProvider):
    """Stands for a subscriber that this worker's file does not name (any more): nothing is sent, people decide."""

    def __init__(self) -> None:
        self.answered = NO_SUCH_SUBSCRIBER

    async def perform(self, act: Act) -> Performed:
        """See `Provider`."""
        return Unavailable()


async def _read(response: httpx2.Response) -> _Answer:
    with suppress(httpx2.HTTPError, TimeoutError):
        async with asyncio.timeout(_BODY_WITHIN):
            await read_capped(response, MAX_ANSWER_BYTES)
    return _Answer(response.status_code, retry_after_seconds(response.headers.get("Retry-After")))


def _code(answer: _Answer | Unavailable | Unknown) -> str:
    match answer:
        case _Answer(status=status):
            return f"http_{status}"
        case Unknown(detail=detail):
            return detail
    return NOT_REACHED


def _performed(answer: _Answer) -> Performed:
    status = answer.status
    if 200 <= status < 300:
        return Done(reference=f"http_{status}")
    if status == 410:
        return Refused(code=GONE)
    if status in (429, 503):
        return Busy(retry_after=answer.retry_after)
    if status >= 500 or status == 408:
        return Unknown(detail=f"http_{status}")
    return Unavailable(retry_after=answer.retry_after)
