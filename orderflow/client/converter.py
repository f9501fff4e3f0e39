"""How values become payloads and back, the same for client, worker, replayer and command line (T31)."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any, Final

from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.client import Client
from temporalio.common import RawValue
from temporalio.contrib.pydantic import PydanticPayloadConverter, pydantic_data_converter
from temporalio.converter import DataConverter, DefaultFailureConverter, PayloadConverter

from orderflow.codec import PLACE_MEMBER, REFUSAL_MEMBER, REFUSED, OrderCodec, may_be_older
from orderflow.domain.errors import InvalidSettings, PayloadKeyMissing, PayloadRefused
from orderflow.keyring import KeyRing
from orderflow.settings import Settings, load_settings


class OrderPayloadConverter(PydanticPayloadConverter):
    """Pydantic models as JSON; what has no declared type and cannot be decoded is handed over as it came.

    An order's `run` declares no type: it takes anything and says itself what is wrong. A payload that does not decode
    would otherwise fail the workflow task, and leave a bad start Running for ever (T55). Only an input of a workflow
    that ought to be encrypted and is not does that: it may be an order from before there were keys, which must not
    fail because a setting is missing.
    """

    def from_payloads(self, payloads: Sequence[Payload], type_hints: list[type] | None = None) -> list[Any]:
        """Decode `payloads`; raises only where a type is declared, or a workflow's own payload is not encrypted."""
        try:
            _require_none_refused(payloads, type_hints)
            return super().from_payloads(payloads, type_hints)
        except (KeyError, RuntimeError, ValueError):
            if type_hints or any(map(may_be_older, payloads)):
                raise
            return [RawValue(payload) for payload in payloads]


def _require_none_refused(payloads: Sequence[Payload], type_hints: Sequence[type] | None) -> None:
    for payload, declared in zip_longest(payloads, type_hints or ()):
        if declared is not RawValue and payload is not None and payload.metadata.get("encoding") == REFUSED:
            raise PayloadRefused(_member(payload, REFUSAL_MEMBER), at=_member(payload, PLACE_MEMBER))


def _member(payload: Payload, name: str) -> str:
    return payload.metadata[name].decode()


class ConfidentialFailureConverter(DefaultFailureConverter):
    """Moves the messages and stack traces of failures into what the codec encrypts (T46).

    Types stay readable, and so does the message about a missing key, which nobody without that key could read else.
    """

    def __init__(self) -> None:
        super().__init__(encode_common_attributes=True)

    def to_failure(self, exception: BaseException, payload_converter: PayloadConverter, failure: Failure) -> None:
        """Convert `exception`, and each of its causes."""
        super().to_failure(exception, payload_converter, failure)
        if isinstance(exception, PayloadKeyMissing):
            failure.message = exception.message


def data_converter(settings: Settings | None = None) -> DataConverter:
    """Give the converter that `settings` ask for, those of the environment if none are given.

    Without keys nothing is encrypted, and failures keep message and stack trace readable.

    Raises `InvalidSettings` if the keys cannot be used.
    """
    codec = order_codec(settings or load_settings())
    if codec.ring is None:
        return replace(_CONVERTER, payload_codec=codec)
    return replace(_CONVERTER, payload_codec=codec, failure_converter_class=ConfidentialFailureConverter)


def order_codec(settings: Settings) -> OrderCodec:
    """Give the codec that `settings` ask for, of no place yet. Raises `InvalidSettings` if the keys cannot be used."""
    ring = key_ring(settings)
    return OrderCodec() if ring is None else OrderCodec(ring, plaintext=settings.payload_plaintext == "read")


def key_ring(settings: Settings) -> KeyRing | None:
    """The keys that payloads are encrypted with; `None` if there are to be none. Raises `InvalidSettings`."""
    if settings.payload_keys is not None:
        return KeyRing.from_jwks(settings.payload_keys.get_secret_value().encode(), "ORDERFLOW_PAYLOAD_KEYS")
    if (file := settings.payload_keys_file) is None:
        return None
    try:
        raw = file.read_bytes()
    except OSError as error:
        message = f"the payload keys {file} cannot be read ({error.strerror})"
        raise InvalidSettings(f"{message}; ORDERFLOW_PAYLOAD_KEYS_FILE names them") from None
    return KeyRing.from_jwks(raw, str(file))


def codec_of(client: Client) -> OrderCodec:
    """The codec of `client`. Raises `TypeError` for a client that `connect` did not make."""
    codec = client.data_converter.payload_codec
    if not isinstance(codec, OrderCodec):
        raise TypeError("the client has no codec of orderflow: make it with `orderflow.client.connect`")
    return codec


_CONVERTER: Final = replace(pydantic_data_converter, payload_converter_class=OrderPayloadConverter)
