"""The demo: three chains of evidence, on a real Temporal server, with a real worker process that is really killed.

What it claims is read from the simulator's own log, not from what orderflow says of itself.
"""

import asyncio
import json
import sys
import uuid
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from temporalio.client import Client, WorkflowFailureError, WorkflowHandle

from orderflow.approvers import approver_key
from orderflow.catalogue import load_catalogue
from orderflow.client import NoAnswer, connect, decide, start_order, view
from orderflow.contracts import DoorAnswer, OrderView
from orderflow.definitions import load_packaged
from orderflow.domain.approvals import ApprovalRequest, Claims, Decision
from orderflow.domain.events import OrderEvent, validate_event
from orderflow.domain.orders import Stage
from orderflow.domain.strict_json import JsonValue
from orderflow.embedded import EmbeddedServer, find_temporal
from orderflow.providers.simulated import Fault, SimulatedWorld
from orderflow.settings import Settings, child_environment
from orderflow.signing import decision_for
from orderflow.simulator import serving
from orderflow.stopping import stopped_by_signals, unless_stopped

PATIENCE = 45.0
"""Seconds that any one thing may take before the demo gives up on it."""

Tell = Callable[[str], None]


@dataclass
class Chain:
    """One claim, the evidence for it, and whether it holds."""

    claim: str
    evidence: list[str] = field(default_factory=list)
    holds: bool = True

    def check(self, evidence: str, holds: bool) -> None:
        """Add a piece of evidence; the claim holds only when all of them do."""
        self.evidence.append(evidence if holds else f"NOT SO: {evidence}")
        self.holds = self.holds and holds


class WorkerProcess:
    """A worker as a process of its own, that can be killed and started again."""

    def __init__(self, environment: dict[str, str], log: Path) -> None:
        self._environment = environment
        self._log = log
        self._running: Process | None = None

    async def start(self) -> int:
        """Start a worker; gives its pid."""
        with self._log.open("ab") as log:
            self._running = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "orderflow.worker", env=self._environment, stdin=DEVNULL, stdout=log, stderr=log
            )
        return self._running.pid

    async def stop(self) -> int:
        """Let it drain, and wait until it is gone; gives its exit code."""
        return await self._end(Process.terminate)

    async def kill(self) -> int:
        """End it where it stands."""
        return await self._end(Process.kill)

    async def _end(self, how: Callable[[Process], None]) -> int:
        if self._running is None:
            return 0
        if self._running.returncode is None:
            how(self._running)
        return await self._running.wait()


@dataclass
class Stand:
    """Everything that the demo works with."""

    client: Client
    world: SimulatedWorld
    worker: WorkerProcess
    settings: Settings
    tell: Tell

    async def submit(self, order_id: str) -> WorkflowHandle[Any, Any]:
        """Start an order for an event of its own."""
        definition = load_packaged(load_catalogue())
        started = await start_order(self.client, _event(order_id), definition)
        return self.client.get_workflow_handle(started.order)

    async def view_at(self, order: WorkflowHandle[Any, Any], stage: Stage) -> OrderView:
        """Wait for a stage, and for a worker that can show it."""
        seen: list[OrderView] = []

        async def is_there() -> bool:
            with suppress(NoAnswer):
                seen.append(await view(self.client, order.id))
            return bool(seen) and seen[-1].stage is stage

        await _until(is_there)
        return seen[-1]

    async def request(self, order: WorkflowHandle[Any, Any]) -> ApprovalRequest:
        """The approval request that the order waits with."""
        seen = await self.view_at(order, Stage.AWAITING_APPROVAL)
        if seen.request is None:
            raise RuntimeError("the order waits for an approval, and shows no request")
        return seen.request

    def sign(self, request: ApprovalRequest, **changes: object) -> str:
        """An approval of `request` by alice; `changes` are claims to alter before she signs."""
        claims = decision_for(request, Decision.APPROVE, "alice", datetime.now(UTC))
        return approver_key(self.settings, "alice").sign(Claims.model_validate(claims.model_dump() | changes))

    async def decide(self, order: WorkflowHandle[Any, Any], token: str) -> DoorAnswer:
        """Hand over a decision and give the verdict; the worker may just be starting."""
        return await decide(self.client, order.id, token, patience=PATIENCE)

    async def ending(self, order: WorkflowHandle[Any, Any]) -> str:
        """How the order ended, in a few words."""
        try:
            async with asyncio.timeout(PATIENCE):
                await order.result()
        except WorkflowFailureError as error:
            return str(getattr(error.cause, "message", error.cause))
        return Stage.COMPLETED

    def done(self, order: WorkflowHandle[Any, Any], operation: str) -> list[dict[str, Any]]:
        """What the simulator really did of one operation for one order."""
        wanted = {"kind": "act", "workflow_id": order.id, "operation": operation, "outcome": "done"}
        return [line for line in self.world.log() if wanted.items() <= line.items()]


async def run_demo(tell: Tell) -> list[Chain] | None:
    """Run the three chains in a folder that is gone afterwards; `tell` hears of the progress, a line at a time.

    Gives `None` when SIGTERM, SIGINT or SIGHUP came before the end; no process of it is left then either.
    """
    stopping = asyncio.Event()
    with stopped_by_signals(stopping):
        return await unless_stopped(stopping, _prove(tell))


async def _prove(tell: Tell) -> list[Chain]:
    with TemporaryDirectory(prefix="orderflow-demo-") as folder:
        async with _stand(Path(folder), tell) as stand:
            first = await stand.submit("demo-1")
            return [await _killed(stand, first), await _approved(stand, first), await _taken_back(stand)]


