"""Record the corpus anew: one redacted history per ending, from a real dev server.

    python -m tests.replay.record [ENDING …]

Only for a change that is meant to break replay; otherwise guard the change with `workflow.patched` and keep the corpus.
"""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from orderflow.client import connect, ensure_search_attributes
from orderflow.history.files import write
from orderflow.history.redacting import Redaction
from tests.replay.endings import ENDINGS
from tests.support.servers import DevServer
from tests.support.shop import open_shop, quick

HISTORIES = Path(__file__).parent / "histories"


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
                    history = await order.handle.fetch_history()
                    redaction = Redaction()
                    redaction.meet(history)
                    write(redaction.redact(history), HISTORIES, f"{name}.json")
                    print(f"{name}: {len(history.events)} events")


def recorded() -> Iterator[Path]:
    """Every history of the corpus."""
    return iter(sorted(HISTORIES.glob("*.json")))


if __name__ == "__main__":
    asyncio.run(record(sys.argv[1:] or list(ENDINGS)))
