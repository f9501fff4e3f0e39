"""The messages of failures that Temporal keeps, which only those who have the keys can read (T46)."""

from typing import Final

from temporalio.api.failure.v1 import Failure
from temporalio.client import Client
from temporalio.converter import WorkflowSerializationContext

from orderflow.domain.errors import PayloadKeyMissing

_ENCODED: Final = "Encoded failure"
"""What the SDK leaves in the place of a message that it has encoded."""


async def failure_message(client: Client, workflow_id: str, failure: Failure) -> str:
    """Give the message of a failure of this workflow; where it cannot be read, the sentence that says why."""
    if not failure.HasField("encoded_attributes") or failure.message != _ENCODED:
        return failure.message
    decoded = Failure()
    decoded.CopyFrom(failure)
    converter = client.data_converter.with_context(WorkflowSerializationContext(client.namespace, workflow_id))
    try:
        error = await converter.decode_failure(decoded)
    except PayloadKeyMissing as missing:
        return missing.message
    return _told(error) if error.__cause__ is None else f"{_told(error)}: {_told(error.__cause__)}"


def _told(error: BaseException) -> str:
    return str(getattr(error, "message", error))
