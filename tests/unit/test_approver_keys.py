"""Keys of approvers: the JWK set of public ones, and the private one in its owner's file."""

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from orderflow.domain.errors import InvalidInput, InvalidSettings
from orderflow.signing import ApproverKey, KeyRegistry
from tests.approval_requests import claims
from tests.order_events import ABSENT

ALICE = ApproverKey.new("alice", ["finance", "audit"])
MALLORY = ApproverKey.new("mallory", ["finance"])
TOKEN = ALICE.sign(claims())


def registry(*keys: dict[str, Any]) -> KeyRegistry:
    """A registry of these public keys, read from the text of a JWK set."""
    return KeyRegistry.from_jwks(json.dumps({"keys": keys}).encode(), "approvers.json")


def changed(key: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`key` with members set, or taken out where the change is `ABSENT`."""
    return {member: value for member, value in (key | changes).items() if value is not ABSENT}


KNOWN = registry(ALICE.public_jwk())


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"name": ABSENT}, "$.keys[1].name"),
        ({"roles": ABSENT}, "$.keys[1].roles"),
        ({"kid": ABSENT}, "$.keys[1].kid"),
        ({"roles": []}, "$.keys[1].roles"),
        ({"roles": "finance"}, "$.keys[1].roles"),
        ({"roles": ["Finance!"]}, "$.keys[1].roles[0]"),
        ({"name": "../alice"}, "$.keys[1].name"),
        ({"name": ""}, "$.keys[1].name"),
        ({"kty": "EC"}, "$.keys[1].kty"),
        ({"crv": "X25519"}, "$.keys[1].crv"),
        ({"alg": "EdDSA"}, "$.keys[1].alg"),
        ({"use": "enc"}, "$.keys[1].use"),
        ({"x": "AA"}, "$.keys[1].x"),
        ({"x": MALLORY.public_jwk()["x"] + "="}, "$.keys[1].x"),
        ({"x": "é"}, "$.keys[1].x"),
        ({"kid": "alice-2026"}, "$.keys[1].kid"),
        ({"revoked": "yes"}, "$.keys[1].revoked"),
        ({"revokd": True}, "$.keys[1].revokd"),
        ({"d": "c2VjcmV0"}, "$.keys[1].d"),
        (ALICE.public_jwk(), "$.keys[1].kid"),
    ],
)
def test_a_fault_in_a_set_is_refused_with_its_place(changes: dict[str, Any], path: str) -> None:
    """An approver whose key is ignored or half read would find out at the first order."""
    with pytest.raises(InvalidSettings) as refused:
        registry(ALICE.public_jwk(), changed(MALLORY.public_jwk(), changes))
    assert [problem.path for problem in refused.value.problems] == [path]
    assert refused.value.message.startswith(f"approvers.json: {path}: ")


@pytest.mark.parametrize(
    "raw",
    [b"", b"x", b"[]", b"{}", b'{"keys": []}', b'{"keys": {}}', b'{"keys": [1]}', b'{"keys": [], "keys": []}', b"\xff"],
    ids=str,
)
def test_what_is_no_set_of_keys_is_refused(raw: bytes) -> None:
    """W10: no key configured is no approver, said loudly."""
    with pytest.raises(InvalidSettings, match=r"^approvers.json: "):
        KeyRegistry.from_jwks(raw, "approvers.json")


def test_every_fault_of_a_set_is_found_at_once_and_no_secret_is_repeated() -> None:
    """One look at the message is enough to repair the file."""
    faulty = [MALLORY.public_jwk() | {"d": "c2VjcmV0"}, ALICE.public_jwk() | {"roles": []}, {}]
    with pytest.raises(InvalidSettings) as refused:
        registry(*faulty)
    paths = {problem.path for problem in refused.value.problems}
    assert paths >= {"$.keys[0].d", "$.keys[1].roles", "$.keys[2].kty"}
    assert "c2VjcmV0" not in " ".join(map(str, refused.value.problems))


def test_a_set_that_starts_with_a_byte_order_mark_is_read() -> None:
    """T52: some editors write one."""
    raw = b"\xef\xbb\xbf" + KNOWN.as_jwks()
    assert KeyRegistry.from_jwks(raw, "approvers.json").verify(TOKEN).genuine


def test_a_written_set_reads_back_the_same() -> None:
    """Revocation included."""
    known = registry(ALICE.public_jwk(), MALLORY.public_jwk() | {"revoked": True})
    again = KeyRegistry.from_jwks(known.as_jwks(), "again")
    assert again.members == known.members


def test_a_key_is_added_once() -> None:
    """And a private one never."""
    with pytest.raises(InvalidInput, match="already"):
        KNOWN.with_added(ALICE.public_jwk())
    with pytest.raises(InvalidInput, match="new key"):
        KNOWN.with_added(MALLORY.public_jwk() | {"d": "c2VjcmV0"})


def test_a_saved_key_signs_like_the_one_before(tmp_path: Path) -> None:
    """The file holds both halves, its owner's name and roles."""
    path = tmp_path / "keys" / "alice.json"
    ALICE.save(path)
    loaded = ApproverKey.load(path)
    assert loaded == ALICE
    assert KNOWN.verify(loaded.sign(claims())).genuine


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such permissions")
def test_only_its_owner_can_read_a_saved_key(tmp_path: Path) -> None:
    """Whatever the umask says."""
    before = os.umask(0)
    try:
        ALICE.save(tmp_path / "keys" / "alice.json")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "keys" / "alice.json").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "keys").stat().st_mode) == 0o700


