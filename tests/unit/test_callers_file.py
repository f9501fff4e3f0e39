"""The callers file: every fault at its JSON path; and what a caller may send, exactly."""

import json
from pathlib import Path
from typing import Any

import pytest

from orderflow.domain.callers import Caller, permit, read_callers
from orderflow.domain.deliveries import Cause, DeliveryRefused
from orderflow.domain.errors import InvalidSettings
from orderflow.webhooks import read_verifying_key
from tests.architecture.markdown import blocks
from tests.order_events import ABSENT, accepted

PAGE = Path(__file__).parents[2] / "docs" / "callers.md"


def value(**changes: object) -> dict[str, Any]:
    """A caller with members set; `ABSENT` removes one."""
    whole: dict[str, Any] = {
        "name": "shop",
        "secrets": [{"file": "shop.whsec"}],
        "sources": ["/shop"],
        "types": ["dev.orderflow.order.placed.v1"],
        "limits": {"EUR": 5_000, "JPY": 500, "KWD": 1_234},
    }
    return {name: member for name, member in {**whole, **changes}.items() if member is not ABSENT}


def read(*callers: object) -> tuple[Caller, ...]:
    """These callers, by way of a file."""
    return read_callers(json.dumps({"callers": callers}).encode(), "callers.json")


def faults(raw: bytes) -> list[str]:
    """Where a file is wrong."""
    with pytest.raises(InvalidSettings, match=r"^callers\.json: ") as refused:
        read_callers(raw, "callers.json")
    return [problem.path for problem in refused.value.problems]


def test_the_example_of_the_page_is_a_callers_file() -> None:
    """docs/callers.md is copied from."""
    [example] = [block.text for block in blocks(PAGE) if block.language == "json"]
    [caller] = read_callers(example.encode(), "the page")
    read_verifying_key(caller.public_keys[0].key, caller.name, None)
    assert caller.rate is not None
    assert caller.secrets[0].until is not None
    assert caller.secrets[0].until.isoformat() == "2026-03-01T00:00:00+00:00"


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"name": ABSENT}, "$.callers[0].name"),
        ({"name": "Shop"}, "$.callers[0].name"),
        ({"name": "../shop"}, "$.callers[0].name"),
        ({"secrets": ABSENT}, "$.callers[0]"),
        ({"secrets": []}, "$.callers[0]"),
        ({"secrets": ["whsec_abc"]}, "$.callers[0].secrets[0]"),
        ({"secrets": [{}]}, "$.callers[0].secrets[0]"),
        ({"secrets": [{"file": "a", "env": "A"}]}, "$.callers[0].secrets[0]"),
        ({"secrets": [{"file": ""}]}, "$.callers[0].secrets[0].file"),
        ({"secrets": [{"file": "a\0b"}]}, "$.callers[0].secrets[0].file"),
        ({"secrets": [{"secret": "whsec_abc"}]}, "$.callers[0].secrets[0].secret"),
        ({"secrets": [{"env": "A-B"}]}, "$.callers[0].secrets[0].env"),
        ({"secrets": [{"env": "ORDERFLOW_CALLER_SECRET"}]}, "$.callers[0].secrets[0].env"),
        ({"secrets": [{"file": "a", "until": "2026-01-31"}]}, "$.callers[0].secrets[0].until"),
        ({"secrets": [{"file": "a", "until": "2026-01-31T12:00:00"}]}, "$.callers[0].secrets[0].until"),
        ({"secrets": [{"file": "a", "until": "2026-02-30T12:00:00Z"}]}, "$.callers[0].secrets[0].until"),
        ({"secrets": [{"file": "a", "until": 1769860800}]}, "$.callers[0].secrets[0].until"),
        ({"public_keys": [{"key": "whsec_abc"}]}, "$.callers[0].public_keys[0].key"),
        ({"tokens": [{"token": "abc"}]}, "$.callers[0].tokens[0].token"),
        ({"sources": ABSENT}, "$.callers[0].sources"),
        ({"sources": []}, "$.callers[0].sources"),
        ({"sources": "/shop"}, "$.callers[0].sources"),
        ({"sources": ["/shop", "not a uri"]}, "$.callers[0].sources[1]"),
        ({"sources": [""]}, "$.callers[0].sources[0]"),
        ({"types": ["*"]}, "$.callers[0].types[0]"),
        ({"limits": {}}, "$.callers[0].limits"),
        ({"limits": {"XXX": 1}}, "$.callers[0].limits.XXX"),
        ({"limits": {"usd": 1}}, "$.callers[0].limits.usd"),
        ({"limits": {"US": 1}}, "$.callers[0].limits.US"),
        ({"limits": {"USD": 0}}, "$.callers[0].limits.USD"),
        ({"limits": {"USD": True}}, "$.callers[0].limits.USD"),
        ({"limits": {"USD": "100"}}, "$.callers[0].limits.USD"),
        ({"limits": {"USD": None}}, "$.callers[0].limits.USD"),
        ({"rate": {"per_second": 0, "burst": 1}}, "$.callers[0].rate.per_second"),
        ({"rate": {"per_second": 1}}, "$.callers[0].rate.burst"),
        ({"roles": ["admin"]}, "$.callers[0].roles"),
    ],
)
def test_a_fault_is_told_at_its_path(changes: dict[str, object], path: str) -> None:
    """W10, M01, M02: nothing is guessed, and a member that nobody knows is no decoration."""
    assert faults(json.dumps({"callers": [value(**changes)]}).encode()) == [path]


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        (b"", ""),
        (b"{", ""),
        (b"[]", "$"),
        (b"{}", "$.callers"),
        (b'{"callers": []}', "$.callers"),
        (b'{"callers": [], "callers": []}', "$"),
        (b'{"callers": [null]}', "$.callers[0]"),
        (b"\xff", ""),
    ],
)
def test_a_file_that_is_none_says_where(raw: bytes, path: str) -> None:
    """W10: a file cut off in the middle among them."""
    assert faults(raw) == [path]


