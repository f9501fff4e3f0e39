"""One of several processes that do the same effects: `python -m tests.support.contender LEDGER LOG ORDER...`."""

import asyncio
import os
import sys
from datetime import datetime, timedelta
from pathlib import Path

from orderflow.domain.effects import Absent, Act, Done, Found, Listed, Performed
from orderflow.ledger.effects import EffectStore
from orderflow.ledger.sqlite import SqliteLedger
from tests.support.ledger import LONG, charge


class FileBank:
    """Charges each time it is asked and writes a line to a log that all processes share."""

    def __init__(self, log: Path) -> None:
        self._log = log

    async def perform(self, act: Act) -> Performed:
        descriptor = os.open(self._log, os.O_WRONLY | os.O_APPEND)
        os.write(descriptor, f"{act.key}\n".encode())
        os.close(descriptor)
        return Done(reference=act.key, amount_minor=act.amount_minor)

    async def lookup(self, act: Act) -> Found:
        charged = act.key in self._log.read_text(encoding="utf-8").splitlines()
        return Done(reference=act.key, amount_minor=act.amount_minor) if charged else Absent()

    async def undo(self, undo: Act, of: Act) -> Performed:
        raise NotImplementedError

    async def list(self, since: datetime) -> list[Listed] | None:
        return None

    async def aclose(self) -> None:
        return None


async def contend(ledger_path: Path, log: Path, orders: list[str]) -> None:
    """Charge every order through a ledger and a store of this process's own."""
    ledger = await SqliteLedger.open(ledger_path)
    store = EffectStore(ledger, poll_interval=0.01)
    bank = FileBank(log)
    patience = timedelta(seconds=60)
    for order in orders:
        await store.perform(charge(order), bank, holder=str(os.getpid()), lease=LONG, patience=patience)
    await ledger.aclose()


if __name__ == "__main__":
    asyncio.run(contend(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
