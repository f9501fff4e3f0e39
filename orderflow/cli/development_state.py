"""The state of `dev` belongs to one `dev`: a lock, free ports, and nothing left running by one that was killed."""

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from orderflow.domain.errors import InvalidInput
from orderflow.embedded import HOST
from orderflow.settings import Settings


@dataclass(frozen=True)
class Resident:
    """A process over the state, and its port if it has one: a pid alone may be another process's by now."""

    name: str
    pid: int
    port: int | None


@contextmanager
def alone(settings: Settings) -> Iterator[None]:
    """Hold the state for this `dev` alone: two servers over one database would damage it.

    Raises:
        InvalidInput: if another `dev` has it, or what a killed one left does, or if it cannot be written.
    """
    try:
        settings.state_dir.mkdir(parents=True, exist_ok=True)
        with FileLock(settings.state_dir / "dev.lock", timeout=0):
            _refuse_orphans(settings)
            yield
    except Timeout:
        raise InvalidInput(f"another `orderflow dev` runs over {settings.state_dir}; stop it first") from None
    except OSError as error:
        message = f"ORDERFLOW_STATE_DIR: {settings.state_dir} cannot be written ({error.strerror})"
        raise InvalidInput(f"{message}; name a folder of yours") from None


@contextmanager
def recorded(settings: Settings, residents: list[Resident]) -> Iterator[None]:
    """Leave a note of who runs over the state, for as long as they do: a `dev` that is killed cannot stop them."""
    lines = [f"{resident.name} {resident.pid} {resident.port or 0}\n" for resident in residents]
    _record(settings).write_text("".join(lines), encoding="ascii")
    try:
        yield
    finally:
        _record(settings).unlink(missing_ok=True)


def require_free(ports: Mapping[str, int]) -> None:
    """Refuse ports, by their flags, that are taken or given twice. Raises `InvalidInput` naming the flag."""
    for flag, port in ports.items():
        try:
            _bind(port)
        except OSError as error:
            message = f"port {port} cannot be listened on ({error.strerror})"
            raise InvalidInput(f"{message}; stop what is there, or choose another with {flag}") from None
        if twice := [other for other in ports if other != flag and ports[other] == port]:
            raise InvalidInput(f"{flag} and {twice[0]} are both {port}; choose another for one of them")


def _refuse_orphans(settings: Settings) -> None:
    left = [resident for resident in _residents(settings) if _lives(resident.pid)]
    if any(resident.port is not None and not _is_free(resident.port) for resident in left):
        who = ", ".join(f"{resident.name} (pid {resident.pid})" for resident in left)
        pids = " ".join(str(resident.pid) for resident in left)
        raise InvalidInput(
            f"a killed `orderflow dev` left {who} running over {settings.state_dir}; stop that first: kill {pids}"
        )


def _residents(settings: Settings) -> list[Resident]:
    try:
        lines = [line.split() for line in _record(settings).read_text(encoding="ascii").splitlines()]
        return [Resident(name, int(pid), int(port) or None) for name, pid, port in lines]
    except (FileNotFoundError, ValueError):  # none, or cut short by a crash of the machine
        return []


def _record(settings: Settings) -> Path:
    return settings.state_dir / "dev.pids"


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        return True
    return True


def _is_free(port: int) -> bool:
    try:
        _bind(port)
    except OSError:
        return False
    return True


def _bind(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((HOST, port))
