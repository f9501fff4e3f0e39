"""The simulator as a server: what it answers to people and to junk, and that it ends and starts again as asked."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from orderflow.domain.effects import Done, Unknown
from orderflow.domain.errors import InvalidSettings
from orderflow.providers.http import Timeouts, open_http_providers
from orderflow.providers.simulated import SimulatedWorld
from orderflow.simulator import run_simulator, serving
from tests.support.providers import act, new_order, seen, within

RUN = """
import sys
from pathlib import Path
from orderflow.simulator import run_simulator

run_simulator("127.0.0.1", 0, Path(sys.argv[1]), lambda url: print(url, flush=True))
print("ended", flush=True)
"""

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of a served world."""
    world = SimulatedWorld(tmp_path_factory.mktemp("served") / "log.jsonl")
    async with serving(world) as url, httpx2.AsyncClient(base_url=url, trust_env=False, timeout=20) as client:
        yield client


@contextmanager
def simulator(path: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A simulator in a process of its own; killed at the end if it still runs."""
    with subprocess.Popen([sys.executable, "-c", RUN, str(path)], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().strip() if process.stdout else "", process
        finally:
            process.kill()


def body(operation: str = "charge") -> dict[str, Any]:
    """An act for a new order, as it is sent."""
    return act(operation, new_order()).model_dump(mode="json")


async def test_it_tells_its_log_its_stock_and_that_it_is_well(client: httpx2.AsyncClient) -> None:
    """What people and scripts look at: `GET /log`, `/stock/{sku}` and `/health`."""
    asked = body("reserve")
    await client.post("/inventory/acts", json=asked, headers={"Idempotency-Key": asked["key"]})

    log = (await client.get("/log")).json()
    stock = (await client.get(f"/stock/sku-{asked['workflow_id']}")).json()

    assert [line["outcome"] for line in log if line["key"] == asked["key"]] == ["done"]
    assert stock == {"sku": f"sku-{asked['workflow_id']}", "available": 998}
    assert (await client.get("/health")).json() == {"status": "ok"}


async def test_faults_and_refunds_by_hand_are_ordered_over_http(client: httpx2.AsyncClient) -> None:
    """A fault strikes as many calls as ordered; money that an operator gave back is gone (M04)."""
    asked = body()
    headers = {"Idempotency-Key": asked["key"]}
    fault = {"kind": "busy", "operation": "charge", "order": asked["workflow_id"], "milliseconds": 2000}
    refund = {"workflow_id": asked["workflow_id"], "amount_minor": 300}

    ordered = await client.post("/faults", json=fault)
    busy, done = [await client.post("/payments/acts", json=asked, headers=headers) for _ in range(2)]
    refunds = [await client.post("/payments/refunds-by-hand", json=refund) for _ in range(4)]

    assert ordered.status_code == 201
    assert (busy.status_code, busy.headers["Retry-After"], done.status_code) == (409, "2", 200)
    assert [refunded.status_code for refunded in refunds] == [201, 201, 201, 400]


async def test_a_reset_over_http_begins_anew(client: httpx2.AsyncClient) -> None:
    """The log holds nothing but the reset."""
    await client.post("/faults", json={"kind": "busy", "operation": "charge"})

    await client.post("/reset")

    assert [line["kind"] for line in (await client.get("/log")).json()] == ["reset"]


@pytest.mark.parametrize(
    ("status", "content", "headers"),
    [
        (415, b"{}", {"Content-Type": "text/plain"}),
        (415, b"{}", {"Content-Encoding": "gzip"} | JSON),
        (413, b" " * 262_145, JSON),
        (400, b"", JSON),
        (400, b"{", JSON),
        (400, b"\xff\xfe{}", JSON),
        (400, b"[" * 100_000, JSON),
        (400, b'{"key":1e999}', JSON),
        (400, b'{"key":NaN}', JSON),
        (400, b'{"key":"a","key":"b"}', JSON),
        (400, b'{"key":"\\ud800"}', JSON),
        (400, b'{"amount_minor":' + b"9" * 5000 + b"}", JSON),
        (400, b"null", JSON),
        (400, b"{}", JSON),
    ],
    ids=lambda value: str(value)[:24],
)
@pytest.mark.parametrize("path", ["/payments/acts", "/payments/undo", "/payments/lookup", "/faults"])
async def test_junk_is_answered_with_a_problem(
    client: httpx2.AsyncClient, path: str, status: int, content: bytes, headers: dict[str, str]
) -> None:
    """Never 5xx, never silence: a problem document that says what to change (W13-W18)."""
    answer = await client.post(path, content=content, headers=headers)

    assert answer.status_code == status
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json()["detail"]


@pytest.mark.parametrize(
    ("changes", "key", "path"),
    [
        ({}, "other", "payments/acts"),
        ({}, None, "payments/acts"),
        ({"provider": "risk"}, "", "payments/acts"),
        ({"amount_minor": "10"}, "", "payments/acts"),
        ({"amount_minor": True}, "", "payments/acts"),
        ({"more": 1}, "", "payments/acts"),
        ({}, "other", "payments/lookup"),
    ],
    ids=str,
)
async def test_an_act_that_contradicts_itself_is_refused(
    client: httpx2.AsyncClient, changes: dict[str, object], key: str | None, path: str
) -> None:
    """The header names the body's key, the path its provider; types are strict. Nothing is done."""
    asked = body() | changes
    headers = {} if key is None else {"Idempotency-Key": key or asked["key"]}

    answer = await client.post(f"/{path}", json=asked, headers=headers)

    assert answer.status_code == 400
    assert answer.json()["detail"].startswith("$.")
    assert asked["key"] not in (await client.get("/log")).text


async def test_a_lookup_by_an_unknown_handle_is_refused(client: httpx2.AsyncClient) -> None:
    """It names the handles that there are (I07)."""
    asked = body()
    answer = await client.post("/payments/lookup?by=name", json=asked, headers={"Idempotency-Key": asked["key"]})
    assert (answer.status_code, "key or merchant_reference" in answer.json()["detail"]) == (400, True)


async def test_an_act_with_two_amounts_is_refused(client: httpx2.AsyncClient) -> None:
    """A member that appears twice means nothing, though each parser would choose one (W14)."""
    asked = body()
    content = json.dumps(asked).removesuffix("}") + ',"amount_minor":1}'

    answer = await client.post("/payments/acts", content=content, headers=JSON | {"Idempotency-Key": asked["key"]})

    assert answer.status_code == 400
    assert "more than once" in answer.json()["detail"]


@pytest.mark.parametrize("path", ["/payments/acts", "/payments/acts?since=now", "/payments/acts?since=2026-01-01"])
async def test_a_list_needs_a_time_with_an_offset(client: httpx2.AsyncClient, path: str) -> None:
    """A time that could mean two moments is refused."""
    assert (await client.get(path)).status_code == 400


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/nothing", 404), ("PUT", "/log", 405)])
async def test_unknown_paths_and_methods_are_problems_too(
    client: httpx2.AsyncClient, method: str, path: str, status: int
) -> None:
    """Every refusal has the same form."""
    answer = await client.request(method, path)

    assert (answer.status_code, answer.json()["status"]) == (status, status)


async def test_a_log_that_cannot_be_written_is_503(tmp_path: Path) -> None:
    """The simulator's own trouble is temporary trouble, and says nothing about the request."""
    world = SimulatedWorld(tmp_path / "log.jsonl")
    world.path.mkdir()

    async with serving(world) as url, httpx2.AsyncClient(base_url=url, trust_env=False) as client:
        answers = [await within(client.get("/log")), await within(client.post("/reset"))]

    assert [answer.status_code for answer in answers] == [503, 503]


def test_an_address_in_use_is_one_clear_line(tmp_path: Path) -> None:
    """What cannot be listened on is named before anything starts."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InvalidSettings, match=f"127.0.0.1 port {port}.*choose another port"):
            run_simulator("127.0.0.1", port, tmp_path / "log.jsonl")


async def test_sigterm_ends_it_cleanly_though_a_call_hangs(tmp_path: Path) -> None:
    """It stops at once with exit code 0; what it had done is in the log for its successor."""
    asked = act("charge", new_order())
    world = SimulatedWorld(tmp_path / "log.jsonl")
    with simulator(world.path) as (url, process):
        providers = open_http_providers(url, ["payments"], Timeouts(read=60))
        async with httpx2.AsyncClient(base_url=url, trust_env=False) as client:
            await within(client.post("/faults", json={"kind": "hang", "operation": "charge"}))
        hanging = asyncio.create_task(providers["payments"].perform(asked))
        await seen(lambda: world.net_charged(asked.workflow_id))

        process.send_signal(signal.SIGTERM)
        rest, _ = await within(asyncio.to_thread(process.communicate))

        assert (process.returncode, rest) == (0, "ended\n")
        assert isinstance(await within(hanging), Unknown)
        await providers["payments"].aclose()


async def test_a_killed_simulator_comes_back_with_its_world(tmp_path: Path) -> None:
    """SIGKILL after it charged and before it answered: the next one knows the charge, and there is one (I05)."""
    asked = act("charge", new_order())
    world = SimulatedWorld(tmp_path / "log.jsonl")
    with simulator(world.path) as (url, process):
        providers = open_http_providers(url, ["payments"], Timeouts(read=60))
        async with httpx2.AsyncClient(base_url=url, trust_env=False) as client:
            await within(client.post("/faults", json={"kind": "hang", "operation": "charge"}))
        hanging = asyncio.create_task(providers["payments"].perform(asked))
        await seen(lambda: world.net_charged(asked.workflow_id))
        process.kill()
        assert isinstance(await within(hanging), Unknown)
        await providers["payments"].aclose()

    with simulator(world.path) as (url, _):
        providers = open_http_providers(url, ["payments"], Timeouts(read=60))
        answers = [
            await within(providers["payments"].lookup(asked)),
            await within(providers["payments"].perform(asked)),
        ]
        await providers["payments"].aclose()

    assert [type(answer) for answer in answers] == [Done, Done]
    assert [line["outcome"] for line in world.log() if line["kind"] == "act"] == ["done", "replayed"]
