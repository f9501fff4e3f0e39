"""With payload keys, Temporal keeps nothing of an order in clear, and orders go on as before."""

import asyncio
import base64
import json
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowFailureError, WorkflowHistory
from temporalio.exceptions import ApplicationError
from temporalio.worker import Replayer

from orderflow.client import (
    address_of,
    codec_of,
    data_converter,
    order_status,
    placed_event,
    signal_command,
    start_command,
)
from orderflow.client.orders import NoAnswer, view
from orderflow.domain.errors import PayloadKeyMissing
from orderflow.domain.orders import Stage
from orderflow.workflows import OrderWorkflow
from tests.replay import endings
from tests.support.command_line import in_a_shell
from tests.support.confidential import canary_event, kept_by, key_set, keyed, keyed_client, leaks, one_of
from tests.support.observing import events_of, eventually
from tests.support.servers import DevServer, client_of
from tests.support.shop import Order, Shop, check_orders, open_shop, order_of, quick

KEYS = key_set("a", "b")


@asynccontextmanager
async def shop_of(client: Client, folder: Path) -> AsyncIterator[Shop]:
    """A shop with a running worker of `client`."""
    async with open_shop(client, folder, change=quick) as shop, shop.worker() as shop.running:
        yield shop


def under(order: Order, client: Client) -> None:
    """Go on with an order, and its shop, as `client`."""
    order.shop.client = client
    order.handle = client.get_workflow_handle_for(OrderWorkflow.run, order.id)


def key_ids_in(history: WorkflowHistory) -> set[str]:
    """The ids of the keys that a history needs."""
    found = re.findall(r'"encryption-key-id": *"([^"]+)"', history.to_json())
    return {base64.b64decode(text).decode() for text in found}


async def replay(history: WorkflowHistory, raw: bytes) -> None:
    """Replay with these keys."""
    replayer = Replayer(workflows=[OrderWorkflow], data_converter=data_converter(keyed(raw)))
    async with asyncio.timeout(30):
        await replayer.replay_workflow(history)


def test_a_canary_is_found_in_clear_and_in_base64_at_any_offset() -> None:
    """T46: the search itself can see a leak."""
    import base64

    assert leaks(b"xx canary_note yy") == ["canary_note"]
    for before in range(4):
        assert leaks(base64.b64encode(b"z" * before + b"canary_note and more")) == ["canary_note"], before
    assert leaks(b"nothing") == []


async def test_nothing_of_an_order_stands_outside_encrypted_payloads_whatever_its_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """T42, T46: the server's file, exported histories, lists and logs hold no canary, in clear or in base64."""
    monkeypatch.setattr(endings, "order_event", canary_event)
    caplog.set_level(logging.INFO)
    database = tmp_path / "server" / "temporal.db"
    async with DevServer(tmp_path, database=database) as server:
        client = await keyed_client(server, KEYS)
        async with shop_of(client, tmp_path) as shop:
            original = shop.start

            async def start(event: object = None, *rest: object, **options: object) -> Order:
                return await original(event or canary_event(), *rest, **options)  # type: ignore[arg-type]

            monkeypatch.setattr(shop, "start", start)
            for ending in endings.ENDINGS.values():
                await ending(shop)
            histories = [(await order.handle.fetch_history()).to_json() for order in shop.orders]
            listed = [str(found.raw_info) async for found in client.list_workflows()]
            described = [str((await order.handle.describe()).raw_description) for order in shop.orders]
        kept = kept_by(database)
    assert len(histories) == len(endings.ENDINGS)
    assert b"binary/encrypted" in kept
    assert leaks(kept) == []
    assert leaks("".join([*histories, *listed, *described]).encode()) == []
    assert leaks((tmp_path / "temporal.log").read_bytes()) == []
    assert leaks(caplog.text.encode()) == []


async def test_keys_rotate_without_a_break_and_a_dropped_one_is_named(tmp_path: Path) -> None:
    """T47: start with A, add B, finish, replay; drop A: whoever reads a history under it is told which key it needs."""
    only_a, only_b = one_of(KEYS, "a"), one_of(KEYS, "b")
    async with DevServer(tmp_path) as server:
        client = await keyed_client(server, only_a)
        async with open_shop(client, tmp_path, change=quick) as shop:
            async with shop.worker():
                order = await shop.start(canary_event())
                await order.until(Stage.AWAITING_APPROVAL)
            under(order, await keyed_client(server, KEYS))
            async with shop.worker():
                await order.approve()
                await order.until(Stage.COMPLETED)
                await check_orders(shop)
            history = await order.handle.fetch_history()
            assert key_ids_in(history) == {"a", "b"}
            await replay(history, KEYS)
            with pytest.raises(Exception, match=r"encrypted under the key a, which is missing here \(only b\)"):
                await replay(history, only_b)
            under(order, without_a := await keyed_client(server, only_b))
            with pytest.raises(PayloadKeyMissing, match="under the key a"):
                await placed_event(without_a, order.id)
            async with shop.worker():
                later = await shop.start(canary_event())
                await later.approve()
                await later.until(Stage.COMPLETED)
            assert key_ids_in(await later.handle.fetch_history()) == {"b"}


