"""What a provider is declared to be capable of: by default, by its class, by settings."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orderflow.domain.effects import Capabilities, Handle, capabilities_of
from orderflow.domain.errors import InvalidSettings
from orderflow.providers.declared import declared
from orderflow.providers.simulated import SIMULATED

DAY = timedelta(hours=24)
spans = st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=3650))


class Undeclared:
    """A provider from before there was anything to declare."""


def test_who_declares_nothing_is_believed_for_a_day_and_by_key_only() -> None:
    """I07: the shortest memory in common use, and nothing that could not be taken back."""
    silent: Any = Undeclared()
    assert capabilities_of(silent) == Capabilities() == Capabilities(DAY, frozenset({Handle.KEY}), lists=False)


@given(st.none() | spans, spans)
def test_a_key_is_remembered_within_the_horizon_and_never_beyond(horizon: timedelta | None, age: timedelta) -> None:
    """I07: a tenth is kept as a margin; for ever is for ever, and no horizon is never."""
    remembers = Capabilities(key_horizon=horizon).remembers(age)
    if horizon is None:
        assert remembers
    else:
        assert remembers == (10 * age < 9 * horizon) or abs(10 * age - 9 * horizon) <= timedelta(microseconds=10)
        assert not remembers or age < horizon


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, SIMULATED),
        ({"key_horizon": "PT24H"}, Capabilities(DAY, frozenset(Handle), lists=True)),
        ({"key_horizon": "P30D"}, Capabilities(timedelta(days=30), frozenset(Handle), lists=True)),
        ({"key_horizon": "forever", "lists": "false"}, Capabilities(None, frozenset(Handle), lists=False)),
        ({"key_horizon": "none", "lookup_by": "none"}, Capabilities(timedelta(0), frozenset(), lists=True)),
        ({"lookup_by": "key"}, Capabilities(DAY, frozenset({Handle.KEY}), lists=True)),
        ({"lookup_by": "merchant_reference, key"}, SIMULATED),
    ],
    ids=lambda given: str(given) if isinstance(given, dict) else "",  # the same in each process: sets are in any order
)
def test_settings_declare_what_they_name_and_leave_the_rest(settings: dict[str, str], expected: Capabilities) -> None:
    """One vocabulary, over HTTP and simulated."""
    assert declared("payments", settings, SIMULATED) == expected


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"key_horizon": "24"}, "ORDERFLOW_PROVIDER_PAYMENTS_KEY_HORIZON: must be a duration such as PT24H"),
        ({"key_horizon": "PT0S"}, "or none"),
        ({"key_horizon": ""}, "must be a duration"),
        ({"lookup_by": "keys"}, "ORDERFLOW_PROVIDER_PAYMENTS_LOOKUP_BY: must be none, or one or more of key, mer"),
        ({"lookup_by": ""}, "must be none"),
        ({"lists": "yes"}, "ORDERFLOW_PROVIDER_PAYMENTS_LISTS: must be true or false"),
        ({"key_horizn": "PT24H"}, "KEY_HORIZN: is no setting of this provider; there are key_horizon"),
    ],
    ids=str,
)
def test_a_declaration_that_cannot_be_read_stops_the_worker(settings: dict[str, str], sentence: str) -> None:
    """A typing error must not leave a provider believed to remember what it forgot."""
    with pytest.raises(InvalidSettings) as caught:
        declared("payments", settings, SIMULATED)
    assert sentence in str(caught.value)


def test_every_fault_of_a_declaration_is_named_at_once() -> None:
    """One start, one list."""
    with pytest.raises(InvalidSettings) as caught:
        declared("payments", {"lists": "1", "lookup_by": "x", "key_horizon": "y"}, SIMULATED)
    assert len(caught.value.problems) == 3
