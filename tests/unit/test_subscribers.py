"""The subscribers file: strict, complete in its complaints, and silent about secrets."""

import base64
import json
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from orderflow.domain.durations import Duration
from orderflow.domain.errors import InvalidSettings
from orderflow.domain.orders import Stage
from orderflow.domain.subscribers import A_DAY
from orderflow.settings import Settings
from orderflow.subscribers import Subscribers, load_subscribers

SECRET: Final = "whsec_" + base64.b64encode(b"canary" * 5).decode()
ENTRY: Final[dict[str, Any]] = {"name": "shop", "url": "https://shop.example.com/hooks", "secret": {"file": "secret"}}


def load(folder: Path, *entries: object, secret: str = SECRET, **members: object) -> Subscribers:
    """Read a file with these entries, and the secret beside it."""
    (folder / "secret").write_text(secret)
    file = folder / "subscribers.json"
    file.write_text(json.dumps({"subscribers": entries, **members}))
    return load_subscribers(Settings(subscribers_file=file))


def test_without_a_file_nobody_hears() -> None:
    """Issue 4 item 7: unset, nothing changes."""
    assert load_subscribers(Settings()).hearing(Stage.COMPLETED, "/shop") == ()


def test_who_hears_is_said_by_stage_and_source(tmp_path: Path) -> None:
    """Issue 4 item 7: both have to fit, and what is left out fits all."""
    entries = [
        ENTRY,
        ENTRY | {"name": "done", "stages": ["completed"]},
        ENTRY | {"name": "there", "sources": ["/there"]},
    ]
    loaded = load(tmp_path, *entries)

    def names(stage: Stage, source: str) -> list[str]:
        return [each.name for each in loaded.hearing(stage, source)]

    assert names(Stage.COMPLETED, "/shop") == ["shop", "done"]
    assert names(Stage.FAILED, "/there") == ["shop", "there"]


def test_who_says_nothing_of_patience_is_told_for_about_a_day(tmp_path: Path) -> None:
    """T22: finite."""
    [subscription] = load(tmp_path, ENTRY).hearing(Stage.COMPLETED, "/shop")
    assert subscription.retry == A_DAY
    assert timedelta(days=1) < A_DAY.time_needed(Duration("PT30S")) < timedelta(days=1.25)


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"url": "http://shop.example.com/"}, "$.subscribers[0].url"),
        ({"url": "ftp://shop.example.com/"}, "$.subscribers[0].url"),
        ({"url": "https://me@shop.example.com/"}, "$.subscribers[0].url"),
        ({"url": "https://shop.example.com:0/"}, "$.subscribers[0].url"),
        ({"url": "https://shop.example.com:x/"}, "$.subscribers[0].url"),
        ({"url": "/hooks"}, "$.subscribers[0].url"),
        ({"name": "Shop-1"}, "$.subscribers[0].name"),
        ({"name": "a" * 32}, "$.subscribers[0].name"),
        ({"secret": {"file": "missing"}}, "$.subscribers[0].secret"),
        ({"secret": {"env": "A_VARIABLE_THAT_IS_NOT_SET"}}, "$.subscribers[0].secret"),
        ({"secret": SECRET}, "$.subscribers[0].secret"),
        ({"stages": ["running"]}, "$.subscribers[0].stages[0]"),
        ({"stages": []}, "$.subscribers[0].stages"),
        ({"retry": {"attempts": 0}}, "$.subscribers[0].retry"),
        ({"more": 1}, "$.subscribers[0].more"),
    ],
)
def test_a_fault_is_told_with_its_path_and_never_with_a_secret(
    tmp_path: Path, change: dict[str, Any], path: str
) -> None:
    """W10: a worker does not start with it."""
    with pytest.raises(InvalidSettings) as caught:
        load(tmp_path, ENTRY | change)
    assert any(problem.path.startswith(path) for problem in caught.value.problems)
    assert SECRET not in str(caught.value.problems) + str(caught.value)


def test_a_secret_that_is_none_is_refused_without_being_told(tmp_path: Path) -> None:
    """W10: it may be a real one with a typing error."""
    with pytest.raises(InvalidSettings) as caught:
        load(tmp_path, ENTRY, secret="whsec_canary!")
    assert "canary" not in str(caught.value)
    assert "canary" not in repr(load(tmp_path, ENTRY))


def test_two_of_one_name_are_refused(tmp_path: Path) -> None:
    """The name makes the key."""
    with pytest.raises(InvalidSettings, match="two subscribers of one name"):
        load(tmp_path, ENTRY, ENTRY)
