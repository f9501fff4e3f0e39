"""The subscribers file: who is told that an order has finished, where, signed with what, and of which endings.

It names secrets by the file or the environment variable that holds them; `orderflow.subscribers` fetches those.
"""

import re
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from orderflow.domain.announcements import SOURCE
from orderflow.domain.callers import SecretPlace
from orderflow.domain.documents import MAX_SET_BYTES, read_model
from orderflow.domain.durations import Duration
from orderflow.domain.orders import FINAL, Stage
from orderflow.domain.steps import RetryPolicy
from orderflow.domain.uri_reference import is_uri_reference

A_DAY: Final = RetryPolicy(
    attempts=10, initial_interval=Duration("PT30S"), backoff=4, maximum_interval=Duration("PT6H")
)
"""How patiently a subscriber is told that says nothing of it: ten attempts in about 27 hours."""

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,30}")


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError("must be 1 to 31 of a-z, 0-9 and _, a letter first: it becomes part of keys")
    return text


def _url(text: str) -> str:
    if not text.isascii() or not text.isprintable() or {*" @#"} & {*text} or not _is_absolute(text):
        raise ValueError("must be an https address, such as https://shop.example.com/hooks, without user and #fragment")
    return text


def _is_absolute(text: str) -> bool:
    try:
        split = urlsplit(text)
        return split.scheme in {"https", "http"} and bool(split.hostname) and split.port != 0
    except ValueError:
        return False


def _secret(place: SecretPlace) -> SecretPlace:
    if place.until is not None:
        raise ValueError(
            "must have no until: what is signed with is replaced, in the file or the variable that it is in"
        )
    return place


def _final(stage: Stage) -> Stage:
    if stage not in FINAL:
        raise ValueError(f"must be one of {', '.join(sorted(FINAL))}")
    return stage


def _source(text: str) -> str:
    if not text or not is_uri_reference(text):
        raise ValueError("must be a non-empty URI-reference (RFC 3986), such as /orderflow")
    return text


def _finite(retry: RetryPolicy) -> RetryPolicy:
    if retry.non_retryable:
        raise ValueError("must have no non_retryable: what a receiver answers is not ours to name")
    return retry


_Source = Annotated[str, Field(max_length=1024), AfterValidator(_source)]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)


class Subscriber(_Strict):
    """Who is told; `stages` and `sources` (of the order's own event, compared as they stand) say of which orders."""

    name: Annotated[str, AfterValidator(_name)]
    url: Annotated[str, Field(max_length=2048), AfterValidator(_url)]
    secret: Annotated[SecretPlace, AfterValidator(_secret)]
    stages: Annotated[tuple[Annotated[Stage, AfterValidator(_final)], ...], Field(min_length=1)] | None = None
    sources: Annotated[tuple[_Source, ...], Field(min_length=1, max_length=1000)] | None = None
    retry: Annotated[RetryPolicy, AfterValidator(_finite)] = A_DAY

    def hears(self, stage: Stage, source: str) -> bool:
        """Whether it is told of an order whose event came from `source` and that ended in `stage`."""
        return (self.stages is None or stage in self.stages) and (self.sources is None or source in self.sources)


class SubscribersFile(_Strict):
    """All of it; `source` is the CloudEvents' own."""

    subscribers: Annotated[tuple[Subscriber, ...], Field(max_length=32)]
    source: _Source = SOURCE

    @model_validator(mode="after")
    def _names_are_unique(self) -> "SubscribersFile":
        names = [each.name for each in self.subscribers]
        if len({*names}) < len(names):
            raise ValueError("must not hold two subscribers of one name")
        return self


def read_subscribers(raw: bytes, where: str) -> SubscribersFile:
    """Read a subscribers file; `where` is what errors call it.

    Raises:
        InvalidSettings: with every fault and its JSON path, none repeating a value.
    """
    return read_model(SubscribersFile, raw, where, max_bytes=MAX_SET_BYTES)