def test_every_fault_is_told_at_once() -> None:
    """Whoever writes the file mends it in one go."""
    raw = json.dumps({"callers": [value(name="A"), value(sources=[" "]), value(limits={"EUR": -1})]}).encode()
    assert faults(raw) == ["$.callers[0].name", "$.callers[1].sources[0]", "$.callers[2].limits.EUR"]


def test_no_fault_repeats_what_may_be_a_secret() -> None:
    """O01: somebody will put the secret itself into the file."""
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    for changes in (
        {"secrets": [secret]},
        {"secrets": [{"file": secret, "env": secret}]},
        {"secrets": [{"env": f"{secret} "}]},
        {"public_keys": [{"key": secret}]},
        {"name": secret},
    ):
        with pytest.raises(InvalidSettings) as refused:
            read(value(**changes))
        assert secret not in f"{refused.value} {refused.value.problems}"


def test_two_callers_of_one_name_are_none() -> None:
    """W03: who it was must be one."""
    raw = json.dumps({"callers": [value(), value(name="mill"), value()]}).encode()
    assert faults(raw) == ["$.callers[2].name"]


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({}, None),
        ({"source": "/shop/"}, Cause.SOURCE_NOT_PERMITTED),
        ({"source": "/SHOP"}, Cause.SOURCE_NOT_PERMITTED),
        ({"source": "/shop/app"}, Cause.SOURCE_NOT_PERMITTED),
        ({"source": "/%73hop"}, Cause.SOURCE_NOT_PERMITTED),
        ({"data__currency": "USD"}, Cause.CURRENCY_NOT_PERMITTED),
        ({"data__total_minor": 5_000}, None),
        ({"data__total_minor": 5_001}, Cause.AMOUNT_NOT_PERMITTED),
        ({"data__currency": "JPY", "data__total_minor": 500}, None),
        ({"data__currency": "JPY", "data__total_minor": 501}, Cause.AMOUNT_NOT_PERMITTED),
        ({"data__currency": "KWD", "data__total_minor": 1_234}, None),
        ({"data__currency": "KWD", "data__total_minor": 1_235}, Cause.AMOUNT_NOT_PERMITTED),
        ({"source": "/mill", "data__currency": "USD", "data__total_minor": 9_999}, Cause.SOURCE_NOT_PERMITTED),
    ],
)
def test_a_caller_may_send_what_was_agreed_and_no_more(changes: dict[str, object], cause: Cause | None) -> None:
    """M01: limits are minor units of each currency; sources are compared as they stand."""
    [caller] = read(value())
    if cause is None:
        permit(caller, accepted(**changes))
        return
    with pytest.raises(DeliveryRefused) as refused:
        permit(caller, accepted(**changes))
    assert refused.value.cause is cause


def test_a_caller_is_told_its_own_limits() -> None:
    """The amount as people write it, the currencies, some of the sources."""
    [caller] = read(value(sources=[f"/shop/{number}" for number in range(900)]))
    for changes, words in (
        ({"source": "/shop/1", "data__total_minor": 9_999}, "EUR 50.00"),
        ({"source": "/shop/1", "data__currency": "USD"}, "EUR, JPY, KWD"),
        ({"source": "/mill"}, "/shop/4, …"),
    ):
        with pytest.raises(DeliveryRefused, match=words) as refused:
            permit(caller, accepted(**changes))
        assert len(refused.value.message) < 200
