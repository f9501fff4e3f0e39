"""What tests of confidential payloads work with: key sets, and canaries to look for."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pydantic import SecretStr
from temporalio.client import Client

from orderflow.client import connect, ensure_search_attributes
from orderflow.domain.events import OrderEvent
from orderflow.embedded import EmbeddedServer
from orderflow.keyring import with_new_key
from orderflow.settings import Settings
from tests.support.shop import order_event

CANARIES: Final = (
    "canary_order",
    "canary_person",
    "canary_customer",
    "canary@",
    "canary_sku",
    "canary_note",
    "canary_src",
)
"""Words that stand in an event, and nowhere else."""


def canary_event(**changes: Any) -> OrderEvent:
    """An event with a canary in each of its free texts."""
    data: dict[str, Any] = {
        "order_id": "canary_order",
        "requested_by": "canary_person",
        "customer": {"id": "canary_customer", "email": "canary_mail@example.com"},
        "items": [{"sku": "canary_sku", "quantity": 2, "unit_price_minor": 450}],
        "note": "canary_note",
        **changes,
    }
    return order_event(**data).model_copy(update={"source": "/canary_source"})


def key_set(*ids: str) -> bytes:
    """A JWK set with a new key of each id; the last one encrypts."""
    raw: bytes | None = None
    for key_id in ids:
        raw = with_new_key(raw, key_id, "a test")
    return raw or b""


def one_of(raw: bytes, *ids: str) -> bytes:
    """The keys of these ids out of a JWK set, in this order."""
    keys = {key["kid"]: key for key in json.loads(raw)["keys"]}
    return json.dumps({"keys": [keys[key_id] for key_id in ids]}).encode()


def keyed(raw: bytes, *, plaintext: str = "refuse") -> Settings:
    """Settings with these payload keys."""
    changed = {"payload_keys": SecretStr(raw.decode()), "payload_plaintext": plaintext, "wait_for_server": 0}
    return Settings.model_validate(changed)


async def keyed_client(server: EmbeddedServer, raw: bytes, *, plaintext: str = "refuse") -> Client:
    """A client of that server with these payload keys, and the search attributes registered."""
    settings = keyed(raw, plaintext=plaintext)
    client = await connect(settings, address=server.address, namespace="default", use_profile=False)
    await ensure_search_attributes(client)
    return client


def forms_of(word: str) -> Iterator[bytes]:
    """How `word` can stand in bytes: as it is, and as base64 at each of the three offsets."""
    yield word.encode()
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + word.encode())
        yield encoded[(0, 2, 3)[before] : (before + len(word)) * 8 // 6]


def leaks(raw: bytes) -> list[str]:
    """The canaries that stand in `raw` in any form."""
    return [word for word in CANARIES if any(form in raw for form in forms_of(word))]


def kept_by(database: Path) -> bytes:
    """All that a dev server keeps in this file, its write-ahead log included."""
    return b"".join(path.read_bytes() for path in sorted(database.parent.glob(f"{database.name}*")))
