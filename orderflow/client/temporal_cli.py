"""The same acts as commands of Temporal's own CLI, complete and quoted for a POSIX shell.

Their input is encrypted by the `codec` that they are given, where it has keys. An update then does not wait
for its answer: Temporal's CLI has no keys, and fails when it cannot read one.
"""

import base64
import json
import shlex

from temporalio.api.common.v1 import Payload

from orderflow.codec import OrderCodec, place_of
from orderflow.contracts import (
    APPROVE_SIGNAL,
    OPERATE_UPDATE,
    REASON_ATTRIBUTE,
    REPAIR_WORKFLOW_TYPE,
    STAGE_ATTRIBUTE,
    TASK_QUEUE,
    WORKFLOW_TYPE,
    OrderInput,
)
from orderflow.domain.definition import Definition
from orderflow.domain.events import OrderEvent, workflow_id
from orderflow.domain.orders import Stage


def start_command(
    event: OrderEvent,
    definition: Definition,
    *,
    codec: OrderCodec,
    address: str,
    namespace: str,
    task_queue: str = TASK_QUEUE,
) -> str:
    """The `temporal workflow start` that starts the order of `event`; what is a default in the input is left out."""
    order, own_id = OrderInput(event=event, definition=definition), workflow_id(event.source, event.id)
    return shlex.join(
        [
            *("temporal", "workflow", "start", *_connection(address, namespace)),
            *("--type", WORKFLOW_TYPE, "--task-queue", task_queue),
            *("--workflow-id", own_id, "--id-reuse-policy", "RejectDuplicate"),
            *("--search-attribute", f'{STAGE_ATTRIBUTE}="{Stage.RUNNING}"'),
            *_input(order.model_dump_json(exclude_defaults=True), own_id, codec),
        ]
    )


def signal_command(order: str, token: str, *, codec: OrderCodec, address: str, namespace: str) -> str:
    """The `temporal workflow signal` that delivers the decision `token` to `order`."""
    return shlex.join(
        [
            *("temporal", "workflow", "signal", *_connection(address, namespace)),
            *("--workflow-id", order, "--name", APPROVE_SIGNAL),
            *_input(json.dumps({"approval": token}), order, codec),
        ]
    )


def operate_command(order: str, token: str, *, codec: OrderCodec, address: str, namespace: str) -> str:
    """The `temporal workflow update` that delivers the operation `token` to `order`."""
    verb = ("execute",) if codec.ring is None else ("start", "--wait-for-stage", "accepted")
    return shlex.join(
        [
            *("temporal", "workflow", "update", *verb, *_connection(address, namespace)),
            *("--workflow-id", order, "--name", OPERATE_UPDATE),
            *_input(json.dumps({"operation": token}), order, codec),
        ]
    )


def repair_command(
    token: str, jti: str, *, codec: OrderCodec, address: str, namespace: str, task_queue: str = TASK_QUEUE
) -> str:
    """The `temporal workflow execute` that does the operation `token`, of this `jti`, for an order that has ended."""
    own_id = repair_id(jti)
    return shlex.join(
        [
            *("temporal", "workflow", "execute", *_connection(address, namespace)),
            *("--type", REPAIR_WORKFLOW_TYPE, "--task-queue", task_queue, "--workflow-id", own_id),
            *_input(json.dumps({"operation": token}), own_id, codec),
        ]
    )


def register_command(address: str, namespace: str) -> str:
    """The `temporal operator` command that registers the search attributes of orders."""
    return shlex.join(
        [
            *("temporal", "operator", "search-attribute", "create", *_connection(address, namespace)),
            *("--name", STAGE_ATTRIBUTE, "--name", REASON_ATTRIBUTE, "--type", "Keyword"),
        ]
    )


def repair_id(jti: str) -> str:
    """The id of the workflow that does the operation of this `jti`."""
    return f"repair-{jti}"


def _input(text: str, workflow_id: str, codec: OrderCodec) -> tuple[str, ...]:
    """One input, the JSON `text`, as options; encrypted for the workflow of this id where `codec` has keys."""
    if codec.ring is None:
        return ("--input", text)
    sealed = codec.at(place_of(workflow_id)).sealed(Payload(metadata={"encoding": b"json/plain"}, data=text.encode()))
    members = (f"{name}={value.decode()}" for name, value in sorted(sealed.metadata.items()))
    meta = (part for member in members for part in ("--input-meta", member))
    return (*meta, "--input-base64", "--input", base64.b64encode(sealed.data).decode())


def _connection(address: str, namespace: str) -> tuple[str, ...]:
    return ("--address", address, "--namespace", namespace)
