"""Orders from outside, on a real server: starting them, reading them, deciding on them, listing them."""

import asyncio
import os
import subprocess
import uuid
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.converter import DataConverter, WorkflowSerializationContext
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from orderflow.client import (
    NoAnswer,
    OrderClosed,
    OrderStatus,
    OrderSummary,
    ServerUnreachable,
    UnknownOrder,
    address_of,
    codec_of,
    connect,
    decide,
    list_orders,
    order_status,
    signal_command,
    start_command,
    start_order,
    view,
)
from orderflow.contracts import DoorAnswer, OrderInput, OrderView
from orderflow.domain.approvals import Refusal
from orderflow.domain.errors import InvalidSettings
from orderflow.domain.events import OrderEvent, workflow_id
from orderflow.domain.orders import Stage
from tests.definitions import SHIPPED, load
from tests.order_events import accepted
from tests.support.servers import DevServer, temporal_binary

pytestmark = pytest.mark.timeout(60)

PATIENCE = 30.0
DEFINITION = load(SHIPPED)
ODD = 'it\'s "odd" $(exit 1) `exit 1` \\ %PATH% ünï 😀 !x\n--flag'


@pytest.fixture
async def fresh(tmp_path: Path) -> AsyncIterator[Client]:
    """A client of a server on which nobody has registered anything."""
    async with DevServer(tmp_path, plain=True) as running:
        yield await connect(address=running.address, use_profile=False)


def order_event() -> OrderEvent:
    """The event of an order that does not exist yet."""
    return accepted(id=uuid.uuid4().hex)


def some_queue() -> str:
    """A task queue of its own for a test."""
    return f"orders-{uuid.uuid4().hex[:8]}"


@workflow.defn(name="OrderWorkflow", sandboxed=False)
class ScriptedOrder:
    """Answers like an order, without being one."""

    @workflow.init
    def __init__(self, order: OrderInput) -> None:
        self._order = order
        self._closed = False

    @workflow.run
    async def run(self, order: OrderInput) -> None:
        if order.event.data.note == "crash":
            raise LookupError("a bug of ours")
        if order.event.data.note == "act":
            await workflow.execute_activity("act_unheard_of", start_to_close_timeout=timedelta(seconds=5))
        await workflow.wait_condition(lambda: self._closed)

    @workflow.query
    def view(self) -> OrderView:
        return OrderView(
            order=workflow.info().workflow_id,
            run_id=workflow.info().run_id,
            event_source=self._order.event.source,
            event_id=self._order.event.id,
            stage=Stage.RUNNING,
            reason=None,
            detail=None,
            definition="order 1.0.0",
            definition_fingerprint=self._order.definition.fingerprint,
            state_version=0,
            steps=(),
            request=None,
            refusals=(),
            refused_total=0,
            cancel_requested=False,
            standing=(),
            trail=(),
            outcome=None,
        )

    @workflow.update
    def decide(self, message: dict[str, str]) -> DoorAnswer:
        refusal = None if message == {"approval": "good"} else Refusal.MALFORMED
        return DoorAnswer(accepted=refusal is None, refusal=refusal, stage=Stage.RUNNING)

    @workflow.signal
    def close(self) -> None:
        self._closed = True


@activity.defn
async def act_otherwise() -> None:
    """Something, so that the worker has an activity."""


def scripted_worker(client: Client, task_queue: str) -> Worker:
    """A worker for `ScriptedOrder`."""
    return Worker(
        client,
        task_queue=task_queue,
        workflows=[ScriptedOrder],
        activities=[act_otherwise],
        workflow_runner=UnsandboxedWorkflowRunner(),
    )


async def status_when(client: Client, order: str, wanted: Callable[[OrderStatus], object]) -> OrderStatus:
    """Wait until the status of `order` is as wanted."""
    async with asyncio.timeout(PATIENCE):
        while True:
            if wanted(status := await order_status(client, order)):
                return status
            await asyncio.sleep(0.05)


async def listed(client: Client, order: str) -> OrderSummary:
    """Wait until Temporal lists `order`, which lags behind its start."""
    async with asyncio.timeout(PATIENCE):
        while True:
            async for summary in list_orders(client):
                if summary.order == order:
                    return summary
            await asyncio.sleep(0.05)


async def test_an_order_can_be_started_before_any_worker_was(fresh: Client) -> None:
    """T41: on a namespace that knows no search attribute yet, the order is not lost."""
    started = await start_order(fresh, order_event(), DEFINITION)
    assert started.new
    assert (await listed(fresh, started.order)).stage == "running"


