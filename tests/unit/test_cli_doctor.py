"""`orderflow doctor`: what its checks take for alive."""

from datetime import UTC, datetime, timedelta

from temporalio.api.taskqueue.v1 import PollerInfo

from orderflow.cli.checks import alive

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
