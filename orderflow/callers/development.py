"""The development caller: its file, its secret and its bearer token, made on first use."""

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from filelock import FileLock

from orderflow.domain.callers import EVENT_TYPES
from orderflow.domain.errors import InvalidInput, InvalidSettings
from orderflow.private_files import create_private
from orderflow.settings import Settings
from orderflow.webhooks import SigningSecret, new_secret, read_secret

DEVELOPMENT_CALLER: Final = "shop"
CALLERS_FILE: Final = "callers.json"
"""What the development caller's file is called in its folder."""

DEVELOPMENT_SOURCES: Final = ("/shop", "/shop/app", "https://shop.example.com")
"""What the development caller may name as the source of an event."""

_SECRET: Final = f"{DEVELOPMENT_CALLER}.whsec"
_TOKEN: Final = f"{DEVELOPMENT_CALLER}.token"
_MOST: Final = 1_000_000
_DEVELOPMENT_LIMITS: Final = {"EUR": 100 * _MOST, "USD": 100 * _MOST, "JPY": 100 * _MOST, "KWD": 1000 * _MOST}


def development_folder(settings: Settings) -> Path:
    """Where the development caller's file, secret and token lie."""
    return settings.state_dir / "callers"


def ensure_development_caller(folder: Path) -> None:
    """Make the development caller unless it exists; of several processes that start at once, one makes it.

    Raises `InvalidSettings` if it cannot be written.
    """
    file = folder / CALLERS_FILE
    with _locked(file):
        if not file.exists():
            _make_development_caller(folder, file)


def _make_development_caller(folder: Path, file: Path) -> None:
    secret, token, written = folder / _SECRET, folder / _TOKEN, file.with_suffix(".new")
    proof = {"secrets": [{"file": secret.name}], "tokens": [{"file": token.name}]}
    entry = caller_entry(DEVELOPMENT_CALLER, proof, DEVELOPMENT_SOURCES, _DEVELOPMENT_LIMITS)
    text = json.dumps({"callers": [entry]}, indent=2)
    for path, content in ((secret, new_secret()), (token, new_token()), (written, text)):
        path.unlink(missing_ok=True)  # of one who was killed before the end
        write_secret(path, content)
    written.replace(file)  # last: its existence says that the secrets are complete


def new_token() -> str:
    """Make a bearer token."""
    return secrets.token_urlsafe(32)


def caller_entry(
    name: str, proof: Mapping[str, object], sources: Sequence[str], limits: Mapping[str, int]
) -> dict[str, object]:
    """Give what stands in a callers file for a caller; `proof` holds its `secrets`, `public_keys` and `tokens`."""
    return {
        "name": name,
        **proof,
        "sources": list(sources),
        "types": list(EVENT_TYPES),
        "limits": dict(limits),
    }


def write_secret(path: Path, text: str) -> None:
    """Write `text` to a new file that only its owner can read. Raises `InvalidInput` if there is one already."""
    try:
        created = create_private(path)
    except FileExistsError:
        raise InvalidInput(f"{path} exists, and a secret is never overwritten; choose another name") from None
    except OSError as error:
        raise InvalidInput(f"cannot write {path}: {error.strerror}") from None
    with created as file:
        file.write(f"{text}\n".encode("ascii"))


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with FileLock(f"{file}.lock"):
            yield
    except OSError as error:
        message = f"cannot write the development caller to {file.parent} ({error.strerror})"
        raise InvalidSettings(f"{message}; set ORDERFLOW_STATE_DIR to a folder that can be written") from None


def development_secret(folder: Path) -> SigningSecret:
    """Read what the development caller signs with. Raises `InvalidSettings` if there is none; says what to do."""
    path = folder / _SECRET
    try:
        return read_secret(path.read_text("ascii"))
    except (OSError, UnicodeDecodeError, InvalidInput):
        raise InvalidSettings(
            f"ORDERFLOW_CALLER_SECRET is not set, and {path} holds no development secret: `orderflow dev` makes one"
        ) from None