async def test_an_order_starts_even_where_nobody_may_register(fresh: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """T41: without its stage in the list, and with a warning."""
    said: list[str] = []

    async def refuse(_: Client) -> None:
        raise InvalidSettings("not allowed")

    monkeypatch.setattr("orderflow.client.orders.ensure_search_attributes", refuse)
    started = await start_order(fresh, order_event(), DEFINITION, warn=said.append)
    assert said == ["not allowed"]
    assert (await order_status(fresh, started.order)).stage is None


async def test_the_second_start_of_an_event_finds_the_first(client: Client) -> None:
    """I04: while it runs, and after it has ended."""
    event = order_event()
    first = await start_order(client, event, DEFINITION)
    again = await start_order(client, event, DEFINITION)
    await client.get_workflow_handle(first.order).terminate()
    later = await start_order(client, event, DEFINITION)
    assert first.order == workflow_id(event.source, event.id)
    assert first.new
    assert (again.order, again.run_id, again.new) == (first.order, first.run_id, False)
    assert (later.order, later.run_id, later.new) == (first.order, first.run_id, False)


async def test_many_starts_of_one_event_at_once_make_one_order(client: Client) -> None:
    """I04: whoever is first."""
    event = order_event()
    started = await asyncio.gather(*(start_order(client, event, DEFINITION) for _ in range(10)))
    assert [found.new for found in started].count(True) == 1
    assert len({found.run_id for found in started}) == 1


def in_a_shell(command: str) -> "subprocess.CompletedProcess[str]":
    """Run a printed command as it stands, with `temporal` on PATH."""
    path = f"{temporal_binary().parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["/bin/sh", "-c", command], env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=PATIENCE
    )


def converter_for(client: Client, order: str) -> DataConverter:
    """What reads the payloads of one order."""
    return client.data_converter.with_context(WorkflowSerializationContext(client.namespace, order))


def target_of(client: Client) -> dict[str, str]:
    """Where a printed command is to run."""
    return {"address": address_of(client), "namespace": client.namespace}


async def test_the_printed_start_command_starts_the_same_order(client: Client) -> None:
    """As it stands, whatever stands in the event; and a second time it finds the first one."""
    event = accepted(id=f"{uuid.uuid4().hex} it's $(exit 1) `x` \\ 😀", data__note=ODD)
    queue = some_queue()
    command = start_command(
        event,
        DEFINITION,
        codec=codec_of(client),
        task_queue=queue,
        **target_of(client),
    )
    done = await asyncio.to_thread(in_a_shell, command)
    assert done.returncode == 0, done.stderr
    order = workflow_id(event.source, event.id)
    handle = client.get_workflow_handle(order)
    first = await anext(handle.fetch_history_events())
    payloads = first.workflow_execution_started_event_attributes.input.payloads
    (sent,) = await converter_for(client, order).decode(payloads, [OrderInput])
    assert sent == OrderInput(event=event, definition=DEFINITION)
    assert (await order_status(client, order)).stage == "running"
    assert not (await start_order(client, event, DEFINITION)).new
    await handle.terminate()
    again = await asyncio.to_thread(in_a_shell, command)
    assert first.workflow_execution_started_event_attributes.original_execution_run_id in again.stdout
    assert len([run async for run in client.list_workflows(f'WorkflowId = "{order}"')]) == 1


async def test_the_printed_signal_command_delivers_the_decision(client: Client) -> None:
    """What the approver signed arrives as it is."""
    started = await start_order(client, order_event(), DEFINITION, task_queue=some_queue())
    command = signal_command(started.order, "a.b.c", codec=codec_of(client), **target_of(client))
    done = await asyncio.to_thread(in_a_shell, command)
    assert done.returncode == 0, done.stderr
    events = [event async for event in client.get_workflow_handle(started.order).fetch_history_events()]
    signals = [
        event.workflow_execution_signaled_event_attributes
        for event in events
        if event.HasField("workflow_execution_signaled_event_attributes")
    ]
    assert [signal.signal_name for signal in signals] == ["approve"]
    assert await converter_for(client, started.order).decode(signals[0].input.payloads) == [{"approval": "a.b.c"}]


async def test_an_order_that_does_not_exist_is_unknown(client: Client) -> None:
    """Whatever is asked of it."""
    nobody = f"order-{'0' * 32}"
    for asked in (view(client, nobody), decide(client, nobody, "a.b.c"), order_status(client, nobody)):
        with pytest.raises(UnknownOrder, match=nobody):
            await cast(Any, asked)


