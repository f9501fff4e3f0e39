"""`python -m bench.door_process`: the door as it runs in production, in a process that also starts orders bare.

It says the door's address, then reads one command a line and answers each with one line, all of it JSON.
"""

import asyncio
import json
import sys
import time
from typing import Any

from bench.door_parts import Parts
from orderflow.embedded import HOST
from orderflow.ingress.serving import run_ingress
from orderflow.settings import load_settings
from orderflow.telemetry import configure_logging


async def serve() -> None:
    """Run the door until standard input ends."""
    settings = load_settings()
    configure_logging(settings.log_format)
    stop, opened = asyncio.Event(), asyncio.get_running_loop().create_future()
    door = asyncio.create_task(run_ingress(settings, HOST, 0, stop=stop, ready=opened.set_result))
    await asyncio.wait({door, opened}, return_when=asyncio.FIRST_COMPLETED)
    if door.done():
        await door
    _say({"url": opened.result()})
    async with Parts.of(settings) as parts:
        await _obey(parts)
    stop.set()
    await door


async def _obey(parts: Parts) -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        command: dict[str, Any] = json.loads(line)
        match command.pop("do"):
            case "cpu":
                _say({"cpu": time.process_time()})
            case "bare":
                _say(await parts.bare(**command))
            case "parts":
                _say(await parts.alone(**command))


def _say(answer: object) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    asyncio.run(serve())
