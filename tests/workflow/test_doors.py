"""Whoever reaches the namespace can send any bytes: they are refused with a reason and harm nothing (T54, T11).

What Temporal's own command line can send stands in `tests/integration`; here are payloads made by hand, most of them
around an approval that would be valid.
"""

import asyncio
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from temporalio.api.common.v1 import Header, Payload, Payloads, WorkflowExecution
from temporalio.api.enums.v1 import UpdateWorkflowExecutionLifecycleStage
from temporalio.api.update.v1 import Input, Meta, Request, WaitPolicy
from temporalio.api.workflowservice.v1 import SignalWorkflowExecutionRequest, UpdateWorkflowExecutionRequest
from temporalio.testing import WorkflowEnvironment

from orderflow.contracts import DoorAnswer
from orderflow.domain.approvals import Refusal
from tests.approval_requests import claims
from tests.support.shop import Order, Shop, check_orders, open_shop
from tests.workflow.decisions import DOORS, asked, completes, through, unmoved

Shape = Callable[[bytes], Sequence[Payload]]


def _json(data: bytes, **metadata: bytes) -> Payload:
    return Payload(metadata={"encoding": b"json/plain", **metadata}, data=data)


def _around(token: bytes, before: bytes, after: bytes) -> list[Payload]:
    return [_json(before + token + after)]


SHAPES: Final[Mapping[str, Shape]] = {
    "no_input": lambda token: [],
    "null": lambda token: [_json(b"null")],
    "list": lambda token: [_json(b"[]")],
    "empty_object": lambda token: [_json(b"{}")],
    "token_alone": lambda token: _around(token, b'"', b'"'),
    "token_in_a_list": lambda token: _around(token, b'["', b'"]'),
    "token_list_under_the_name": lambda token: _around(token, b'{"approval": ["', b'"]}'),
    "other_name": lambda token: _around(token, b'{"Approval": "', b'"}'),
    "one_member_too_many": lambda token: _around(token, b'{"more": 1, "approval": "', b'"}'),
    "name_twice": lambda token: _around(token, b'{"approval": "a.b.c", "approval": "', b'"}'),
    "two_inputs": lambda token: [*_around(token, b'{"approval": "', b'"}')] * 2,
    "and_an_empty_input": lambda token: [*_around(token, b'{"approval": "', b'"}'), Payload()],
    "token_with_a_space": lambda token: _around(token, b'{"approval": " ', b'"}'),
    "token_with_a_line_end": lambda token: _around(token, b'{"approval": "', b'\\n"}'),
    "token_without_a_letter": lambda token: _around(token[1:], b'{"approval": "', b'"}'),
    "text_after_it": lambda token: _around(token, b'{"approval": "', b'"} x'),
    "no_json": lambda token: _around(token, b"approval: ", b""),
    "no_bytes": lambda token: [_json(b"")],
    "no_metadata": lambda token: [Payload(data=token)],
    "nothing_at_all": lambda token: [Payload()],
    "bytes_of_no_text": lambda token: [_json(b"\xff\xfe" + token)],
    "utf_16": lambda token: [_json(f'{{"approval": "{token.decode()}"}}'.encode("utf-16"))],
    "byte_order_mark": lambda token: _around(token, b'\xef\xbb\xbf{"approval": "', b'"}'),
    "surrogate": lambda token: _around(token, b'{"approval": "\\ud800', b'"}'),
    "not_a_number": lambda token: [_json(b'{"approval": NaN}')],
    "deep": lambda token: [_json(b"[" * 4000)],
    "binary": lambda token: [Payload(metadata={"encoding": b"binary/plain"}, data=token)],
    "null_encoding": lambda token: [Payload(metadata={"encoding": b"binary/null"})],
    "unknown_encoding": lambda token: [Payload(metadata={"encoding": b"\x00no/such\xff"}, data=token)],
    "protobuf": lambda token: [Payload(metadata={"encoding": b"json/protobuf", "messageType": b"no.Such"}, data=b"{}")],
}
"""What is no decision, around a token that is a good one."""

TOO_LARGE: Final[Mapping[str, Shape]] = {
    "million": lambda token: [_json(json.dumps("x" * 1_000_000).encode())],
    "million_beside_it": lambda token: _around(token, b'{"approval": "', b'", "more": "' + b"x" * 1_000_000 + b'"}'),
    "long_token": lambda token: _around(token, b'{"approval": "' + b"a" * 5000, b'"}'),
}


HEADER: Final = Header(fields={"approval": _json(b"\xff")})

UNTIL_ANSWERED: Final = WaitPolicy(
    lifecycle_stage=UpdateWorkflowExecutionLifecycleStage.UPDATE_WORKFLOW_EXECUTION_LIFECYCLE_STAGE_COMPLETED
)


