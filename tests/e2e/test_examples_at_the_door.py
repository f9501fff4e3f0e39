"""The events in `examples/`, sent by `orderflow submit` to a running door with nothing configured."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from temporalio.client import Client

from tests.support.command_line import orderflow, unconfigure
from tests.support.door import Door, open_door
from tests.support.servers import DevServer, client_of
from tests.support.street import PATIENT

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
REFUSED: Final = EXAMPLES / "refused"
ANSWERS: Final[dict[str, dict[str, Any]]] = json.loads((REFUSED / "answers.json").read_text("utf-8"))
EXIT_CODES: Final = {400: 2, 403: 1, 422: 2}


@pytest.fixture(scope="module")
async def quiet_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DevServer]:
    """A dev server that knows no order yet: the examples' identities are everybody's."""
    async with DevServer(tmp_path_factory.mktemp("quiet")) as server:
        await client_of(server)
        yield server


@pytest.fixture(scope="module")
async def shop_door(
    tmp_path_factory: pytest.TempPathFactory, quiet_server: DevServer
) -> AsyncIterator[tuple[Door, Path]]:
    """A door whose only caller is the development caller, and its state folder."""
    folder = tmp_path_factory.mktemp("shop")
    async with open_door(folder, {**PATIENT, "TEMPORAL_ADDRESS": quiet_server.address}) as door:
        yield door, folder


@pytest.fixture(autouse=True)
def _as_a_newcomer(
    shop_door: tuple[Door, Path], quiet_server: DevServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unconfigure(tmp_path, monkeypatch)
    monkeypatch.setenv("TEMPORAL_ADDRESS", quiet_server.address)
    monkeypatch.setenv("ORDERFLOW_INGRESS_URL", shop_door[0].url)
    monkeypatch.setenv("ORDERFLOW_STATE_DIR", str(shop_door[1]))


@pytest.fixture
async def client(quiet_server: DevServer) -> Client:
    """A client of the quiet server."""
    return await client_of(quiet_server)


@pytest.mark.parametrize("file", ANSWERS)
def test_each_bad_example_gets_the_answer_that_is_written_beside_it(file: str) -> None:
    """W13-W18, C01-C08, M01, M02: status, type and JSON path, at the door itself."""
    answer = ANSWERS[file]
    ran = orderflow("submit", REFUSED / file, "--json", "--attempts", "1")
    assert (ran.json["status"], ran.json["type"]) == (answer["status"], answer["type"])
    assert "path" not in answer or answer["path"] in [problem["path"] for problem in ran.error["problems"]]
    assert ran.code == EXIT_CODES[answer["status"]]


async def test_the_good_example_begins_one_order_and_the_conflicting_one_none(client: Client) -> None:
    """I11, W07, issue "must show": 202, then 200 with the same order, then 409; one run of one order in Temporal."""
    first = orderflow("submit", EXAMPLES / "order.json", "--json")
    again = orderflow("submit", EXAMPLES / "order.json", "--json")
    other = orderflow("submit", EXAMPLES / "conflicting-amount.json", "--json")
    assert (first.code, again.code, other.code) == (0, 0, 1)
    assert (first.json["status"], again.json["status"], other.json["status"]) == (202, 200, 409)
    assert again.json["order"] == first.json["order"]
    assert other.json["type"] == "urn:orderflow:problem:conflict"
    history = [event async for event in client.get_workflow_handle(first.json["order"]).fetch_history_events()]
    placed = json.loads(history[0].workflow_execution_started_event_attributes.input.payloads[0].data)
    assert '"total_minor": 3399' in json.dumps(placed)


async def test_a_file_of_examples_is_sorted_out_by_the_door(tmp_path: Path) -> None:
    """Issue: `--jsonl` over new, repeated, conflicting and refused events, 120 of them."""
    order = json.loads((EXAMPLES / "order.json").read_text("utf-8"))
    good = [order | {"id": f"line-{number}"} for number in range(40)]
    wrong = [event | {"data": event["data"] | {"total_minor": 1}} for event in good]
    events = [*good, *good, *wrong]
    (tmp_path / "events.jsonl").write_text("\n".join(map(json.dumps, events)))
    ran = orderflow("submit", "--jsonl", "events.jsonl", "--json")
    summary = json.loads(ran.out.splitlines()[-1])["summary"]
    assert ran.code == 2
    assert (summary["events"], summary["new"], summary["duplicate"]) == (120, 40, 40)
    assert summary["refused"] == {"invalid-order": 40}