async def _killed(stand: Stand, order: WorkflowHandle[Any, Any]) -> Chain:
    chain = Chain("a worker killed between the provider's commit and its own report reserves once")
    stand.world.add_fault(Fault(operation="reserve", kind="hang", order=order.id))
    pid = await stand.worker.start()

    async def is_reserved() -> bool:
        return bool(stand.done(order, "reserve"))

    await _until(is_reserved)
    await stand.worker.kill()
    stand.tell(f"inventory is reserved, worker {pid} was killed before it could say so")
    await stand.worker.start()
    seen = await stand.view_at(order, Stage.AWAITING_APPROVAL)
    reserved = stand.done(order, "reserve")
    record = next(step for step in seen.steps if step.step == "reserve_inventory")
    chain.check(f"simulator log: {len(reserved)} reservation", len(reserved) == 1)
    chain.check(f"the order adopted it: {record.reference}", record.reference == reserved[0]["reference"])
    return chain


async def _approved(stand: Stand, order: WorkflowHandle[Any, Any]) -> Chain:
    chain = Chain("an approval counts only for exactly this charge, across a restart of the worker")
    request = await stand.request(order)
    code = await stand.worker.stop()
    await stand.worker.start()
    stand.tell(f"worker stopped (exit {code}) and a new one started while the order waits")
    for what, token, reason in _bad_approvals(stand, request):
        answer = await stand.decide(order, token)
        chain.check(f"{what}: refused, {answer.refusal}", not answer.accepted and answer.refusal == reason)
    chain.check("nothing was charged by any of them", stand.world.net_charged(order.id) == 0)
    answer = await stand.decide(order, stand.sign(request))
    chain.check("the right one: accepted", answer.accepted)
    ending = await stand.ending(order)
    chain.check(f"the order ends {ending}", ending == Stage.COMPLETED)
    charged = [line["amount_minor"] for line in stand.done(order, "charge")]
    chain.check(f"simulator log: 1 charge, of {charged}", charged == [900])
    chain.check("simulator log: 1 message", len(stand.done(order, "notify")) == 1)
    return chain


def _bad_approvals(stand: Stand, request: ApprovalRequest) -> list[tuple[str, str, str]]:
    head, body, signature = stand.sign(request).split(".")
    other = stand.sign(request, workflow_id="order-" + "0" * 32)
    expired = stand.sign(request, expires_at=int(datetime.now(UTC).timestamp()) - 1)
    return [
        ("a tampered approval", f"{head}.{body}.{_tampered(signature)}", "bad_signature"),
        ("an expired approval", expired, "expired"),
        ("another order's approval", other, "wrong_order"),
    ]


def _tampered(signature: str) -> str:
    return ("B" if signature[0] == "A" else "A") + signature[1:]


async def _taken_back(stand: Stand) -> Chain:
    chain = Chain("a message that fails for good takes the charge back, then the reservation")
    order = await stand.submit("demo-2")
    stand.world.add_fault(Fault(operation="notify", kind="decline", order=order.id))
    await stand.decide(order, stand.sign(await stand.request(order)))
    stand.tell("the second order is charged, and its message is refused")
    ending = await stand.ending(order)
    chain.check(f"the order ends {ending}", ending.startswith(Stage.FAILED_COMPENSATED))
    seq = {
        name: [line["seq"] for line in stand.done(order, name)] for name in ("reserve", "charge", "refund", "release")
    }
    chain.check(
        "simulator log: 1 reserve, 1 charge, 1 refund, 1 release", all(len(times) == 1 for times in seq.values())
    )
    chain.check("in reverse order: refund before release", seq["refund"] < seq["release"])
    chain.check(f"net charged: {stand.world.net_charged(order.id)}", stand.world.net_charged(order.id) == 0)
    return chain


@asynccontextmanager
async def _stand(folder: Path, tell: Tell) -> AsyncIterator[Stand]:
    world = SimulatedWorld(folder / "simulator.jsonl")
    binary = None if sys.platform == "win32" else find_temporal()
    async with EmbeddedServer(binary=binary, log=folder / "temporal.log") as server, serving(world) as url:
        tell(f"Temporal dev server at {server.address}, simulated providers at {url}")
        settings = Settings(state_dir=folder, providers="http", providers_url=url)
        environment = child_environment(settings, temporal_address=server.address)
        worker = WorkerProcess(environment, folder / "worker.log")
        client = await connect(settings, address=server.address, namespace="default", use_profile=False)
        try:
            yield Stand(client, world, worker, settings, tell)
        finally:
            await worker.kill()  # nothing of what it may be doing is kept


async def _until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await condition():  # noqa: ASYNC110 - what is waited for happens in other processes
            await asyncio.sleep(0.1)


def _event(order_id: str) -> OrderEvent:
    data: JsonValue = {
        "order_id": order_id,
        "requested_by": "dana",
        "customer": {"id": "customer-7", "email": "customer@example.com"},
        "currency": "EUR",
        "items": [{"sku": "tea", "quantity": 2, "unit_price_minor": 450}],
        "total_minor": 900,
    }
    return validate_event(
        {
            "specversion": "1.0",
            "id": uuid.uuid4().hex,
            "source": "/demo",
            "type": "dev.orderflow.order.placed.v1",
            "data": data,
        }
    )


def as_json(chains: list[Chain]) -> str:
    """The chains for a machine."""
    return json.dumps([asdict(chain) for chain in chains], indent=2)
