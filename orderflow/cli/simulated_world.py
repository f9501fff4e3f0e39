"""The simulated world that the settings name: its log in a file of this machine, or a simulator's HTTP address."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import httpx2

from orderflow.cli.exits import NotReachable
from orderflow.domain.errors import InvalidInput
from orderflow.providers.simulated import Fault, SimulatedWorld
from orderflow.settings import Settings

Line = dict[str, Any]

TIMEOUT = 10.0


class World(Protocol):
    """What the verbs need of it. Raises `NotReachable`, and `InvalidInput` for what it cannot take."""

    def log(self) -> list[Line]:
        """Everything since the last reset, oldest first."""
        ...

    def add_fault(self, fault: Fault) -> Line:
        """Order a fault."""
        ...

    def reset(self) -> Line:
        """Begin anew."""
        ...


def world_of(settings: Settings) -> World:
    """Give the world behind `providers_url` if that is set, else the one in the state folder."""
    return RemoteWorld(settings.providers_url) if settings.providers_url else LocalWorld(settings)


class LocalWorld:
    """The world in the state folder."""

    def __init__(self, settings: Settings) -> None:
        self._path = settings.simulator_log

    def log(self) -> list[Line]:
        """See `World`; what was never written to is not made by looking at it."""
        if not self._path.exists():
            return []
        with self._opened() as world:
            return world.log()

    def add_fault(self, fault: Fault) -> Line:
        """See `World`."""
        with self._opened() as world:
            return world.add_fault(fault)

    def reset(self) -> Line:
        """See `World`."""
        with self._opened() as world:
            return world.reset()

    @contextmanager
    def _opened(self) -> Iterator[SimulatedWorld]:
        try:
            yield SimulatedWorld(self._path)
        except OSError as error:
            message = f"the simulator's log {self._path} cannot be used ({error.strerror})"
            raise NotReachable(f"{message}; set ORDERFLOW_STATE_DIR to a folder of yours") from None


class RemoteWorld:
    """A simulator at `url`."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    def log(self) -> list[Line]:
        """See `World`."""
        lines: list[Line] = self._ask("GET", "/log")
        return lines

    def add_fault(self, fault: Fault) -> Line:
        """See `World`."""
        line: Line = self._ask("POST", "/faults", fault.model_dump(exclude_none=True))
        return line

    def reset(self) -> Line:
        """See `World`."""
        line: Line = self._ask("POST", "/reset", {})
        return line

    def _ask(self, method: str, path: str, body: Line | None = None) -> Any:
        try:
            answer = httpx2.request(method, self._url + path, json=body, timeout=TIMEOUT)
            document = answer.json()
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
            raise NotReachable(
                f"no simulator answers at {self._url} ({type(error).__name__}); start one with"
                " `orderflow simulator`, or set ORDERFLOW_PROVIDERS_URL"
            ) from None
        if answer.is_success:
            return document
        detail = document.get("detail") if isinstance(document, dict) else None
        message = f"the simulator at {self._url} answered {answer.status_code}: {detail}"
        raise InvalidInput(message) if answer.status_code == 400 else NotReachable(message)