def test_a_key_is_never_overwritten(tmp_path: Path) -> None:
    """The old one may still be needed."""
    path = tmp_path / "alice.json"
    ALICE.save(path)
    before = path.read_bytes()
    with pytest.raises(InvalidInput, match="never overwritten"):
        ALICE.save(path)
    assert path.read_bytes() == before


def test_a_key_shows_no_secret_in_its_repr(tmp_path: Path) -> None:
    """It may end up in a log."""
    ALICE.save(tmp_path / "alice.json")
    assert json.loads((tmp_path / "alice.json").read_bytes())["d"] not in repr(ALICE)


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"d": ABSENT}, "$.d"),
        ({"d": "AA"}, "$.d"),
        ({"d": ALICE.public_jwk()["x"]}, "$.d"),
        (MALLORY.public_jwk(), "$.d"),
        ({"x": "AA"}, "$.x"),
        ({"name": ABSENT}, "$.name"),
    ],
)
def test_a_damaged_private_key_is_refused_with_its_place(changes: dict[str, Any], place: str, tmp_path: Path) -> None:
    """It would sign what nobody can verify."""
    path = tmp_path / "alice.json"
    ALICE.save(path)
    key = json.loads(path.read_bytes())
    path.write_text(json.dumps(changed(key, changes)))
    with pytest.raises(InvalidInput) as refused:
        ApproverKey.load(path)
    assert refused.value.message.startswith(f"{path}: {place}: ")
    assert key["d"] not in refused.value.message


def test_a_key_that_is_not_there_is_named_with_what_to_run(tmp_path: Path) -> None:
    """One line for a person."""
    with pytest.raises(InvalidInput, match=r"nobody\.json.*orderflow keys new"):
        ApproverKey.load(tmp_path / "nobody.json")


@pytest.mark.parametrize(
    ("name", "roles"), [("", ["finance"]), ("a/b", ["finance"]), ("alice", []), ("alice", ["A B"])]
)
def test_a_name_or_role_that_cannot_stand_in_a_set_makes_no_key(name: str, roles: list[str]) -> None:
    """It also becomes the name of a file."""
    with pytest.raises(InvalidInput):
        ApproverKey.new(name, roles)
