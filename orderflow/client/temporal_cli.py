"""The same acts as commands of Temporal's own CLI, complete and quoted for a POSIX shell."""

import json
import shlex

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
    event: OrderEvent, definition: Definition, *, address: str, namespace: str, task_queue: str = TASK_QUEUE
) -> str:
    """The `temporal workflow start` that starts the order of `event`; what is a default in the input is left out."""
    order = OrderInput(event=event, definition=definition)
    return shlex.join(
        [
            *("temporal", "workflow", "start", *_connection(address, namespace)),
            *("--type", WORKFLOW_TYPE, "--task-queue", task_queue),
            *("--workflow-id", workflow_id(event.source, event.id), "--id-reuse-policy", "RejectDuplicate"),
            *("--search-attribute", f'{STAGE_ATTRIBUTE}="{Stage.RUNNING}"'),
            *("--input", order.model_dump_json(exclude_defaults=True)),
        ]
    )


def signal_command(order: str, token: str, *, address: str, namespace: str) -> str:
    """The `temporal workflow signal` that delivers the decision `token` to `order`."""
    return shlex.join(
        [
            *("temporal", "workflow", "signal", *_connection(address, namespace)),
            *("--workflow-id", order, "--name", APPROVE_SIGNAL),
            *("--input", json.dumps({"approval": token})),
        ]
    )


def operate_command(order: str, token: str, *, address: str, namespace: str) -> str:
    """The `temporal workflow update execute` that delivers the operation `token` to `order`."""
    return shlex.join(
        [
            *("temporal", "workflow", "update", "execute", *_connection(address, namespace)),
            *("--workflow-id", order, "--name", OPERATE_UPDATE),
            *("--input", json.dumps({"operation": token})),
        ]
    )


def repair_command(token: str, *, address: str, namespace: str, task_queue: str = TASK_QUEUE) -> str:
    """The `temporal workflow execute` that does the operation `token` for an order that no longer runs."""
    return shlex.join(
        [
            *("temporal", "workflow", "execute", *_connection(address, namespace)),
            *("--type", REPAIR_WORKFLOW_TYPE, "--task-queue", task_queue),
            *("--input", json.dumps({"operation": token})),
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


def _connection(address: str, namespace: str) -> tuple[str, ...]:
    return ("--address", address, "--namespace", namespace)
