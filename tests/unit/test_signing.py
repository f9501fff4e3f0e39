"""Who signed a decision: genuine signatures count, and every other token gets a refusal."""

import hashlib
import json
import os
import stat
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jws
from joserfc.jwk import OctKey, OKPKey
from joserfc.util import urlsafe_b64decode

from orderflow.domain.approvals import Decision, Refusal, ineligible, mismatch, read_claims
from orderflow.domain.errors import InvalidInput, InvalidSettings
from orderflow.domain.intents import canonical_json
from orderflow.signing import ApproverKey, KeyRegistry, decision_for
from tests.approval_requests import OPENED_AT, base64url, claims, compact, open_request
from tests.order_events import ABSENT

ALICE = ApproverKey.new("alice", ["finance", "audit"])
MALLORY = ApproverKey.new("mallory", ["finance"])
KID = ALICE.public_jwk()["kid"]
HEADER = {"alg": "Ed25519", "kid": KID, "typ": "orderflow-decision+jws"}
PAYLOAD = canonical_json(claims().model_dump(mode="json"))
TOKEN = ALICE.sign(claims())


def registry(*keys: dict[str, Any]) -> KeyRegistry:
    """A registry of these public keys, read from the text of a JWK set."""
    return KeyRegistry.from_jwks(json.dumps({"keys": keys}).encode(), "approvers.json")


