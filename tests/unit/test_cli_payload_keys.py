"""`orderflow payload-keys`, the settings of payload keys, and what `doctor` says of them."""

import json
import stat
from pathlib import Path

import pytest

from orderflow.cli.checks import Health, payload_keys
from orderflow.client import data_converter
from orderflow.domain.errors import InvalidSettings
from orderflow.settings import load_settings
from tests.support.command_line import KEPT, orderflow, unconfigure
from tests.support.confidential import key_set, keyed


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing is configured but a file for keys, which is not there yet."""
    unconfigure(tmp_path, monkeypatch)
    monkeypatch.delenv(KEPT, raising=False)
    monkeypatch.setenv("ORDERFLOW_PAYLOAD_KEYS_FILE", "keys.json")
    return tmp_path


def test_keys_are_made_and_listed_and_never_shown(folder: Path) -> None:
    """T47: a new key encrypts, unless it is to be read with only; the file is its owner's alone."""
    assert orderflow("payload-keys", "new", "a").code == 0
    assert orderflow("payload-keys", "new", "b", "--first").code == 0
    made = orderflow("payload-keys", "new", "c", "--json")
    assert made.json == {"file": "keys.json", "encrypts": "c", "key_ids": ["b", "a", "c"]}
    listed = orderflow("payload-keys", "list")
    keys = [key["k"] for key in json.loads((folder / "keys.json").read_text())["keys"]]
    assert listed.out == "c encrypts; read with b, a, c\n"
    assert not any(key in made.out + listed.out for key in keys)
    assert stat.S_IMODE((folder / "keys.json").stat().st_mode) == 0o600
    assert [path.name for path in folder.glob("keys*")] == ["keys.json"]


def test_a_key_is_never_replaced(folder: Path) -> None:
    """T47: a second key of one id, an id that is none, a damaged set: exit 2, and the set stays as it was."""
    orderflow("payload-keys", "new", "a")
    before = (folder / "keys.json").read_bytes()
    for key_id in ("a", "a b", "", "../a"):
        refused = orderflow("payload-keys", "new", key_id)
        assert refused.code == 2, key_id
        assert refused.err.count("\n") == 1
    assert (folder / "keys.json").read_bytes() == before
    (folder / "keys.json").write_bytes(before[:-5])
    assert orderflow("payload-keys", "new", "b").code == 2
    assert (folder / "keys.json").read_bytes() == before[:-5]


def test_keys_that_cannot_be_used_stop_whoever_would_encrypt(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """T47: fail closed: a missing, a damaged and an ambiguous set; never without encryption instead."""
    with pytest.raises(InvalidSettings, match=r"keys\.json cannot be read.*ORDERFLOW_PAYLOAD_KEYS_FILE"):
        data_converter()
    (folder / "keys.json").write_text('{"keys": []}')
    with pytest.raises(InvalidSettings, match=r"keys\.json: \$\.keys"):
        data_converter()
    monkeypatch.setenv(KEPT, key_set("a").decode())
    with pytest.raises(InvalidSettings, match=r"ORDERFLOW_PAYLOAD_KEYS: is set, and so is ORDERFLOW_PAYLOAD_KEYS_FILE"):
        data_converter()


def test_the_doctor_warns_where_a_temporal_elsewhere_keeps_orders_in_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    """T47: on this machine that is fine; broken keys are not, and reading what is not encrypted should end some day."""
    assert payload_keys(load_settings(), "localhost:7233").health is Health.FAIL
    monkeypatch.delenv("ORDERFLOW_PAYLOAD_KEYS_FILE")
    assert payload_keys(load_settings(), "localhost:7233").health is Health.OK
    assert payload_keys(load_settings(), "temporal.example.com:7233").health is Health.WARN
    found = payload_keys(keyed(key_set("a", "b")), "temporal.example.com:7233")
    assert (found.health, found.says) == (Health.OK, "b encrypts; read with a, b")
    assert payload_keys(keyed(key_set("a"), plaintext="read"), "localhost:7233").health is Health.WARN
