"""Record the corpus anew: one history per ending, from a real dev server, without the names of this machine.

    python -m tests.replay.record [ENDING …]

Only for a change that is meant to break replay; otherwise guard the change with `workflow.patched` and keep the corpus.
"""

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from orderflow.client import connect, ensure_search_attributes
from tests.replay.endings import ENDINGS
from tests.support.servers import DevServer
from tests.support.shop import open_shop, quick

HISTORIES = Path(__file__).parent / "histories"

_OF_A_MACHINE = frozenset({"identity", "binaryChecksum", "workerInstanceKey", "hostName", "stackTrace"})


async def record(names: list[str]) -> None:
    """Bring one order to each of these endings and write its history down."""
    with TemporaryDirectory() as folder:
        async with DevServer(Path(folder)) as server:
            client = await connect(address=server.address, namespace="default", use_profile=False)
            await ensure_search_attributes(client)
            async with open_shop(client, Path(folder), change=quick) as shop, shop.worker():
                for name in names:
                    order = await ENDINGS[name](shop)
                    if not (await order.view()).standing:
                        await order.ending()
                    history = json.loads((await order.handle.fetch_history()).to_json())
                    text = json.dumps({"workflowId": order.id, **anonymous(history)}, indent=1, sort_keys=True)
                    (HISTORIES / f"{name}.json").write_text(text + "\n")
                    print(f"{name}: {len(history['events'])} events")


def anonymous(value: Any) -> Any:
    """The same history without who ran it."""
    if isinstance(value, dict):
        return {key: "test" if key in _OF_A_MACHINE else anonymous(part) for key, part in value.items()}
    return [anonymous(part) for part in value] if isinstance(value, list) else value


def recorded() -> Iterator[Path]:
    """Every history of the corpus."""
    return iter(sorted(HISTORIES.glob("*.json")))


if __name__ == "__main__":
    asyncio.run(record(sys.argv[1:] or list(ENDINGS)))
