"""Who may approve: the configured JWK set, or development keys made on first use.

Development keys exist for an orderflow with nothing configured beside a Temporal on this machine, and nowhere else.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from orderflow.domain.errors import InvalidInput, InvalidSettings
from orderflow.settings import Settings, is_loopback
from orderflow.signing import ApproverKey, KeyRegistry

DEVELOPMENT_APPROVERS = (("alice", "finance"), ("bob", "finance"), ("carol", "operator"))
"""Name and role of each development key."""

Warn = Callable[[str], None]


def approver_registry(settings: Settings, address: str, warn: Warn) -> KeyRegistry:
    """Give the keys that decisions are verified with.

    `address` is Temporal's `host:port`; `warn` is told in one sentence whenever development keys are in use.

    Raises:
        InvalidSettings: if the configured set cannot be used, or there is none and Temporal is elsewhere.
    """
    if settings.approvers_file is not None:
        return _read_set(settings.approvers_file)
    if not is_loopback(address):
        raise InvalidSettings(
            f"ORDERFLOW_APPROVERS_FILE is not set and Temporal is at {address}: set it to the JWK set of those who may"
            " approve; `orderflow keys new NAME --role ROLE` makes keys for it"
        )
    set_file = development_set(settings)
    ensure_development_keys(settings.private_keys, set_file)
    names = ", ".join(f"{name} ({role})" for name, role in DEVELOPMENT_APPROVERS)
    warn(f"development keys in use, anyone who reads {settings.private_keys} can approve: {names}")
    return _read_set(set_file)


def approver_key(settings: Settings, name: str) -> ApproverKey:
    """Give the private key of `name`. Raises `InvalidInput` if it cannot be read; says where it should be."""
    return ApproverKey.load(key_file(settings.private_keys, name))


def key_file(folder: Path, name: str) -> Path:
    """Where the private key of `name` lies. Raises `InvalidInput` for a name that would lead out of `folder`."""
    if Path(name).name != name or "\\" in name:
        raise InvalidInput(f"{name!r} is not the name of an approver")
    return folder / f"{name}.json"


def development_set(settings: Settings) -> Path:
    """Where the public halves of the development keys lie."""
    return settings.state_dir / "approvers.json"


def ensure_development_keys(folder: Path, set_file: Path) -> None:
    """Make the development keys unless they exist; of several processes that start at once, one makes them.

    Raises `InvalidSettings` if the set cannot be written, `InvalidInput` if a key cannot, or if one there is damaged.
    """
    with _locked(set_file):
        if not set_file.exists():
            _make_development_keys(folder, set_file)


def publish_key(set_file: Path, key: ApproverKey) -> None:
    """Add the public half of `key` to the JWK set in `set_file`, which is made if there is none.

    Raises `InvalidSettings` if the set there cannot be used, `InvalidInput` if it holds the key already.
    """
    with _locked(set_file):
        registry = _read_set(set_file) if set_file.exists() else KeyRegistry()
        _write_set(set_file, registry.with_added(key.public_jwk()))


@contextmanager
def _locked(set_file: Path) -> Iterator[None]:
    try:
        set_file.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{set_file}.lock"):
            yield
    except OSError as error:
        message = f"cannot write the approvers' JWK set {set_file} ({error.strerror})"
        raise InvalidSettings(f"{message}; set ORDERFLOW_STATE_DIR to a folder that can be written") from None


def _make_development_keys(folder: Path, set_file: Path) -> None:
    registry = KeyRegistry()
    for name, role in DEVELOPMENT_APPROVERS:
        path = key_file(folder, name)
        if not path.exists():
            ApproverKey.new(name, [role]).save(path)
        registry = registry.with_added(ApproverKey.load(path).public_jwk())
    _write_set(set_file, registry)  # last: its existence says that the keys are complete


def _read_set(path: Path) -> KeyRegistry:
    try:
        raw = path.read_bytes()
    except OSError as error:
        message = f"the approvers' JWK set {path} cannot be read ({error.strerror})"
        raise InvalidSettings(f"{message}; ORDERFLOW_APPROVERS_FILE names it") from None
    return KeyRegistry.from_jwks(raw, str(path))


def _write_set(path: Path, registry: KeyRegistry) -> None:
    written = path.with_name(f"{path.name}.{os.getpid()}.new")
    written.write_bytes(registry.as_jwks())
    written.replace(path)  # at once, for those who read without the lock
