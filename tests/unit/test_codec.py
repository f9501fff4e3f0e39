"""The payload codec: what it encrypts, what it refuses, and how loudly."""

import asyncio
import base64
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio.api.common.v1 import Payload
from temporalio.converter import ActivitySerializationContext, SerializationContext, WorkflowSerializationContext

from orderflow.codec import ENCRYPTED, KEY_ID_MEMBER, PLACE_MEMBER, REFUSED, OrderCodec, place_of
from orderflow.domain.errors import InvalidSettings, PayloadKeyMissing, PayloadRefused
from orderflow.domain.intents import canonical_json
from orderflow.keyring import KeyRing, with_new_key


def ring_of(*ids: str) -> KeyRing:
    """A key ring with a new key of each id."""
    raw: bytes | None = None
    for key_id in ids:
        raw = with_new_key(raw, key_id, "a test")
    return KeyRing.from_jwks(raw or b"", "a test")


RING = ring_of("a", "b")
ORDER = OrderCodec(RING, plaintext=False).at(place_of("order-1"))
PAYLOADS = st.builds(
    Payload, metadata=st.dictionaries(st.text(max_size=8), st.binary(max_size=8)), data=st.binary(max_size=200)
)


def activity_of(order: str | None) -> ActivitySerializationContext:
    """The context of an activity of `order`, or of none."""
    return ActivitySerializationContext("other", "1", "charge", "queue", order, "OrderWorkflow", is_local=False)


@given(PAYLOADS)
def test_what_is_encrypted_comes_back_as_it_was(payload: Payload) -> None:
    """T47: metadata and data, for any payload; the newest key encrypts."""
    sealed = ORDER.sealed(payload)
    assert sealed.metadata[KEY_ID_MEMBER] == b"b"
    assert ORDER.opened(sealed) == payload


@given(PAYLOADS, st.data())
def test_any_flipped_bit_is_refused(payload: Payload, data: st.DataObject) -> None:
    """T47: nonce, ciphertext and tag alike."""
    sealed = ORDER.sealed(payload)
    changed = bytearray(sealed.data)
    bit = data.draw(st.integers(0, 8 * len(changed) - 1))
    changed[bit // 8] ^= 1 << bit % 8
    with pytest.raises(PayloadRefused, match="altered"):
        ORDER.opened(Payload(metadata=sealed.metadata, data=bytes(changed)))


@given(PAYLOADS, st.integers(0, 200))
def test_what_is_cut_short_is_refused(payload: Payload, length: int) -> None:
    """T47: down to nothing at all."""
    sealed = ORDER.sealed(payload)
    with pytest.raises(PayloadRefused, match="cut short"):
        ORDER.opened(Payload(metadata=sealed.metadata, data=sealed.data[: min(length, len(sealed.data) - 1)]))


@given(st.text(min_size=1, max_size=20).filter(lambda order: order != "order-1"))
def test_a_payload_that_is_moved_to_another_order_is_refused(order: str) -> None:
    """T47: as it is, and with its place rewritten too."""
    sealed = ORDER.sealed(Payload(data=b"x"))
    there = ORDER.at(place_of(order))
    with pytest.raises(PayloadRefused, match="another place"):
        there.opened(sealed)
    sealed.metadata[PLACE_MEMBER] = place_of(order).encode()
    with pytest.raises(PayloadRefused, match="altered"):
        there.opened(sealed)


def test_a_payload_said_to_be_under_another_key_is_refused() -> None:
    """T47: the key's id is associated data, also where both ids stand for one key."""
    key = base64.urlsafe_b64encode(os.urandom(32)).decode().rstrip("=")
    keys = [{"kty": "oct", "alg": "A256GCM", "kid": kid, "k": key} for kid in ("a", "b")]
    codec = OrderCodec(KeyRing.from_jwks(canonical_json({"keys": keys}), "a test"))  # type: ignore[dict-item]
    sealed = codec.sealed(Payload(data=b"x"))
    sealed.metadata[KEY_ID_MEMBER] = b"a"
    with pytest.raises(PayloadRefused, match="altered"):
        codec.opened(sealed)


@pytest.mark.parametrize(
    "context",
    [WorkflowSerializationContext("default", "order-1"), activity_of("order-1")],
    ids=["workflow", "activity"],
)
def test_a_workflow_and_its_activities_are_one_place_in_any_namespace(context: SerializationContext) -> None:
    """T31: a replayer has another namespace."""
    sealed = ORDER.sealed(Payload(data=b"x"))
    assert OrderCodec(RING).with_context(context).opened(sealed).data == b"x"


@pytest.mark.parametrize("codec", [OrderCodec(RING), OrderCodec(RING).with_context(activity_of(None))])
def test_what_has_no_context_says_so_and_is_read_nowhere_else(codec: OrderCodec) -> None:
    """T47: nobody's payloads are not an order's, nor the other way round."""
    sealed = codec.sealed(Payload(data=b"x"))
    assert sealed.metadata[PLACE_MEMBER] == b"none"
    assert codec.opened(sealed).data == b"x"
    with pytest.raises(PayloadRefused):
        ORDER.opened(sealed)
    with pytest.raises(PayloadRefused):
        codec.opened(ORDER.sealed(Payload(data=b"x")))


@pytest.mark.parametrize("reader", [OrderCodec(ring_of("c")), OrderCodec()], ids=["other ring", "no ring"])
def test_a_missing_key_is_named_and_nothing_is_handed_on(reader: OrderCodec) -> None:
    """T47: fail closed; a process without any keys does not take ciphertext for a value either."""
    sealed = ORDER.sealed(Payload(data=b"x"))
    with pytest.raises(PayloadKeyMissing, match=r"order-1 is encrypted under the key b, which is missing here"):
        asyncio.run(reader.at(ORDER.place).decode([sealed]))


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {KEY_ID_MEMBER: b"a b"},
        {KEY_ID_MEMBER: b"\xff"},
        {KEY_ID_MEMBER: b"b"},
        {KEY_ID_MEMBER: b"b", PLACE_MEMBER: b"\xff"},
    ],
)
@pytest.mark.parametrize("ring", [RING, None], ids=["keys", "no keys"])
def test_what_somebody_else_encrypted_stops_nobody(metadata: dict[str, bytes], ring: KeyRing | None) -> None:
    """T54: it is no error before somebody needs its value, and it carries nothing."""
    payload = Payload(metadata={"encoding": ENCRYPTED, **metadata}, data=b"x" * 40)
    [given] = asyncio.run(OrderCodec(ring).at(ORDER.place).decode([payload]))
    assert (given.metadata["encoding"], given.data) == (REFUSED, b"")


