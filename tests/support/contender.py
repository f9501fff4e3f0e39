"""One of several processes on one ledger: `python -m tests.support.contender LEDGER_URL LOG ORDER...`.

It says "ready", waits for a line, and charges every order through a store of its own. With the log `-` it claims them
instead, says "held", and holds them.
"""

import asyncio
import os
import sys
from datetime import datetime, timedelta
from pathlib import Path

from orderflow.backends import open_ledger
from orderflow.domain.effects import Absent, Act, Capabilities, Done, Found, Handle, Listed, Performed
from orderflow.ledger import EffectLedger
from orderflow.ledger.effects import EffectStore
from orderflow.settings import Settings
from tests.support.ledger import LONG, charge

HELD = timedelta(seconds=1)
"""How long a claim outlives a holder that was killed."""


class FileBank:
    """Charges each time it is asked and writes a line to a log that all processes share."""

    capabilities = Capabilities(key_horizon=None)

    def __init__(self, log: Path) -> None:
        self._log = log

    async def perform(self, act: Act) -> Performed:
        descriptor = os.open(self._log, os.O_WRONLY | os.O_APPEND)
        os.write(descriptor, f"{act.key}\n".encode())
        os.close(descriptor)
        return Done(reference=act.key, amount_minor=act.amount_minor)

    async def lookup(self, act: Act, by: Handle = Handle.KEY) -> Found:
        charged = act.key in self._log.read_text(encoding="utf-8").splitlines()
        return Done(reference=act.key, amount_minor=act.amount_minor) if charged else Absent()

    async def undo(self, undo: Act, of: Act) -> Performed:
        raise NotImplementedError

    async def list(self, since: datetime) -> list[Listed] | None:
        return None

    async def aclose(self) -> None:
        return None


async def contend(ledger: EffectLedger, log: Path, orders: list[str]) -> None:
    """Charge every order."""
    store = EffectStore(ledger, poll_interval=0.03)
    bank = FileBank(log)
    patience = timedelta(seconds=60)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    for order in orders:
        await store.perform(charge(order), bank, holder=str(os.getpid()), lease=LONG, patience=patience)


async def hold(ledger: EffectLedger, orders: list[str]) -> None:
    """Claim every order, and stay."""
    for order in orders:
        await ledger.claim(charge(order), holder=str(os.getpid()), lease=HELD)
    print("held", flush=True)
    await asyncio.Event().wait()


async def main(url: str, log: str, *orders: str) -> None:
    """Open the ledger and do what is asked for."""
    ledger = await open_ledger(Settings(ledger_url=url, ledger_connections=2))
    await (hold(ledger, [*orders]) if log == "-" else contend(ledger, Path(log), [*orders]))
    await ledger.aclose()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
