"""How payloads become values when somebody else made them."""

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue

from orderflow.admission import Rejected, read_start
from orderflow.client import data_converter
from orderflow.contracts import OrderView
from orderflow.domain.orders import Reason

UNREADABLE = [
    Payload(),
    Payload(metadata={"encoding": b"binary/encrypted"}, data=b"\x00\x01"),
    Payload(metadata={"encoding": b"json/plain"}, data=b"{"),
    Payload(metadata={"encoding": b"json/plain"}, data=b"\xff"),
    Payload(metadata={"encoding": b"json/protobuf", "messageType": b"no.such.Message"}, data=b"{}"),
]


@pytest.mark.parametrize("payload", UNREADABLE, ids=range(len(UNREADABLE)))
def test_a_start_whose_payload_cannot_be_decoded_is_refused_with_a_reason(payload: Payload) -> None:
    """T55: it reaches `run`, which says what is wrong, instead of failing the workflow task for ever."""
    inputs = data_converter().payload_converter.from_payloads([payload])
    rejected = read_start(inputs, "order-1", continued=False)
    assert isinstance(rejected, Rejected)
    assert rejected.reason is Reason.INVALID_INPUT
    assert rejected.problems


@pytest.mark.parametrize("payload", UNREADABLE, ids=range(len(UNREADABLE)))
def test_where_a_type_is_declared_what_does_not_decode_is_an_error(payload: Payload) -> None:
    """Only what declares no type gets a payload as it came."""
    with pytest.raises((KeyError, RuntimeError, ValueError)):
        data_converter().payload_converter.from_payloads([payload], [OrderView])


def test_a_readable_payload_beside_an_unreadable_one_is_handed_over_as_it_came_too() -> None:
    """All or nothing: a start with two inputs is refused anyway."""
    payloads = [Payload(metadata={"encoding": b"json/plain"}, data=b"1"), UNREADABLE[0]]
    assert data_converter().payload_converter.from_payloads(payloads) == [RawValue(payload) for payload in payloads]
