"""The payload codec: what an order's payloads are encrypted with, so that Temporal keeps nothing of it in clear.

AES-256-GCM with a random 96-bit nonce. In the metadata of an encrypted payload stand the key's id and the place that
the payload belongs to, `workflow:ID` or `none`; both are associated data, so that it cannot be moved to another order,
nor be said to be under another key. The place is what the SDK's serialization context tells: the workflow id for every
payload of a workflow and of its activities. The SDK (1.35) gives no context for the memo of a schedule, a standalone
activity and an activity that is completed by its task token; what is encoded there belongs to the place `none`, and is
decoded there only. For the input of a schedule's workflow it tells the id that the schedule names, not that of the
workflow which then starts: such an input has to be built otherwise. Headers and search attributes pass no codec.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from cryptography.exceptions import InvalidTag
from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    ActivitySerializationContext,
    PayloadCodec,
    SerializationContext,
    WithSerializationContext,
    WorkflowSerializationContext,
)

from orderflow.domain.errors import PayloadKeyMissing, PayloadRefused
from orderflow.domain.intents import canonical_json
from orderflow.keyring import KEY_ID, KeyRing

ENCRYPTED: Final = b"binary/encrypted"
REFUSED: Final = b"binary/refused"
"""The encoding of what `OrderCodec.decode` gives in the place of a payload that it must not hand on."""

KEY_ID_MEMBER: Final = "encryption-key-id"
PLACE_MEMBER: Final = "encryption-context"
REFUSAL_MEMBER: Final = "refusal"
PARTY_MEMBER: Final = "of"

NOWHERE: Final = "none"
_SCHEME: Final = "orderflow/1 A256GCM"
_NONCE: Final = 12
_TAG: Final = 16

PLAINTEXT: Final = "is not encrypted, which only ORDERFLOW_PAYLOAD_PLAINTEXT=read allows"
MOVED: Final = "belongs to another place"
DAMAGED: Final = "was altered, or cut short"
UNREADABLE: Final = "is encrypted by somebody else"


def place_of(workflow_id: str) -> str:
    """The place that payloads of this workflow belong to."""
    return f"workflow:{workflow_id}"


@dataclass(frozen=True)
class OrderCodec(PayloadCodec, WithSerializationContext):
    """Encrypts with the newest key of `ring`, decrypts with any of them.

    Without a `ring` nothing is encrypted; what is encrypted is then under a missing key, never garbage. `plaintext`
    says whether payloads that are not encrypted are taken.
    """

    ring: KeyRing | None = None
    plaintext: bool = True
    place: str = NOWHERE
    of_activity: bool = False

    def with_context(self, context: SerializationContext) -> Self:
        """The same codec for the payloads of one workflow, or of nobody's."""
        if not isinstance(context, WorkflowSerializationContext | ActivitySerializationContext):
            return self.at(NOWHERE)
        place = place_of(context.workflow_id) if context.workflow_id else NOWHERE
        return self.at(place, of_activity=isinstance(context, ActivitySerializationContext))

    def at(self, place: str, *, of_activity: bool = False) -> Self:
        """The same codec for payloads that belong to `place`."""
        return replace(self, place=place, of_activity=of_activity)

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Encrypt each of `payloads`; raises rather than hand on what is not encrypted."""
        return [self.sealed(payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Decrypt each of `payloads`; for one that is refused, give an empty one with the encoding `REFUSED`.

        That one is no error yet: whoever reaches the namespace can send anything, and must not stop an order with it
        (T54). It becomes one where it has to be a value (`PayloadRefused`, in `client.converter`).

        Raises `PayloadKeyMissing`: then another process, or this one with another key ring, can go on.
        """
        return [self._taken(payload) for payload in payloads]

    def sealed(self, payload: Payload) -> Payload:
        """`payload` encrypted; as it came without a key ring."""
        if self.ring is None:
            return payload
        key_id, nonce = self.ring.newest, os.urandom(_NONCE)
        cipher = self.ring.cipher(key_id)
        sealed = nonce + cipher.encrypt(nonce, payload.SerializeToString(), _bound_to(key_id, self.place))
        metadata = {"encoding": ENCRYPTED, KEY_ID_MEMBER: key_id.encode(), PLACE_MEMBER: self.place.encode()}
        return Payload(metadata=metadata, data=sealed)

    def opened(self, payload: Payload) -> Payload:
        """`payload` decrypted.

        Raises:
            PayloadKeyMissing: if its key is not in the ring; names the key.
            PayloadRefused: if it is not encrypted where it has to be, belongs to another place, or was altered.
        """
        if payload.metadata.get("encoding") != ENCRYPTED:
            if not self.plaintext:
                raise PayloadRefused(PLAINTEXT, at=self.place)
            return payload
        key_id, place = key_id_of(payload), place_in(payload)
        if key_id is None or place is None:
            raise PayloadRefused(UNREADABLE, at=self.place)
        if self.ring is None or key_id not in self.ring.key_ids:
            raise PayloadKeyMissing(key_id, place, self.ring.key_ids if self.ring else ())
        if place != self.place:
            raise PayloadRefused(MOVED, at=self.place)
        return _decrypted(self.ring, key_id, place, payload.data)

    def _taken(self, payload: Payload) -> Payload:
        try:
            return self.opened(payload)
        except PayloadRefused as refused:
            why, party = refused.why.encode(), b"activity" if self.of_activity else b"workflow"
            metadata = {
                "encoding": REFUSED,
                REFUSAL_MEMBER: why,
                PLACE_MEMBER: self.place.encode(),
                PARTY_MEMBER: party,
            }
            return Payload(metadata=metadata)


def may_be_older(payload: Payload) -> bool:
    """Whether `payload` stands for a workflow's own that was refused only because it is not encrypted."""
    said = payload.metadata
    return (said.get("encoding"), said.get(REFUSAL_MEMBER), said.get(PARTY_MEMBER)) == (
        REFUSED,
        PLAINTEXT.encode(),
        b"workflow",
    )


def key_id_of(payload: Payload) -> str | None:
    """The id of the key that `payload` says it is encrypted with; `None` if it says none of ours."""
    said = payload.metadata.get(KEY_ID_MEMBER, b"").decode(errors="replace")
    return said if KEY_ID.fullmatch(said) else None


def place_in(payload: Payload) -> str | None:
    """The place that `payload` says it belongs to, which only decrypting proves; `None` if it says none."""
    try:
        return payload.metadata.get(PLACE_MEMBER, b"").decode() or None
    except UnicodeDecodeError:
        return None


def _decrypted(ring: KeyRing, key_id: str, place: str, sealed: bytes) -> Payload:
    if len(sealed) < _NONCE + _TAG:
        raise PayloadRefused(DAMAGED, at=place)
    try:
        opened = ring.cipher(key_id).decrypt(sealed[:_NONCE], sealed[_NONCE:], _bound_to(key_id, place))
    except InvalidTag:
        raise PayloadRefused(DAMAGED, at=place) from None
    return Payload.FromString(opened)


def _bound_to(key_id: str, place: str) -> bytes:
    return canonical_json([_SCHEME, key_id, place])
