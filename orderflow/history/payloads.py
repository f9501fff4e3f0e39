"""Every payload of a history, wherever it stands."""

from collections.abc import Iterator

from google.protobuf.message import Message
from temporalio.api.common.v1 import Payload

from orderflow.codec import ENCRYPTED


def payloads(message: Message) -> Iterator[Payload]:
    """Give every payload in `message`."""
    if isinstance(message, Payload):
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            if field.message_type.fields_by_name["value"].message_type is not None:
                for each in value.values():
                    yield from payloads(each)
        elif field.is_repeated:
            for each in value:
                yield from payloads(each)
        else:
            yield from payloads(value)


def is_encoded(message: Message) -> bool:
    """Whether a payload codec made any payload of `message`."""
    return any(payload.metadata.get("encoding") == ENCRYPTED for payload in payloads(message))