@dataclass(frozen=True)
class Junk:
    """One message: what is in it, and why it is refused; its name unless it is the door's own."""

    payloads: Sequence[Payload]
    refusal: Refusal
    name: str | None = None


def junk(door: str, token: str) -> list[Junk]:
    """Everything that is sent through one door."""
    raw = token.encode()
    good = _around(raw, b'{"approval": "', b'"}')
    names = (*DOORS.values(), "Approve", "approve ", "run", "view", "on_signal", "", "n" * 900)
    return [
        *(Junk(shape(raw), Refusal.MALFORMED) for shape in SHAPES.values()),
        *(Junk(shape(raw), Refusal.TOO_LARGE) for shape in TOO_LARGE.values()),
        *(Junk(good, Refusal.UNKNOWN_MESSAGE, name) for name in names if name != DOORS[door]),
    ]


async def send(order: Order, door: str, message: Junk) -> DoorAnswer | None:
    """Send one message through a door, with a header besides; gives the answer of an update."""
    service, namespace = order.shop.client.workflow_service, order.shop.client.namespace
    args = Payloads(payloads=message.payloads) if message.payloads else None
    name = DOORS[door] if message.name is None else message.name
    where = WorkflowExecution(workflow_id=order.id)
    if door == "signal":
        await service.signal_workflow_execution(
            SignalWorkflowExecutionRequest(
                namespace=namespace, workflow_execution=where, signal_name=name, input=args, header=HEADER
            )
        )
        return None
    request = Request(meta=Meta(update_id=uuid.uuid4().hex), input=Input(name=name, args=args, header=HEADER))
    answered = await service.update_workflow_execution(
        UpdateWorkflowExecutionRequest(
            namespace=namespace, workflow_execution=where, wait_policy=UNTIL_ANSWERED, request=request
        )
    )
    return DoorAnswer.model_validate_json(answered.outcome.success.payloads[0].data)


@pytest.mark.parametrize("door", DOORS)
async def test_no_bytes_wedge_an_order(shop: Shop, door: str) -> None:
    """T54: each is refused and told, the order stays as it was, and what stood in the junk then completes it."""
    order = await shop.start()
    token = shop.sign(await asked(order))
    before, sent = await order.view(), junk(door, token)
    for message in sent:
        answer = await send(order, door, message)
        assert answer in (None, DoorAnswer(accepted=False, refusal=message.refusal, stage=before.stage)), message
    view = await order.when(lambda view: view.refused_total == len(sent))
    told = [(refused.door, refused.name, refused.reason) for refused in view.refusals]
    names = [DOORS[door] if message.name is None else message.name[:64] for message in sent]
    assert told == [(door, name, message.refusal) for name, message in zip(names, sent, strict=True)]
    assert unmoved(view) == unmoved(before)
    await through(door, order, token)
    await completes(order)


async def test_what_comes_while_no_worker_runs_is_looked_at_in_order(env: WorkflowEnvironment, tmp_path: Path) -> None:
    """T11: the order waits for its approval; a bad one before it hides no good one, and one behind it undoes none."""
    async with open_shop(env.client, tmp_path) as shop:
        async with shop.worker(max_cached_workflows=0):
            order = await shop.start()
            request = await asked(order)
        for token in (shop.sign(request, "carol"), "junk", shop.sign(request), shop.sign(request, "bob")):
            await order.send(token)
        async with shop.worker() as shop.running:
            await completes(order)
            told = [refused.reason for refused in (await order.view()).refusals]
            assert told == [Refusal.ROLE_NOT_HELD, Refusal.MALFORMED, Refusal.ALREADY_DECIDED]
            await check_orders(shop)


@pytest.mark.parametrize("door", DOORS)
async def test_a_decision_that_comes_before_the_first_step_is_about_no_request(
    env: WorkflowEnvironment, tmp_path: Path, door: str
) -> None:
    """T11: genuine and well-formed, but nothing is asked yet; it is refused, not kept, and a later one completes."""
    async with open_shop(env.client, tmp_path) as shop:
        order = await shop.start()
        now = int((await env.get_current_time()).timestamp())
        early = claims(workflow_id=order.id, iat=now, expires_at=now + 86_400)
        sending = asyncio.create_task(through(door, order, shop.keys["alice"].sign(early)))
        async with shop.worker() as shop.running:
            await sending
            request = await asked(order)
            assert [refused.reason for refused in (await order.view()).refusals] == [Refusal.NO_SUCH_REQUEST]
            await order.send(shop.sign(request))
            await completes(order)
            await check_orders(shop)
