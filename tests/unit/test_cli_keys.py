"""`orderflow keys new` and `keys list`."""

import json
import stat
import sys
from pathlib import Path

import pytest

from orderflow.signing import ApproverKey, KeyRegistry
from tests.support.command_line import orderflow, unconfigure

DEVELOPMENT = {"alice", "bob", "carol"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to run in, with nothing configured."""
    unconfigure(tmp_path, monkeypatch)
    monkeypatch.delenv("TEMPORAL_ADDRESS")
    return tmp_path


def names_in(path: str | Path) -> set[str]:
    """The names in a JWK set."""
    return {member.name for member in KeyRegistry.from_jwks(Path(path).read_bytes(), str(path)).members}


def test_a_new_key_can_sign_and_its_public_half_is_published() -> None:
    """Unconfigured: beside the development keys, which a worker must still find complete."""
    told = orderflow("keys", "new", "zoe", "--role", "finance", "--role", "operator", "--json").json
    key = ApproverKey.load(Path(told["private_key"]))
    assert (key.name, key.roles) == ("zoe", ("finance", "operator"))
    assert told["public_jwk"] == key.public_jwk()
    assert names_in(told["approvers"]) == {"zoe", *DEVELOPMENT}


def test_the_private_half_is_shown_to_nobody() -> None:
    """Neither printed nor readable for others."""
    ran = orderflow("keys", "new", "zoe", "--role", "finance", "--json")
    path = Path(ran.json["private_key"])
    assert json.loads(path.read_bytes())["d"] not in ran.out + ran.err
    if sys.platform != "win32":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_with_a_configured_set_the_key_goes_there_and_no_other_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """A production set never gets development keys."""
    monkeypatch.setenv("ORDERFLOW_APPROVERS_FILE", "secrets/approvers.json")
    for name in ("zoe", "yann"):
        assert orderflow("keys", "new", name, "--role", "finance", "--out", "private").code == 0
    assert names_in("secrets/approvers.json") == {"zoe", "yann"}
    assert sorted(path.name for path in Path("private").iterdir()) == ["yann.json", "zoe.json"]
    assert not Path(".orderflow").exists()


def test_a_person_is_told_where_things_are_and_what_to_do_next() -> None:
    """A new key counts only once the workers know it."""
    out = orderflow("keys", "new", "zoe", "--role", "finance").out
    assert "zoe.json" in out
    assert "approvers.json" in out
    assert "restart" in out


def test_a_key_is_never_overwritten() -> None:
    """The old one may be the only proof of who decided."""
    before = orderflow("keys", "new", "zoe", "--role", "finance", "--json").json
    raw, published = Path(before["private_key"]).read_bytes(), Path(before["approvers"]).read_bytes()
    again = orderflow("keys", "new", "zoe", "--role", "finance")
    assert again.code == 2
    assert Path(before["private_key"]).read_bytes() == raw
    assert Path(before["approvers"]).read_bytes() == published


def test_a_key_that_cannot_be_published_is_not_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A private key that nobody knows would look like a working one."""
    monkeypatch.setenv("ORDERFLOW_APPROVERS_FILE", "approvers.json")
    Path("approvers.json").write_text("not a set")
    ran = orderflow("keys", "new", "zoe", "--role", "finance", "--out", "private")
    assert ran.code == 2
    assert "approvers.json" in ran.err
    assert list(Path("private").iterdir()) == []


def test_against_a_temporal_elsewhere_no_set_is_made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 10: against any other address nothing is made up."""
    monkeypatch.setenv("TEMPORAL_ADDRESS", "temporal.example.com:7233")
    ran = orderflow("keys", "new", "zoe", "--role", "finance")
    assert ran.code == 2
    assert "ORDERFLOW_APPROVERS_FILE" in ran.err
    assert not Path(".orderflow").exists()


def test_list_shows_who_may_approve(monkeypatch: pytest.MonkeyPatch) -> None:
    """With roles and whether the key still counts."""
    monkeypatch.setenv("ORDERFLOW_APPROVERS_FILE", "approvers.json")
    members = [ApproverKey.new(name, ["finance"]).public_jwk() for name in ("zoe", "yann")]
    members[1]["revoked"] = True
    Path("approvers.json").write_text(json.dumps({"keys": members}))
    lines = orderflow("keys", "list").out.splitlines()
    assert [line.split()[:3] for line in lines[1:]] == [["zoe", "finance", "valid"], ["yann", "finance", "revoked"]]
    assert [member["name"] for member in orderflow("keys", "list", "--json").json] == ["zoe", "yann"]


def test_looking_makes_no_keys() -> None:
    """`keys list` and `doctor` change nothing."""
    assert orderflow("keys", "list").code == 0
    assert orderflow("keys", "list", "--json").json == []
    assert not Path(".orderflow").exists()
