"""Who signed a decision: genuine signatures count, and every other token gets a refusal."""

import hashlib
import json
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
from orderflow.domain.intents import canonical_json
from orderflow.signing import ApproverKey, KeyRegistry, decision_for
from tests.approval_requests import OPENED_AT, base64url, claims, compact, open_request

ALICE = ApproverKey.new("alice", ["finance", "audit"])
MALLORY = ApproverKey.new("mallory", ["finance"])
KID = ALICE.public_jwk()["kid"]
HEADER = {"alg": "Ed25519", "kid": KID, "typ": "orderflow-decision+jws"}
PAYLOAD = canonical_json(claims().model_dump(mode="json"))
TOKEN = ALICE.sign(claims())
KNOWN = KeyRegistry().with_added(ALICE.public_jwk())
REVOKED = KeyRegistry().with_added(ALICE.public_jwk() | {"revoked": True})


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
    verdict = REVOKED.verify(TOKEN)
    assert (verdict.genuine, verdict.refusal, verdict.approver) == (False, Refusal.REVOKED_KEY, "alice")
    assert verdict.roles == ()


def test_a_revoked_key_is_said_to_be_so_only_of_what_it_signed() -> None:
    """Anybody can write a key id into a header."""
    assert REVOKED.verify(compact(HEADER, PAYLOAD)).refusal is Refusal.BAD_SIGNATURE


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
