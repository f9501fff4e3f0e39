"""What a door answers, as a sender sees it, and what holds for every answer."""

import json
import re
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message
from email.policy import HTTP
from typing import Any, Final

from tests.support.senders import CANARIES

PREFIX: Final = "urn:orderflow:problem:"
PROBLEM: Final = "application/problem+json"
OF_HTTP: Final = frozenset(("about:blank", status) for status in (400, 408, 431, 503))
"""What the server answers before the door has a request: it is not HTTP, too slow, too long, or one of too many."""


@dataclass(frozen=True)
class Answer:
    """What came back: status, headers, body."""

    status: int
    headers: Message = field(repr=False)
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def cause(self) -> str:
        """Why it was refused, the last part of the problem's type."""
        return str(self.json["type"]).removeprefix(PREFIX)

    @property
    def order(self) -> str:
        """The order that an accepted event stands for."""
        return str(self.json["order"])

    @property
    def told(self) -> tuple[int, str]:
        """Status and cause, `duplicate` or `new` when it was accepted: what most tests compare."""
        if self.status in {200, 202}:
            return self.status, "duplicate" if self.json["duplicate"] else "new"
        return self.status, self.cause

    @property
    def is_of_http(self) -> bool:
        """Whether it is the server's that found no request to hand to the door."""
        return self.status >= 400 and (self.json.get("type"), self.status) in OF_HTTP

    def check(self) -> "Answer":
        """Raise AssertionError unless it is one that any sender may get at any time."""
        if self.status >= 500 and self.status != 503:
            raise AssertionError(f"the door broke: {self}")
        if repeated := [canary for canary in CANARIES if canary.encode() in self.body + bytes(self.headers)]:
            raise AssertionError(f"the answer repeats {repeated}: {self}")
        if self.status >= 400 and self.headers["content-type"] == PROBLEM and not self._is_a_problem():
            raise AssertionError(f"no problem document: {self}")
        if (
            self.status == 503
            and self.headers["content-type"] == PROBLEM
            and not re.fullmatch(r"[1-9][0-9]*", self.headers.get("retry-after", ""))
        ):
            raise AssertionError(f"a 503 without Retry-After: {self}")
        return self

    def _is_a_problem(self) -> bool:
        typed = self.is_of_http or self.json["type"].startswith(PREFIX)
        return bool(typed and self.json["status"] == self.status and self.json["title"] and self.json["detail"])


def parsed(raw: bytes) -> Answer:
    """The answer that these bytes are; AssertionError if they are none."""
    head, end, body = raw.partition(b"\r\n\r\n")
    first, _, fields = head.partition(b"\r\n")
    found = re.fullmatch(rb"HTTP/1\.1 ([1-5][0-9]{2}) .*", first)
    if not found or not end:
        raise AssertionError(f"no HTTP answer: {raw!r}")
    headers = message_from_bytes(fields + b"\r\n\r\n", policy=HTTP)
    length = headers["content-length"]
    if length is None or int(length) != len(body):
        raise AssertionError(f"not one answer of the length that it says: {raw!r}")
    return Answer(int(found[1]), headers, body)
