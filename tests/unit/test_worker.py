"""What a worker refuses to start with."""

from typing import Any

import pytest

from orderflow.domain.errors import InvalidSettings
from orderflow.settings import Settings
from orderflow.worker import require_chosen_providers


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