async def test_an_order_tells_what_it_knows_while_it_runs_and_afterwards(client: Client) -> None:
    """The view comes from a worker, open or closed."""
    event, queue = order_event(), some_queue()
    started = await start_order(client, event, DEFINITION, task_queue=queue)
    async with scripted_worker(client, queue):
        running = await view(client, started.order, patience=PATIENCE)
        assert (running.event_id, running.run_id, running.stage) == (event.id, started.run_id, Stage.RUNNING)
        handle = client.get_workflow_handle(started.order)
        await handle.signal("close")
        await handle.result()
        assert (await view(client, started.order, patience=PATIENCE)).event_id == event.id
        with pytest.raises(OrderClosed, match="has ended"):
            await decide(client, started.order, "good")


async def test_a_decision_gets_its_verdict(client: Client) -> None:
    """Accepted, or refused with the reason."""
    queue = some_queue()
    started = await start_order(client, order_event(), DEFINITION, task_queue=queue)
    async with scripted_worker(client, queue):
        assert (await decide(client, started.order, "good", patience=PATIENCE)).accepted
        refused = await decide(client, started.order, "bad", patience=PATIENCE)
        assert (refused.accepted, refused.refusal) == (False, Refusal.MALFORMED)


async def test_no_worker_is_no_answer_and_no_hanging(client: Client) -> None:
    """The sentence names the task queue that nobody works on."""
    queue = some_queue()
    started = await start_order(client, order_event(), DEFINITION, task_queue=queue)
    for asked in (view(client, started.order, patience=0.5), decide(client, started.order, "good", patience=0.5)):
        with pytest.raises(NoAnswer, match=f"no worker answered.*{queue}"):
            await cast(Any, asked)


async def test_whoever_stops_waiting_for_a_verdict_is_not_told_that_no_worker_answered(client: Client) -> None:
    """The SDK gives a wait that was cancelled the name of one that nobody answered."""
    started = await start_order(client, order_event(), DEFINITION, task_queue=some_queue())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await decide(client, started.order, "good", patience=PATIENCE)


async def test_a_bug_in_workflow_code_is_said_by_status_and_view(client: Client) -> None:
    """T16: the workflow task is failing, with the error; it never just hangs."""
    event, queue = accepted(id=uuid.uuid4().hex, data__note="crash"), some_queue()
    started = await start_order(client, event, DEFINITION, task_queue=queue)
    async with scripted_worker(client, queue):
        status = await status_when(client, started.order, lambda status: status.task_failure)
        assert status.status == "running"
        assert str(status.task_failure) == "LookupError: a bug of ours"
        assert status.task_attempt > 1
        with pytest.raises(NoAnswer, match="failing: LookupError: a bug of ours"):
            await view(client, started.order, patience=1)


async def test_an_activity_that_the_worker_lacks_shows(client: Client) -> None:
    """It is retried for as long as nobody has it, and people must be able to see why."""
    event, queue = accepted(id=uuid.uuid4().hex, data__note="act"), some_queue()
    started = await start_order(client, event, DEFINITION, task_queue=queue)
    async with scripted_worker(client, queue):
        status = await status_when(client, started.order, lambda status: any(act.failure for act in status.pending))
        (pending,) = status.pending
        assert (pending.activity, pending.failure_type) == ("act_unheard_of", "NotFoundError")
        assert "act_otherwise" in str(pending.failure)
        await client.get_workflow_handle(started.order).terminate()


async def test_orders_are_listed_by_stage(client: Client) -> None:
    """As Temporal's visibility has it; other workflows are left out."""
    before = datetime.now(UTC) - timedelta(minutes=1)
    started = await start_order(client, order_event(), DEFINITION)
    other = await client.start_workflow("SomethingElse", id=uuid.uuid4().hex, task_queue=some_queue())
    summary = await listed(client, started.order)
    assert (summary.stage, summary.reason, summary.run_id) == ("running", None, started.run_id)
    assert (summary.status, summary.closed_at) == ("running", None)
    assert before < summary.started_at
    assert other.id not in [found.order async for found in list_orders(client)]
    assert started.order in [found.order async for found in list_orders(client, stage=Stage.RUNNING)]
    assert started.order not in [found.order async for found in list_orders(client, stage=Stage.COMPLETED)]
    assert len([found async for found in list_orders(client, limit=1)]) == 1


async def test_asking_for_a_stage_before_any_was_registered_says_so(fresh: Client) -> None:
    """T41: with the command that registers them."""
    with pytest.raises(InvalidSettings, match="search-attribute create"):
        [found async for found in list_orders(fresh, stage=Stage.RUNNING)]


async def test_a_server_that_went_away_is_said_to_be_unreachable(tmp_path: Path) -> None:
    """In the middle of the work, too."""
    async with DevServer(tmp_path) as server:
        client = await connect(address=server.address, use_profile=False)
        started = await start_order(client, order_event(), DEFINITION)
    with pytest.raises((ServerUnreachable, NoAnswer)):
        await view(client, started.order, patience=1)
