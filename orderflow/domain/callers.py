"""The callers file: who may send events to the door, proven by what, and which events; comparing, nothing else.

The file names secrets by the file or the environment variable that holds them; `orderflow.callers` fetches those.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Final, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from orderflow.domain.deliveries import Cause, DeliveryRefused
from orderflow.domain.documents import MAX_SET_BYTES, document_refused, read_model
from orderflow.domain.errors import Problem
from orderflow.domain.events import OrderEvent
from orderflow.domain.money import Currency, Money
from orderflow.domain.problems import json_path
from orderflow.domain.rates import Rate
from orderflow.domain.steps import Label
from orderflow.domain.strict_json import MAX_INTEGER
from orderflow.domain.times import Instant
from orderflow.domain.uri_reference import is_uri_reference

MAX_CALLERS_BYTES: Final = MAX_SET_BYTES

EVENT_TYPES: Final[tuple[str, ...]] = get_args(OrderEvent.model_fields["type"].annotation)
"""The types of event that this release takes."""

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OUR_VARIABLES: Final = "ORDERFLOW_"
_PUBLIC_KEY: Final = "whpk_"
_SHOWN: Final = 5


def _file_name(name: str) -> str:
    if not name or not name.isprintable():
        raise ValueError("must be the path of a file, seen from the folder of this one")
    return name


def _variable(name: str) -> str:
    if not _VARIABLE.fullmatch(name):
        raise ValueError("must be the name of an environment variable")
    if name.startswith(_OUR_VARIABLES):
        raise ValueError(f"must not begin with {_OUR_VARIABLES}, for such variables are settings; choose another name")
    return name


def _public_key(text: str) -> str:
    if not text.startswith(_PUBLIC_KEY):
        raise ValueError(f"must be a public key, {_PUBLIC_KEY} and base64; secrets do not belong into this file")
    return text


def _source(text: str) -> str:
    if not text or not is_uri_reference(text):
        raise ValueError("must be a non-empty URI-reference (RFC 3986), such as /shop; it is compared as it stands")
    return text


def _event_type(text: str) -> str:
    if text not in EVENT_TYPES:
        raise ValueError(f"must be {' or '.join(EVENT_TYPES)}")
    return text


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)


class SecretPlace(_Strict):
    """Where a secret is, in a file (relative to the callers file) or an environment variable; it ends at `until`."""

    file: Annotated[str, Field(max_length=1024), AfterValidator(_file_name)] | None = None
    env: Annotated[str, Field(max_length=256), AfterValidator(_variable)] | None = None
    until: Instant | None = None

    @model_validator(mode="after")
    def _is_one_place(self) -> "SecretPlace":
        if (self.file is None) == (self.env is None):
            raise ValueError("must have either file or env")
        return self

    def __str__(self) -> str:
        return f"file {self.file}" if self.file is not None else f"env {self.env}"


class PublicKey(_Strict):
    """The public half of an Ed25519 key, `whpk_…`; it ends at `until`."""

    key: Annotated[str, Field(max_length=256), AfterValidator(_public_key)]
    until: Instant | None = None


class Caller(_Strict):
    """Who may send, and what. `limits` gives by currency the greatest `total_minor`; no other currency is taken."""

    name: Label
    secrets: Annotated[tuple[SecretPlace, ...], Field(max_length=8)] = ()
    public_keys: Annotated[tuple[PublicKey, ...], Field(max_length=8)] = ()
    tokens: Annotated[tuple[SecretPlace, ...], Field(max_length=8)] = ()
    sources: Annotated[
        tuple[Annotated[str, Field(max_length=1024), AfterValidator(_source)], ...],
        Field(min_length=1, max_length=1000),
    ]
    types: Annotated[tuple[Annotated[str, AfterValidator(_event_type)], ...], Field(min_length=1)]
    limits: Annotated[Mapping[Currency, Annotated[int, Field(ge=1, le=MAX_INTEGER)]], Field(min_length=1)]
    rate: Rate | None = None

    @model_validator(mode="after")
    def _can_sign(self) -> "Caller":
        if not self.secrets and not self.public_keys:
            raise ValueError("must have secrets or public_keys, or nothing it sends can be verified")
        return self


class _CallersFile(_Strict):
    callers: Annotated[tuple[Caller, ...], Field(min_length=1, max_length=64)]


def read_callers(raw: bytes, where: str) -> tuple[Caller, ...]:
    """Read a callers file; `where` is what errors call it.

    Raises:
        InvalidSettings: with every fault and its JSON path, none repeating a value.
    """
    read = read_model(_CallersFile, raw, where, max_bytes=MAX_CALLERS_BYTES, explained=_explained)
    if problems := tuple(_repeated(read.callers)):
        raise document_refused(where, problems)
    return read.callers


def permit(caller: Caller, event: OrderEvent) -> None:
    """Let an event pass that `caller` may send: its source, its type, its currency, its amount; all exact.

    Raises:
        DeliveryRefused: the first of these that it may not send, and what it may.
    """
    if event.source not in caller.sources:
        some = ", ".join(caller.sources[:_SHOWN]) + (", …" if len(caller.sources) > _SHOWN else "")
        raise DeliveryRefused(Cause.SOURCE_NOT_PERMITTED, f"{caller.name} may only send events whose source is {some}")
    if event.type not in caller.types:
        raise DeliveryRefused(Cause.TYPE_NOT_PERMITTED, f"{caller.name} may only send {', '.join(caller.types)}")
    limit = caller.limits.get(event.data.currency)
    if limit is None:
        currencies = ", ".join(caller.limits)
        raise DeliveryRefused(Cause.CURRENCY_NOT_PERMITTED, f"{caller.name} may only send orders in {currencies}")
    if event.data.total_minor > limit:
        most = Money(amount_minor=limit, currency=event.data.currency)
        raise DeliveryRefused(Cause.AMOUNT_NOT_PERMITTED, f"{caller.name} may only send orders of up to {most}")


def _repeated(callers: tuple[Caller, ...]) -> Iterator[Problem]:
    seen = set()
    for index, caller in enumerate(callers):
        if caller.name in seen:
            yield Problem(json_path(("callers", index, "name")), "appears more than once")
        seen.add(caller.name)


def _explained(problem: Problem) -> Problem:
    """A fault of a key is at that key; pydantic's path would go one further."""
    return Problem(problem.path.removesuffix('["[key]"]'), problem.message)