def test_what_is_not_encrypted_is_read_only_where_that_is_allowed() -> None:
    """T47: and never by default, once there are keys."""
    plain = Payload(metadata={"encoding": b"json/plain"}, data=b'"canary"')
    [refused] = asyncio.run(ORDER.decode([plain]))
    assert b"canary" not in refused.SerializeToString()
    assert asyncio.run(OrderCodec(RING, plaintext=True).decode([plain])) == [plain]


def test_no_two_payloads_share_a_nonce() -> None:
    """T47: one that comes twice would give both away."""
    assert len({ORDER.sealed(Payload(data=b"x")).data[:12] for _ in range(1000)}) == 1000


def test_keys_first_in_the_set_do_not_encrypt_yet() -> None:
    """T47: every process can learn to read with a key before one begins to encrypt with it."""
    old = with_new_key(None, "a", "a test")
    assert KeyRing.from_jwks(with_new_key(old, "b", "a test", first=True), "a test").newest == "a"
    assert KeyRing.from_jwks(with_new_key(old, "b", "a test"), "a test").newest == "b"


SECRET = base64.urlsafe_b64encode(b"s" * 32).decode().rstrip("=")
KEY = {"kty": "oct", "alg": "A256GCM", "kid": "a", "k": SECRET}


@pytest.mark.parametrize(
    "keys",
    [
        [],
        [KEY, KEY],
        [KEY | {"more": 1}],
        [KEY | {"k": SECRET[:-1]}],
        [KEY | {"k": SECRET + "="}],
        [KEY | {"k": SECRET[:-1] + "!"}],
        [KEY | {"kid": "a b"}],
        [KEY | {"kid": ""}],
        [KEY | {"alg": "A128GCM"}],
        [KEY | {"kty": "OKP"}],
    ],
)
def test_a_set_that_is_not_right_is_refused_without_a_word_of_its_keys(keys: list[dict[str, object]]) -> None:
    """T47: nobody finds a key in a log."""
    with pytest.raises(InvalidSettings) as refused:
        KeyRing.from_jwks(canonical_json({"keys": keys}), "keys.json")  # type: ignore[dict-item]
    assert "keys.json" in str(refused.value)
    assert SECRET[:20] not in str(refused.value)
