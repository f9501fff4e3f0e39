"""The development caller: its file, its secret and its bearer token, made on first use."""

import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from filelock import FileLock

from orderflow.domain.callers import EVENT_TYPES
from orderflow.domain.errors import InvalidInput, InvalidSettings
from orderflow.settings import Settings
from orderflow.webhooks import SigningSecret, new_secret, read_secret

DEVELOPMENT_CALLER: Final = "shop"
DEVELOPMENT_SOURCES: Final = ("/shop", "/shop/app", "https://shop.example.com")
"""What the development caller may name as the source of an event."""

_MOST: Final = 1_000_000
_DEVELOPMENT_LIMITS: Final = {"EUR": 100 * _MOST, "USD": 100 * _MOST, "JPY": 100 * _MOST, "KWD": 1000 * _MOST}


def development_folder(settings: Settings) -> Path:
    """Where the development caller's file, secret and token lie."""
    return settings.state_dir / "callers"


def ensure_development_caller(folder: Path) -> None:
    """Make the development caller unless it exists; of several processes that start at once, one makes it.

    Raises `InvalidSettings` if it cannot be written.
    """
    file = folder / "callers.json"
    with _locked(file):
        if file.exists():
            return
        secret, token = (folder / f"{DEVELOPMENT_CALLER}.{kind}" for kind in ("whsec", "token"))
        write_secret(secret, new_secret(), replace=True)
        write_secret(token, secrets.token_urlsafe(32), replace=True)
        entry = caller_entry(DEVELOPMENT_CALLER, DEVELOPMENT_SOURCES, _DEVELOPMENT_LIMITS)
        # last: its existence says that the secrets are complete
        write_secret(file, json.dumps({"callers": [entry]}, indent=2), replace=True)


def caller_entry(name: str, sources: Sequence[str], limits: Mapping[str, int]) -> dict[str, object]:
    """Give what stands in the callers file for a caller whose secret and token lie beside it under its name."""
    return {
        "name": name,
        "secrets": [{"file": f"{name}.whsec"}],
        "tokens": [{"file": f"{name}.token"}],
        "sources": list(sources),
        "types": list(EVENT_TYPES),
        "limits": dict(limits),
    }


def write_secret(path: Path, text: str, *, replace: bool = False) -> None:
    """Write `text` to a file that only its owner can read. Raises `InvalidInput` if there is one, unless `replace`."""
    written = path.with_name(f"{path.name}.{os.getpid()}.new") if replace else path
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise InvalidInput(f"{path} exists, and a secret is never overwritten; choose another name") from None
    except OSError as error:
        raise InvalidInput(f"cannot write {path}: {error.strerror}") from None
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(f"{text}\n")
    if replace:
        written.replace(path)


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with FileLock(f"{file}.lock"):
            yield
    except OSError as error:
        message = f"cannot write the development caller to {file.parent} ({error.strerror})"
        raise InvalidSettings(f"{message}; set ORDERFLOW_STATE_DIR to a folder that can be written") from None


def development_secret(path: Path) -> SigningSecret:
    """Read the secret at `path`. Raises `InvalidSettings` if there is none to use; says what to do."""
    try:
        return read_secret(path.read_text("ascii"))
    except (OSError, UnicodeDecodeError, InvalidInput):
        raise InvalidSettings(
            f"ORDERFLOW_CALLER_SECRET is not set, and {path} holds no development secret: `orderflow dev` makes one"
        ) from None
