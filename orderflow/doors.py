"""The doors of an order: messages from people, looked at in order of arrival, answered, and kept within bounds.

Runs in workflow code. A handler only appends to the inbox (T11, T14); `Doorkeeper` decides, one message at a time, and
verifies a signature only when everything that can be compared without it fits the open request. Anyone who reaches the
namespace can send anything: whatever it is, the workflow task stays healthy (T54).
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import NoReturn

from temporalio import workflow
from temporalio.common import RawValue

with workflow.unsafe.imports_passed_through():
    from orderflow import dispatch
    from orderflow.contracts import (
        APPROVE_SIGNAL,
        DECIDE_UPDATE,
        OPERATE_UPDATE,
        DoorAnswer,
        RefusedMessage,
        VerifyRequest,
    )
    from orderflow.domain import approvals
    from orderflow.domain.approvals import ApprovalRequest, Claims, Decision, Refusal
    from orderflow.domain.audit import Told
    from orderflow.domain.errors import InvalidJson
    from orderflow.domain.orders import Stage
    from orderflow.domain.strict_json import read_json
    from orderflow.progress import Progress

MAX_MESSAGE_BYTES = 8 * 1024
_MEMBERS = MappingProxyType(
    {
        ("signal", APPROVE_SIGNAL): "approval",
        ("update", DECIDE_UPDATE): "approval",
        ("update", OPERATE_UPDATE): "operation",
    }
)
"""The one member of what comes in at each door."""
_NAME_LENGTH = 64


@dataclass
class Message:
    """One message as it came in: when, its door and name, the token that it carries or why it has none.

    `answer` is there once `answered` is set.
    """

    at: datetime
    door: str
    name: str
    token: str | Refusal
    answered: asyncio.Event
    answer: DoorAnswer


class Inbox:
    """Messages in order of arrival, until they are answered."""

    def __init__(self) -> None:
        self._messages: deque[Message] = deque()
        self.arrived = asyncio.Event()

    def receive(self, door: str, name: str, inputs: Sequence[RawValue]) -> Message:
        """Look at size and shape only, and keep it. Any name, any number and kind of inputs may come in."""
        unanswered = DoorAnswer(accepted=False, stage=Stage.RUNNING)
        token = _token(door, name, inputs)
        message = Message(workflow.now(), door, name[:_NAME_LENGTH], token, asyncio.Event(), unanswered)
        self._messages.append(message)
        self.arrived.set()
        return message

    def is_quiet(self) -> bool:
        """Whether every message is answered, and every sender of an update was told."""
        return not self._messages and workflow.all_handlers_finished()

    def all_answered(self) -> Callable[[], bool]:
        """A condition: every message that has come in by now is answered."""
        messages = tuple(self._messages)
        return lambda: all(message.answered.is_set() for message in messages)

    async def serve(
        self, look_at: Callable[[Message], Awaitable[Refusal | None]], stage: Callable[[], Stage]
    ) -> NoReturn:
        """Answer messages, one at a time, with why `look_at` refuses each, if it does, and the `stage` by then."""
        while True:
            message = await self._first()
            refusal = await look_at(message)
            message.answer = DoorAnswer(accepted=refusal is None, refusal=refusal, stage=stage())
            message.answered.set()
            self._messages.popleft()

    async def _first(self) -> Message:
        """The oldest message that is not answered; waits for one."""
        while not self._messages:
            self.arrived.clear()
            await self.arrived.wait()
        return self._messages[0]


def _token(door: str, name: str, inputs: Sequence[RawValue]) -> str | Refusal:
    member = _MEMBERS.get((door, name))
    if member is None:
        return Refusal.UNKNOWN_MESSAGE
    if len(inputs) != 1:
        return Refusal.MALFORMED
    raw = inputs[0].payload.data
    if len(raw) > MAX_MESSAGE_BYTES:
        return Refusal.TOO_LARGE
    try:
        value = read_json(raw, max_depth=2, max_bytes=MAX_MESSAGE_BYTES)
    except InvalidJson:
        return Refusal.MALFORMED
    if not isinstance(value, dict) or value.keys() != {member}:
        return Refusal.MALFORMED
    token = value[member]
    return token if isinstance(token, str) else Refusal.MALFORMED


class Doorkeeper:
    """Takes each message from the inbox, decides on it, and writes down what came of it."""

    def __init__(self, progress: Progress, inbox: Inbox) -> None:
        self._progress = progress
        self._state = progress.state
        self._inbox = inbox

    async def serve(self) -> None:
        """Answer messages for as long as the order runs."""
        await self._inbox.serve(self._look_at, lambda: self._state.stage)

    async def _look_at(self, message: Message) -> Refusal | None:
        decide = self._progress.operators.take_up if message.name == OPERATE_UPDATE else self._decide
        refusal = await decide(message.token, message.at)
        if refusal is not None:
            self._progress.refuse(RefusedMessage(at=message.at, door=message.door, name=message.name, reason=refusal))
        return refusal

    async def _decide(self, token: str | Refusal, at: datetime) -> Refusal | None:
        claims = token if isinstance(token, Refusal) else approvals.read_claims(token)
        if isinstance(claims, Refusal):
            return claims
        refusal = self._compare(claims, at)
        if refusal is not None:
            return refusal
        verdict = await self._progress.look(dispatch.verify(VerifyRequest(token=str(token), at=at)))
        if verdict is None:
            return Refusal.CANNOT_VERIFY
        # The request may have been closed while the signature was checked.
        request = self._state.request
        refusal = self._compare(claims, at)
        if request is None or refusal is not None:
            return refusal
        recorded = verdict.at or at
        refusal = approvals.untimely(request, claims, recorded) or approvals.ineligible(request, claims, verdict)
        if refusal is None:
            self._accept(request, claims, str(token), recorded)
        return refusal

    def _compare(self, claims: Claims, at: datetime) -> Refusal | None:
        """What can be told without the signature. Time only names a refusal here: it is no fact until recorded."""
        request = self._state.request
        if request is None:
            return Refusal.EXPIRED if at.timestamp() > claims.expires_at else Refusal.NO_SUCH_REQUEST
        refusal = (
            approvals.mismatch(request, claims)
            or (Refusal.ALREADY_DECIDED if self._state.rejected or request.is_approved else None)
            or approvals.repeated(request, claims)
        )
        return refusal and (approvals.untimely(request, claims, at) or refusal)

    def _accept(self, request: ApprovalRequest, claims: Claims, token: str, at: datetime) -> None:
        if claims.decision is Decision.REJECT:
            self._state.rejected = True
        else:
            self._state.request = request.with_approval(claims, token, at)
        self._progress.tell(Told.DECISION_ACCEPTED, claims.decision, claims.approver)