async def test_an_order_whose_key_is_missing_waits_and_goes_on_when_it_is_back(tmp_path: Path) -> None:
    """T47: nothing fails, `show` names the key, also to those who have none."""
    async with DevServer(tmp_path) as server:
        both = await keyed_client(server, one_of(KEYS, "a"))
        async with open_shop(both, tmp_path, change=quick) as shop:
            order = await shop.start(canary_event())
            for client in (await keyed_client(server, one_of(KEYS, "b")), await client_of(server)):
                shop.client = client
                async with shop.worker():

                    async def failing(asked: Client = client) -> object:
                        return (await order_status(asked, order.id)).task_failure

                    assert "is encrypted under the key a, which is missing here" in str(await eventually(failing))
                    with pytest.raises(NoAnswer, match="under the key a"):
                        await view(client, order.id, patience=1)
            shop.client = both
            async with shop.worker():
                await order.approve()
                await order.until(Stage.COMPLETED)


async def test_a_message_that_is_not_encrypted_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    """T47, T54: recorded like any other, by signal and by update; also one that was taken from another order."""
    async with DevServer(tmp_path) as server:
        plain = await client_of(server)
        async with shop_of(await keyed_client(server, KEYS), tmp_path) as shop:
            order = await shop.start(canary_event())
            message = {"approval": await order.token()}
            await plain.get_workflow_handle(order.id).signal("approve", message)
            other = await shop.start(canary_event())
            [moved] = await shop.client.data_converter.encode([message])
            await order.handle.signal("approve", moved)
            seen = await order.when(lambda view: view.refused_total == 2)
            assert [refused.reason for refused in seen.refusals] == ["malformed", "malformed"]
            await order.approve()
            await other.approve()
            await order.until(Stage.COMPLETED)
            await other.until(Stage.COMPLETED)
            await check_orders(shop)


async def test_an_older_order_goes_on_when_what_is_not_encrypted_may_be_read(tmp_path: Path) -> None:
    """T47: until then it waits and says what is missing; nothing of it fails."""
    async with DevServer(tmp_path) as server, open_shop(await client_of(server), tmp_path, change=quick) as shop:
        order = await shop.start(canary_event())
        under(order, refusing := await keyed_client(server, KEYS))
        async with shop.worker():

            async def failing() -> object:
                return (await order_status(refusing, order.id)).task_failure

            assert "ORDERFLOW_PAYLOAD_PLAINTEXT=read" in str(await eventually(failing))
        under(order, await keyed_client(server, KEYS, plaintext="read"))
        async with shop.worker():
            await order.approve()
            await order.until(Stage.COMPLETED)
            order.exempt.add("I-5")  # its workflow task did fail
            await check_orders(shop)


async def test_the_details_of_failures_come_back_encrypted_and_replay(tmp_path: Path) -> None:
    """T31, T46: an activity's details decide what follows; message, stack trace and details are encrypted."""
    async with DevServer(tmp_path) as server, shop_of(await keyed_client(server, KEYS), tmp_path) as shop:
        order = await shop.start(canary_event())
        shop.fault("decline", "charge", order.id, code="canary_note")
        await order.approve()
        with pytest.raises(WorkflowFailureError) as ended:
            await order.result()
        failed = [e for e in await events_of(order.handle) if e.HasField("activity_task_failed_event_attributes")]
        history = await order.handle.fetch_history()
    cause = ended.value.cause
    assert isinstance(cause, ApplicationError)
    assert cause.message == "failed_compensated: declined (charge: Declined: canary_note)"
    assert leaks(history.to_json().encode()) == []
    failure = failed[0].activity_task_failed_event_attributes.failure
    assert failure.message == "Encoded failure"
    assert failure.stack_trace == ""
    assert failure.application_failure_info.type == "Declined"
    assert failure.application_failure_info.details.payloads[0].metadata["encoding"] == b"binary/encrypted"
    last = history.events[-1]
    assert last.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED
    assert last.workflow_execution_failed_event_attributes.failure.message == "Encoded failure"
    await replay(WorkflowHistory.from_json(order.id, json.loads(history.to_json())), KEYS)


async def test_the_largest_order_fits_with_the_codec_on(tmp_path: Path) -> None:
    """T43: an event at the door's cap in bytes, each of its texts at the profile's own limits."""
    items = [{"sku": f"{i:04}" + "\U0001f9c0" * 252, "quantity": 1, "unit_price_minor": 1} for i in range(100)]
    event = canary_event(items=items, total_minor=100, note="\U0001f9c0" * 1000, order_id="o" * 256)
    assert len(event.model_dump_json().encode()) > 100_000
    async with DevServer(tmp_path) as server, shop_of(await keyed_client(server, KEYS), tmp_path) as shop:
        order = await shop.start(event)
        await order.approve()
        await order.until(Stage.COMPLETED)
        await check_orders(shop)


async def test_printed_commands_carry_encrypted_input(tmp_path: Path) -> None:
    """T47: an order is started and approved with Temporal's own CLI; nothing is taken in clear for that."""
    async with DevServer(tmp_path) as server, shop_of(await keyed_client(server, KEYS), tmp_path) as shop:
        event, client = canary_event(), shop.client
        target = {"address": address_of(client), "namespace": client.namespace}
        start = start_command(event, shop.definition, codec=codec_of(client), task_queue=shop.task_queue, **target)
        await asyncio.to_thread(in_a_shell, start)
        handle = client.get_workflow_handle_for(OrderWorkflow.run, order_of(event))
        order = Order(shop, handle, event, shop.definition)
        shop.orders.append(order)
        approve = signal_command(order.id, await order.token(), codec=codec_of(client), **target)
        await asyncio.to_thread(in_a_shell, approve)
        await order.until(Stage.COMPLETED)
        await check_orders(shop)
    assert leaks((start + approve).encode()) == []
