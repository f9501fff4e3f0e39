"""What the libraries of others emit: the CloudEvents SDK and the library of Standard Webhooks."""

import json
import uuid
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from cloudevents.core.bindings.http import to_binary, to_structured
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from standardwebhooks import Webhook

from tests.support.door import Door
from tests.support.senders import Sender, Text, as_bytes, without
from tests.support.street import TYPE, Street

MEDIA: Final = (415, "unsupported-media-type")


def emitted(street: Street, **changes: Any) -> CloudEvent:
    """A good order as somebody with the SDK would write it."""
    placed = street.shop.placed()
    attributes = {
        "specversion": "1.0",
        "id": uuid.uuid4().hex,
        "source": "/shop",
        "type": TYPE,
        "time": datetime.now(UTC),
        "datacontenttype": "application/json",
        **changes,
    }
    return CloudEvent(attributes=attributes, data=placed["data"])


def _signed(street: Street, headers: dict[str, str], body: bytes) -> list[tuple[Text, Text]]:
    return [*without(street.shop.headers(body), "content-type"), *headers.items()]


async def test_what_the_cloudevents_sdk_emits_in_structured_mode_is_taken(door: Door, street: Street) -> None:
    """Issue 4: headers and body as they come out of it."""
    message = to_structured(emitted(street), JSONFormat())
    answer = await door.send(message.body, _signed(street, message.headers, message.body))
    assert answer.told == (202, "new")


async def test_what_the_cloudevents_sdk_emits_in_binary_mode_is_refused(door: Door, street: Street) -> None:
    """C03: 415, and the same event in structured mode is still new."""
    event = emitted(street)
    binary, structured = to_binary(event, JSONFormat()), to_structured(event, JSONFormat())
    assert (await door.send(binary.body, _signed(street, binary.headers, binary.body))).told == MEDIA
    answer = await door.send(structured.body, _signed(street, structured.headers, structured.body))
    assert answer.told == (202, "new")


async def test_the_malformed_cousins_of_the_sdk_are_refused(door: Door, street: Street) -> None:
    """Issue 4, C07, C08: extensions, data in base64, a batch, an older version, and an event that is not ours."""
    format_ = JSONFormat()
    good = emitted(street)
    extended = to_structured(emitted(street, partitionkey="x"), format_).body
    in_base64 = to_structured(CloudEvent(attributes=good.get_attributes(), data=b"\x00\x01"), format_).body
    cousins = {
        extended: 400,
        in_base64: 400,
        as_bytes(json.loads(to_structured(good, format_).body) | {"specversion": "0.3"}): 400,
        b"[" + to_structured(good, format_).body + b"]": 400,
        to_structured(emitted(street, type="com.example.other"), format_).body: 400,
    }
    for body, status in cousins.items():
        assert (await door.post(body, street.shop)).status == status, body
    batch = b"[" + to_structured(good, format_).body + b"]"
    answer = await door.post(batch, street.shop, media_type="application/cloudevents-batch+json")
    assert answer.told == MEDIA


def _by_library(secret: str, body: bytes, at: datetime) -> list[tuple[Text, Text]]:
    number = f"msg_{uuid.uuid4().hex}"
    signature = Webhook(secret).sign(number, at, body.decode())
    stamp = str(int(at.timestamp()))
    named = {"webhook-id": number, "webhook-timestamp": stamp, "webhook-signature": signature}
    return [*named.items(), ("content-type", "application/cloudevents+json")]


async def test_what_the_library_of_the_standard_signs_is_taken(door: Door, street: Street) -> None:
    """Issue 4: with the secret as it is handed out, prefix and all, and text that is not ASCII."""
    body = as_bytes(street.shop.placed(data__note="🍵 für dané"))
    headers = _by_library(str(street.shop.secret), body, datetime.now(UTC))
    assert (await door.send(body, headers)).told == (202, "new")


@pytest.mark.parametrize("cousin", ["another secret", "another body", "another id", "another version"])
async def test_the_malformed_cousins_of_the_library_are_refused(door: Door, street: Street, cousin: str) -> None:
    """Issue 4: whatever part of what was signed is not what is sent."""
    body = as_bytes(street.shop.placed())
    secret = str(street.shop.secret) if cousin != "another secret" else str(Sender("x", "/shop").secret)
    headers = dict(_by_library(secret, body, datetime.now(UTC)))
    if cousin == "another id":
        headers["webhook-id"] = "msg_other"
    if cousin == "another version":
        headers["webhook-signature"] = str(headers["webhook-signature"]).replace("v1,", "v2,")
    sent = body + b" " if cousin == "another body" else body
    assert (await door.send(sent, list(headers.items()))).told == (401, "signature-invalid")


async def test_our_own_sender_signs_what_the_library_verifies(street: Street) -> None:
    """Issue 4: the oracle of these tests agrees with the library, so that neither is wrong alone."""
    body = as_bytes(street.shop.placed())
    headers = {str(name): str(value) for name, value in street.shop.headers(body)}
    assert Webhook(str(street.shop.secret)).verify(body, headers) == json.loads(body)