def changed(key: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`key` with members set, or taken out where the change is `ABSENT`."""
    return {member: value for member, value in (key | changes).items() if value is not ABSENT}


KNOWN = registry(ALICE.public_jwk())


def raw_private_key(tmp_path: Path) -> Ed25519PrivateKey:
    """Alice's key, out of the file that only she has."""
    ALICE.save(tmp_path / "alice.json")
    d = json.loads((tmp_path / "alice.json").read_bytes())["d"]
    return Ed25519PrivateKey.from_private_bytes(urlsafe_b64decode(d.encode()))


def test_a_signed_decision_is_genuine() -> None:
    """A02: whose it is comes from the key, with the roles that the registry gives it."""
    verdict = KNOWN.verify(TOKEN)
    assert (verdict.genuine, verdict.refusal, verdict.approver) == (True, None, "alice")
    assert verdict.roles == ("finance", "audit")
    assert read_claims(TOKEN) == claims()


def test_the_protected_header_says_algorithm_key_and_type_and_no_more() -> None:
    """RFC 9864: `Ed25519`, never the ambiguous `EdDSA`."""
    assert json.loads(urlsafe_b64decode(TOKEN.split(".")[0].encode())) == HEADER


def test_a_key_is_named_by_its_thumbprint() -> None:
    """RFC 7638, computed here by hand, with the example of RFC 8037, appendix A.3, as a check of that."""

    def thumbprint(x: str) -> str:
        return base64url(hashlib.sha256(f'{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}'.encode()).digest())

    assert thumbprint("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo") == "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"
    assert thumbprint(ALICE.public_jwk()["x"]) == KID


@pytest.mark.parametrize(
    "changes",
    [
        {"alg": "none"},
        {"alg": "EdDSA"},
        {"alg": "ed25519"},
        {"alg": "Ed448"},
        {"alg": "HS256"},
        {"alg": ["Ed25519"]},
        {"alg": None},
        {"typ": "JWT"},
        {"typ": "orderflow-operation+jws"},
        {"typ": None},
        {"kid": 5},
        {"kid": None},
        {"crit": ["exp"], "exp": 1},
        {"crit": []},
        {"b64": True},
        {"b64": False, "crit": ["b64"]},
        {"jwk": MALLORY.public_jwk()},
        {"jku": "https://example.com/keys"},
        {"x5c": []},
    ],
)
def test_a_header_of_another_form_is_refused_even_if_signed(changes: dict[str, Any], tmp_path: Path) -> None:
    """A02: no algorithm confusion, no key that the token brings along, no extension (RFC 8725)."""
    header = json.dumps(HEADER | changes).encode()
    signing_input = f"{base64url(header)}.{base64url(PAYLOAD)}"
    signature = raw_private_key(tmp_path).sign(signing_input.encode())
    verdict = KNOWN.verify(f"{signing_input}.{base64url(signature)}")
    assert (verdict.genuine, verdict.refusal) == (False, Refusal.MALFORMED)


@pytest.mark.parametrize("header", [{}, [], "x", b"\xff", b"{", b"[" * 300], ids=str)
def test_a_header_that_is_none_is_malformed(header: object) -> None:
    """Neither another JSON value nor what is no JSON."""
    assert KNOWN.verify(compact(header, PAYLOAD)).refusal is Refusal.MALFORMED


def test_a_header_with_a_member_twice_is_malformed() -> None:
    """Two readers could pick two different keys."""
    twice = json.dumps(HEADER)[:-1] + f', "kid": "{KID}"}}'
    assert KNOWN.verify(compact(twice.encode(), PAYLOAD)).refusal is Refusal.MALFORMED


def test_the_public_key_is_no_shared_secret() -> None:
    """A02: HS256 with alice's public key as the secret, under a header that says Ed25519 or HS256."""
    secret = OctKey.import_key(urlsafe_b64decode(ALICE.public_jwk()["x"].encode()))
    token = jws.serialize_compact(HEADER | {"alg": "HS256"}, PAYLOAD, secret, algorithms=["HS256"])
    assert not KNOWN.verify(token).genuine
    signature = token.rpartition(".")[2]
    assert KNOWN.verify(f"{base64url(json.dumps(HEADER).encode())}.{base64url(PAYLOAD)}.{signature}").genuine is False


def test_a_signature_of_somebody_unknown_is_refused() -> None:
    """A02: a decision in alice's name, by a key that nobody registered."""
    assert KNOWN.verify(MALLORY.sign(claims())).refusal is Refusal.UNKNOWN_KEY


def test_a_signature_under_the_key_id_of_another_is_refused() -> None:
    """A02: mallory signs and claims alice's key."""
    mallory = OKPKey.generate_key("Ed25519")
    token = jws.serialize_compact(HEADER, PAYLOAD, mallory, algorithms=["Ed25519"])
    assert KNOWN.verify(token).refusal is Refusal.BAD_SIGNATURE


def test_a_registered_approver_cannot_decide_in_the_name_of_another() -> None:
    """A02: the signature is genuine, but it is not alice's."""
    known = KNOWN.with_added(MALLORY.public_jwk())
    verdict = known.verify(MALLORY.sign(claims(approver="alice")))
    assert (verdict.genuine, verdict.approver) == (True, "mallory")
    assert ineligible(open_request(), claims(approver="alice"), verdict) is Refusal.WRONG_APPROVER


def test_a_decision_by_a_revoked_key_is_refused() -> None:
    """Revocation keeps the entry, so that the refusal can say whose key it was."""
    revoked = registry(ALICE.public_jwk() | {"revoked": True})
    verdict = revoked.verify(TOKEN)
    assert (verdict.genuine, verdict.refusal, verdict.approver) == (False, Refusal.REVOKED_KEY, "alice")
    assert verdict.roles == ()


def test_a_revoked_key_is_said_to_be_so_only_of_what_it_signed() -> None:
    """Anybody can write a key id into a header."""
    revoked = registry(ALICE.public_jwk() | {"revoked": True})
    assert revoked.verify(compact(HEADER, PAYLOAD)).refusal is Refusal.BAD_SIGNATURE


def test_a_person_can_have_an_old_key_and_a_new_one() -> None:
    """Rotation: both count until the old one is revoked."""
    newer = ApproverKey.new("alice", ["finance"])
    both = KNOWN.with_added(newer.public_jwk())
    assert {both.verify(key.sign(claims())).approver for key in (ALICE, newer)} == {"alice"}


@given(st.integers(min_value=0, max_value=len(TOKEN) - 1), st.sampled_from("ABab01-_.=\n é"))
def test_a_token_with_one_other_character_is_never_genuine(position: int, character: str) -> None:
    """A01: nothing of it can be changed, not even the unused bits of base64url."""
    changed = TOKEN[:position] + character + TOKEN[position + 1 :]
    assert KNOWN.verify(changed).genuine is (changed == TOKEN)


@given(
    st.text()
    | st.tuples(st.binary(), st.binary(), st.binary()).map(lambda parts: ".".join(map(base64url, parts)))
    | st.builds(compact, st.dictionaries(st.sampled_from(["alg", "kid", "typ", "crit"]), st.text()), st.just(PAYLOAD))
    | st.binary().map(lambda signature: compact(HEADER, PAYLOAD, signature))
)
def test_verifying_never_raises(token: str) -> None:
    """A02: whatever text comes in, there is a verdict, and it is no."""
    verdict = KNOWN.verify(token)
    assert not verdict.genuine
    assert verdict.refusal is not None


def test_a_decision_repeats_every_field_of_its_request() -> None:
    """A01: what the approver signs is what was shown."""
    decision = decision_for(open_request(), Decision.REJECT, "bob", OPENED_AT)
    assert mismatch(open_request(), decision) is None
    assert (decision.decision, decision.approver, decision.iat) == (Decision.REJECT, "bob", int(OPENED_AT.timestamp()))


def test_no_two_decisions_have_the_same_id() -> None:
    """Single use hangs on it."""
    made = {decision_for(open_request(), Decision.APPROVE, "alice", OPENED_AT).jti for _ in range(100)}
    assert len(made) == 100


def test_a_naive_time_signs_nothing() -> None:
    """A01: it could mean any hour."""
    with pytest.raises(ValueError, match="aware"):
        decision_for(open_request(), Decision.APPROVE, "alice", datetime(2026, 1, 31, 12))  # noqa: DTZ001 - the case


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
