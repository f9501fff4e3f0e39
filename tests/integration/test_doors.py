"""Whoever reaches the namespace can send anything: it is refused with a reason, whatever it is, and harms nothing."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from orderflow.contracts import APPROVE_SIGNAL, DECIDE_UPDATE, OPERATE_UPDATE
from orderflow.domain.approvals import Refusal
from orderflow.domain.orders import Stage
from tests.support.invariants import check_books
from tests.support.observing import at_stage
from tests.support.processes import TemporalCli
from tests.support.shop import Order, Shop

DOORS: Final = {
    APPROVE_SIGNAL: (("signal",), "approval"),
    DECIDE_UPDATE: (("update", "execute"), "approval"),
    OPERATE_UPDATE: (("update", "execute"), "operation"),
}
"""The verb of Temporal's command line for each door, and the one member of its messages."""


@dataclass(frozen=True)
class Junk:
    """One message: the arguments after its name, the reason why it is refused, its name unless it is the door's own."""

    arguments: tuple[str, ...]
    refusal: Refusal = Refusal.MALFORMED
    name: str | None = None


def _inputs(*inputs: str, **metadata: str) -> tuple[str, ...]:
    given = [part for each in inputs for part in ("--input", each)]
    return (*given, *(part for key, value in metadata.items() for part in ("--input-meta", f"{key}={value}")))


SHAPES: Final = (
    _inputs(),
    _inputs("null"),
    _inputs("[]"),
    _inputs("{}"),
    _inputs("true"),
    _inputs('"approve"'),
    _inputs("1e400"),
    _inputs('{"approval": null}'),
    _inputs('{"approval": ""}'),
    _inputs('{"approval": "a.b.c"}'),
    _inputs('{"approval": "a.b.c", "more": 1}'),
    _inputs('{"approval": "a.b.c", "approval": "a.b.c"}'),
    _inputs('{"approval": {"approval": {"approval": 1}}}'),
    _inputs('"\\ud800"'),
    _inputs("[" * 1000 + "]" * 1000),
    _inputs('{"approval": %s}' % ("9" * 5000)),
    _inputs("{}", "{}"),
    _inputs('{"approval": "a.b.c"}', "null"),
    _inputs("not json", encoding="binary/plain"),
    _inputs("", encoding="binary/null"),
    _inputs("{}", encoding="binary/encrypted"),
    _inputs("{}", encoding="json/protobuf", messageType="no.such.Message"),
    _inputs("\x01", encoding="binary/protobuf"),
    _inputs("{}", encoding="no/such"),
    ("--headers", "approval=1"),
)
"""What is no decision, in every shape that Temporal's command line can send."""

NAMES: Final = (
    "operates",
    "view",
    "run",
    "on_signal",
    "__stack_trace",
    "__temporal_anything",
    "décision 😀",
    "n" * 900,
)
"""What is no door; Temporal's own names are no doors either."""


def junk(door: str, folder: Path) -> list[Junk]:
    """Everything that is sent through one door."""
    large = folder / "large.json"
    large.write_text(json.dumps("x" * 1_000_000))
    verb, member = DOORS[door]
    other = [name for name, (others, _) in DOORS.items() if others != verb]
    return [
        *(Junk(tuple(word.replace("approval", member) for word in shape)) for shape in SHAPES),
        Junk(("--input-file", str(large)), Refusal.TOO_LARGE),
        *(Junk(_inputs('{"approval": "a.b.c"}'), Refusal.UNKNOWN_MESSAGE, name) for name in (*NAMES, *other)),
    ]


@pytest.fixture
async def shop(shop: Shop) -> AsyncIterator[Shop]:
    """A shop with a running worker."""
    async with shop.worker() as shop.running:
        yield shop


async def send(cli: TemporalCli, door: str, order: Order, message: Junk) -> None:
    """Send one message through a door; an update has to answer why it is refused."""
    verb, _ = DOORS[door]
    answer = await cli.json(*verb, "--workflow-id", order.id, "--name", message.name or door, *message.arguments)
    if verb[0] == "update":
        refused = {"accepted": False, "refusal": message.refusal, "stage": "awaiting_approval"}
        assert answer["result"] == refused, message


@pytest.mark.parametrize("door", DOORS)
async def test_no_message_wedges_an_order(door: str, shop: Shop, cli: TemporalCli, tmp_path: Path) -> None:
    """T54: each is recorded as refused, the order still waits, and then a valid approval completes it: one charge."""
    order = await shop.start()
    await at_stage(order.handle, Stage.AWAITING_APPROVAL)
    sent = junk(door, tmp_path)
    for message in sent:
        await send(cli, door, order, message)
    view = await order.when(lambda view: view.refused_total == len(sent))
    (kind, *_), _ = DOORS[door]
    told = [(refused.door, refused.name, refused.reason) for refused in view.refusals]
    assert told == [(kind, (message.name or door)[:64], message.refusal) for message in sent]
    assert view.stage is Stage.AWAITING_APPROVAL
    name = DECIDE_UPDATE if door == OPERATE_UPDATE else door
    token = json.dumps({"approval": await order.token()})
    await cli.json(*DOORS[name][0], "--workflow-id", order.id, "--name", name, "--input", token)
    assert (await order.result()).stage is Stage.COMPLETED
    assert shop.world.net_charged(order.id) == order.event.data.total_minor
    await check_books(await order.books())


async def test_no_query_harms_an_order(shop: Shop, cli: TemporalCli) -> None:
    """An unknown one fails alone; `view` needs no input and minds none."""
    order = await shop.start()
    await at_stage(order.handle, Stage.AWAITING_APPROVAL)
    query = ("query", "--workflow-id", order.id, "--type")
    assert (await cli.workflow(*query, "no_such_query")).code == 1
    for inputs in (_inputs(), _inputs("1"), _inputs("1", "{}"), _inputs("{}", encoding="no/such")):
        answer = await cli.json(*query, "view", *inputs)
        assert answer["queryResult"][0]["stage"] == "awaiting_approval", answer
    await order.approve()
    assert (await order.result()).stage is Stage.COMPLETED
    await check_books(await order.books())
