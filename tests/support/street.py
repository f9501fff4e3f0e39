"""The street before the door: four callers, the file that admits them, and the books of the house behind it."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from orderflow.embedded import EmbeddedServer
from tests.support.door import Door, open_door
from tests.support.ledger import LedgerDatabase
from tests.support.senders import Sender, new_secret, public_key, write_json

TYPE: Final = "dev.orderflow.order.placed.v1"
AGES_AGO: Final = "2020-01-01T00:00:00Z"
IN_AGES: Final = "2100-01-01T00:00:00Z"
NO_LIMIT: Final = 2**53 - 1

PATIENT: Final[Mapping[str, str]] = MappingProxyType(
    {"ORDERFLOW_INTAKE_BACKLOG_LIMIT": "3600", "ORDERFLOW_TASK_QUEUE": "nobody-works"}
)
"""The environment of a door behind which nobody works, and which stays open all the same."""

SOURCES: Final = (
    *("/a", "/a::b", "ab", "a", "/a,", "/a%00", "/a/b", "/ids"),
    *("/orders", "/orders/", "/Orders", "/%6Frders", "/./orders", "urn:uuid:6e8bc430-9c3a-11d9-9669-0800200c9a66"),
    *("https://ex.com/a?b#c", "//host/x", "?q", "#f"),
)
"""Where events of `anyone` come from."""


@dataclass(frozen=True)
class Street:
    """Who may send to a door, what they sign with, and the ledger in which it writes them down.

    `shop` has a new secret, an old one that is still good, and a retired one; `market` and `kiosk` may do less, and
    `kiosk` signs with Ed25519. `anyone` sends from any of `SOURCES`.
    """

    folder: Path
    ledger_url: str = ""
    shop: Sender = field(default_factory=lambda: Sender("shop", "/shop"))
    market: Sender = field(default_factory=lambda: Sender("market", "/market"))
    kiosk: Sender = field(default_factory=lambda: Sender("kiosk", "/kiosk", Ed25519PrivateKey.generate()))
    anyone: Sender = field(default_factory=lambda: Sender("anyone", "/ids"))
    old_secret: str = field(repr=False, default_factory=new_secret)
    retired_secret: str = field(repr=False, default_factory=new_secret)

    @property
    def callers_file(self) -> Path:
        """The file that admits them."""
        return self.folder / "callers.json"

    @property
    def environment(self) -> Mapping[str, str]:
        """Settings of a door on this street; the secret of `market` is one of them."""
        return {
            "ORDERFLOW_CALLERS_FILE": str(self.callers_file),
            "ORDERFLOW_LEDGER_URL": self.ledger_url,
            "MARKET_SECRET": str(self.market.secret),
        }

    def caller(self, name: str) -> Sender:
        """One of them, by name."""
        return {each.name: each for each in (self.shop, self.market, self.kiosk, self.anyone)}[name]

    async def run(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a statement in the door's ledger, past the door."""
        database = LedgerDatabase(self.ledger_url or f"sqlite:///{self.folder / 'ledger.db'}")
        try:
            return database.run(sql)
        finally:
            await database.aclose()

    async def events(self) -> int:
        """How many events the ledger has."""
        return int((await self.run("SELECT count(*) FROM events"))[0][0])

    def admit(self, *more: Mapping[str, Any]) -> None:
        """Write the callers file and the secrets that it names, anew or for the first time."""
        write_json(self.callers_file, {"callers": [*self.callers(), *more]})

    def callers(self) -> list[dict[str, Any]]:
        """What stands in the callers file; the secrets that it names are written."""
        return [self._shop(), self._market(), self._kiosk(), self._anyone()]

    def kept(self, name: str, secret: str) -> dict[str, str]:
        """Keep a secret in a file of its own, and give its place for the callers file."""
        path = self.folder / "secrets" / name
        path.parent.mkdir(exist_ok=True, parents=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.write(descriptor, secret.encode())
        os.close(descriptor)
        return {"file": f"secrets/{name}"}

    def _shop(self) -> dict[str, Any]:
        secrets = [
            self.kept("shop.new", str(self.shop.secret)),
            self.kept("shop.old", self.old_secret) | {"until": IN_AGES},
            self.kept("shop.retired", self.retired_secret) | {"until": AGES_AGO},
        ]
        limits = dict.fromkeys(("EUR", "JPY", "KWD", "USD"), NO_LIMIT)
        return self._entry(self.shop, sources=["/shop"], limits=limits) | {"secrets": secrets}

    def _market(self) -> dict[str, Any]:
        entry = self._entry(self.market, sources=["/market"], limits={"EUR": 5000})
        return entry | {"secrets": [{"env": "MARKET_SECRET"}]}

    def _kiosk(self) -> dict[str, Any]:
        entry = self._entry(self.kiosk, sources=["/kiosk"], limits={"EUR": NO_LIMIT})
        return entry | {"public_keys": [{"key": public_key(self.kiosk)}]}

    def _anyone(self) -> dict[str, Any]:
        entry = self._entry(self.anyone, sources=list(SOURCES), limits={"EUR": NO_LIMIT})
        return entry | {"secrets": [self.kept("anyone", str(self.anyone.secret))]}

    def _entry(self, sender: Sender, sources: list[str], limits: Mapping[str, int]) -> dict[str, Any]:
        token = self.kept(f"{sender.name}.token", sender.token)
        return {"name": sender.name, "tokens": [token], "sources": sources, "types": [TYPE], "limits": limits}


@asynccontextmanager
async def door_on(street: Street, server: EmbeddedServer, name: str = "door", **settings: str) -> AsyncIterator[Door]:
    """A door on this street to a Temporal; `settings` are further ones, by the names of `orderflow.settings`.

    Nobody works behind it unless the settings name a task queue.
    """
    variables = {f"ORDERFLOW_{setting.upper()}": value for setting, value in settings.items()}
    environment = {**street.environment, **PATIENT, **variables, "TEMPORAL_ADDRESS": server.address}
    async with open_door(street.folder, environment, name=name) as door:
        yield door
