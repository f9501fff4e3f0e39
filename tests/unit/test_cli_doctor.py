"""`orderflow doctor`: what its checks take for alive."""

from datetime import UTC, datetime, timedelta

import pytest
from temporalio.api.taskqueue.v1 import PollerInfo

from orderflow.cli.checks import Health, alive, intake_check
from orderflow.ledger.events import IntakeRecord

NOW = datetime.now(UTC)


def poller(identity: str, ago: float) -> PollerInfo:
    """A worker whose last poll began `ago` seconds ago."""
    info = PollerInfo(identity=identity)
    info.last_access_time.FromDatetime(NOW - timedelta(seconds=ago))
    return info


def test_a_worker_that_stopped_polling_is_not_alive() -> None:
    """A poll lasts a minute; the server still names workers that are gone for some more."""
    pollers = [poller("quiet", 59), poller("gone", 71), poller("busy", 1)]
    assert alive(pollers, NOW) == ["busy", "quiet"]


@pytest.mark.parametrize(
    ("scope", "paused", "seen_ago", "health"),
    [
        ("all", True, 100_000, Health.WARN),
        ("all", False, 1, Health.OK),
        ("host:8080", True, 1, Health.WARN),
        ("host:8080", True, 100_000, Health.OK),
    ],
)
def test_a_closed_gate_is_told_unless_its_door_is_long_gone(
    scope: str, paused: bool, seen_ago: float, health: Health
) -> None:
    """What operators said holds until they say otherwise; a door that is silent keeps nothing closed."""
    gate = IntakeRecord(scope, paused, "stocktaking", "carol", NOW, NOW - timedelta(seconds=seen_ago))
    check = intake_check([gate], NOW)
    assert check.health is health
    assert ("stocktaking" in check.says) is (health is Health.WARN)
