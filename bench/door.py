"""The real door, as a process over a Temporal of its own, and a sender of good events to it."""

import asyncio
import json
import sys
import uuid
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2

from orderflow.callers import sender_secret
from orderflow.embedded import HOST, EmbeddedServer, find_temporal, free_port
from orderflow.settings import Settings, child_environment
from orderflow.webhooks import signed_headers
from tests.order_events import event

_READY_WITHIN = 60.0
_NO_LIMIT = 0


@dataclass(frozen=True)
class Running:
    """A door that is ready; `deliver` sends one new event and sees that it is accepted."""

    url: str
    pid: int
    deliver: Callable[[], Awaitable[None]]


@asynccontextmanager
async def running_door() -> AsyncIterator[Running]:
    """Start Temporal and a door, without a worker: orders are started and stay where they are. Nothing is left."""
    url, binary = f"http://{HOST}:{(port := free_port())}", find_temporal()
    with TemporaryDirectory(prefix="orderflow-bench-") as name:
        settings = Settings(state_dir=Path(name), ingress_url=url, intake_backlog_limit=_NO_LIMIT, log_format="json")
        async with EmbeddedServer(binary=binary, log=Path(name) / "temporal.log") as server:
            door = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "orderflow.ingress", "--port", str(port)),
                env=child_environment(settings, temporal_address=server.address),
                stdin=DEVNULL,
                stdout=DEVNULL,
                stderr=DEVNULL,
            )
            try:
                async with httpx2.AsyncClient(base_url=url, trust_env=False, timeout=_READY_WITHIN) as client:
                    await _until_ready(client)
                    yield Running(url, door.pid, _sender(client, settings))
            finally:
                door.terminate()
                await door.wait()


def _sender(client: httpx2.AsyncClient, settings: Settings) -> Callable[[], Awaitable[None]]:
    secret = sender_secret(settings)

    async def deliver() -> None:
        body = json.dumps(event(id=(new := uuid.uuid4().hex))).encode()
        headers = signed_headers(secret, new, body, datetime.now(UTC))
        given = {**headers, "content-type": "application/cloudevents+json"}
        answer = await client.post("/v1/events", content=body, headers=given)
        if answer.status_code != 202:
            raise RuntimeError(f"a good delivery was answered {answer.status_code}: {answer.text}")

    return deliver


async def _until_ready(client: httpx2.AsyncClient) -> None:
    async with asyncio.timeout(_READY_WITHIN):
        while True:
            try:
                if (await client.get("/readyz")).is_success:
                    return
            except httpx2.HTTPError:  # it does not listen yet
                pass
            await asyncio.sleep(0.1)
