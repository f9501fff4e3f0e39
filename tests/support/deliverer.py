"""One of several doors on one ledger: `python -m tests.support.deliverer LEDGER_URL`.

It says "ready", waits for a line with a JSON list of deliveries, takes them all in at once, and says what came of each.
"""

import asyncio
import json
import sys

from orderflow.backends import open_ledger
from orderflow.ledger.events import Delivery
from orderflow.settings import Settings


async def main(url: str) -> None:
    """Open the ledger, and take in what is delivered."""
    ledger = await open_ledger(Settings(ledger_url=url, ledger_connections=4))
    print("ready", flush=True)
    delivered = json.loads(await asyncio.to_thread(sys.stdin.readline))
    print(json.dumps(await asyncio.gather(*(ledger.receive(Delivery(**one)) for one in delivered))))
    await ledger.aclose()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
