"""A door to measure: its process, with a Temporal server of its own."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from orderflow.callers import sender_secret
from orderflow.client import connect
from orderflow.client.search_attributes import ensure_search_attributes
from orderflow.embedded import EmbeddedServer, find_temporal
from orderflow.settings import Settings, child_environment
from orderflow.webhooks import SigningSecret

_WITHIN = 60.0


class MeasuredDoor:
    """A running door at `url`; its callers sign with `secret`."""

    def __init__(self, process: Process, url: str, secret: SigningSecret, temporal_pid: int) -> None:
        self.url = url
        self.secret = secret
        self.pid = process.pid
        self.temporal_pid = temporal_pid
        self._process = process

    async def ask(self, do: str, **given: object) -> dict[str, float]:
        """Give one command to the process (`bench.door_process`), and its answer."""
        return await _ask(self._process, json.dumps({"do": do, **given}))

    async def cpu(self) -> float:
        """The seconds of CPU that its process has used up to now."""
        return (await self.ask("cpu"))["cpu"]


@asynccontextmanager
async def measured_door(folder: Path, ledger_url: str) -> AsyncIterator[MeasuredDoor]:
    """Run a door with its ledger at `ledger_url` and no worker; all of it ends with the context."""
    settings = Settings(state_dir=folder, ledger_url=ledger_url, intake_backlog_limit=0, log_format="json")
    async with EmbeddedServer(binary=find_temporal(), log=folder / "temporal.log") as server:
        await ensure_search_attributes(await connect(address=server.address, namespace="default", use_profile=False))
        with (folder / "door.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "bench.door_process"),
                cwd=Path(__file__).parents[1],
                env=child_environment(settings, temporal_address=server.address),
                stdin=PIPE,
                stdout=PIPE,
                stderr=log,
            )
        try:
            opened: dict[str, Any] = await _ask(process)
            yield MeasuredDoor(process, opened["url"], sender_secret(settings), server.pid or 0)
        finally:
            await _end(process)


async def _ask(process: Process, command: str = "") -> dict[str, Any]:
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("it was started without pipes")
    if command:
        process.stdin.write(command.encode() + b"\n")
    async with asyncio.timeout(_WITHIN):
        line = await process.stdout.readline()
    if not line:
        raise RuntimeError("the process of the door has ended; its last words are in its log")
    answer: dict[str, Any] = json.loads(line)
    return answer


async def _end(process: Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(_WITHIN):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
