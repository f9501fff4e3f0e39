"""What a worker starts with, and what it refuses to start with."""

from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from orderflow.catalogue import load_catalogue
from orderflow.domain.effects import Capabilities, capabilities_of
from orderflow.domain.errors import InvalidSettings
from orderflow.providers.simulated import PROVIDERS, SIMULATED
from orderflow.settings import Settings
from orderflow.worker import given_to_providers, open_providers, require_chosen_providers


@pytest.mark.parametrize("address", ["temporal.example:7233", "10.0.0.7:7233", "localhost.example:7233"])
def test_providers_are_not_simulated_by_default_for_a_temporal_elsewhere(address: str) -> None:
    """Against any other address nothing is made up: orders would end completed with nothing done."""
    with pytest.raises(InvalidSettings, match="ORDERFLOW_PROVIDERS is not set"):
        require_chosen_providers(Settings(), address)


@pytest.mark.parametrize(
    ("settings", "address"),
    [
        ({}, "localhost:7233"),
        ({}, "127.0.0.1:7233"),
        ({"providers": "simulated"}, "temporal.example:7233"),
        ({"providers": "http", "providers_url": "http://providers.example"}, "temporal.example:7233"),
    ],
)
def test_providers_that_were_chosen_or_stand_beside_a_local_temporal_are_fine(
    settings: dict[str, Any], address: str
) -> None:
    """A developer needs no setting, and an operator has the last word."""
    require_chosen_providers(Settings(**settings), address)


@pytest.mark.parametrize(
    ("settings", "otherwise"),
    [({}, SIMULATED), ({"providers": "http", "providers_url": "http://providers.example"}, Capabilities())],
    ids=["simulated", "http"],
)
async def test_providers_are_capable_of_what_the_environment_declares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], otherwise: Capabilities
) -> None:
    """I07: each by its own name; the others as they are by default, and a typing error stops the worker."""
    monkeypatch.setenv("ORDERFLOW_PROVIDER_NOTIFICATIONS_KEY_HORIZON", "none")
    monkeypatch.setenv("ORDERFLOW_PROVIDER_NOTIFICATIONS_LOOKUP_BY", "none")
    chosen = Settings(state_dir=tmp_path, **settings)
    async with AsyncExitStack() as opened:
        providers = await open_providers(chosen, given_to_providers(load_catalogue([])), opened)
        declared = {name: capabilities_of(provider) for name, provider in providers.items()}
    gateway = Capabilities(timedelta(0), frozenset(), lists=otherwise.lists)
    assert declared == dict.fromkeys(PROVIDERS, otherwise) | {"notifications": gateway}
    monkeypatch.setenv("ORDERFLOW_PROVIDER_PAYMENTS_KEY_HORIZON", "a day")
    async with AsyncExitStack() as opened:
        with pytest.raises(InvalidSettings, match="PAYMENTS_KEY_HORIZON"):
            await open_providers(chosen, given_to_providers(load_catalogue([])), opened)


def test_a_setting_of_a_provider_that_is_not_there_stops_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """I07: ignored without a word it could charge twice; the line names it, and the providers there are."""
    monkeypatch.setenv("ORDERFLOW_PROVIDER_PAYMENT_KEY_HORIZON", "none")
    with pytest.raises(InvalidSettings) as refused:
        given_to_providers(load_catalogue([]))
    assert str(refused.value) == (
        f"ORDERFLOW_PROVIDER_PAYMENT_KEY_HORIZON: belongs to no provider; there are {', '.join(sorted(PROVIDERS))};"
        " did you mean ORDERFLOW_PROVIDER_PAYMENTS_KEY_HORIZON?"
    )
