"""Every setting of orderflow, from the environment variable `ORDERFLOW_<NAME>`; nothing else reads the environment.

Temporal's own settings (`TEMPORAL_ADDRESS`, TLS, API key, its TOML profile) stay Temporal's: see `orderflow.client`.
"""

import difflib
import ipaddress
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict

from orderflow.contracts import TASK_QUEUE
from orderflow.domain.errors import InvalidSettings, Problem
from orderflow.domain.problems import problems_in

PREFIX = "ORDERFLOW_"
SECRETS_DIR = "ORDERFLOW_SECRETS_DIR"
"""A folder whose files are settings, each named like its variable: how container secrets are mounted."""

_SQLITE = "sqlite:///"
_OF_PROVIDERS = f"{PREFIX}PROVIDER_"
_OF_TESTS = f"{PREFIX}TEST_"

_Folder = Annotated[Path, AfterValidator(Path.expanduser)]


def _none_if_forever(seconds: object) -> object:
    return None if seconds == "forever" else seconds


@dataclass(frozen=True)
class SqliteTarget:
    """A ledger in one SQLite file."""

    path: Path


@dataclass(frozen=True)
class PostgresTarget:
    """A ledger in a PostgreSQL database, which one process reaches over at most `connections` connections."""

    url: str = field(repr=False)
    password: str | None = field(repr=False)
    connections: int


LedgerTarget = SqliteTarget | PostgresTarget
"""Where the ledger is; one more type for each further backend."""

ProvidersSettings = Mapping[str, Mapping[str, str]]
"""By a provider's name, what it is configured with: text by lower-case key."""


class Settings(BaseSettings):
    """What this process is configured with. Folders and files that are not set lie below `state_dir`."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        hide_input_in_errors=True,
        validate_default=True,
    )

    state_dir: _Folder = Path(".orderflow")
    """Where an unconfigured orderflow keeps its ledger, its development keys and its dev server's database."""
    ledger_url: str = Field(default="", repr=False)
    """`sqlite:///relative/path`, `sqlite:////absolute/path` or `postgresql://user@host:5432/database`; empty is
    `ledger.db` in `state_dir`."""
    ledger_password: SecretStr | None = None
    """The password for a ledger on PostgreSQL, so that it need not stand in the URL."""
    ledger_connections: int = Field(default=8, ge=1, le=100)
    """Connections that one process opens to PostgreSQL at most."""
    providers: Literal["simulated", "http"] = "simulated"
    providers_url: str = ""
    """Base address of the providers, for `http`."""
    providers_timeout: float = Field(default=10, gt=0, le=600, allow_inf_nan=False)
    """Seconds that one call to a provider may take."""
    approvers_file: _Folder | None = None
    """The JWK set of those who may approve."""
    keys_dir: _Folder | None = None
    """Private keys of approvers, for `approve --as`."""
    callers_file: _Folder | None = None
    """Who may send events to the door, and what: see `orderflow.domain.callers`."""
    caller_secret: SecretStr | None = None
    """What `submit` signs events with: `whsec_…`, or `whsk_…` for Ed25519."""
    ingress_url: str = "http://127.0.0.1:8080"
    """Base address of the door that `submit` sends events to."""
    subscribers_file: _Folder | None = None
    """Who is told that an order has finished: see `orderflow.domain.subscribers`."""
    resolve_alone_up_to: int = Field(default=10_000, ge=0)
    """Up to which amount (minor units, any currency) one operator may resolve what stands; above it takes two."""
    definitions_dir: _Folder | None = None
    """Definitions to publish besides the packaged one, `*.json`."""
    order_definition: _Folder | None = None
    """The definition that the door starts orders with, if not the packaged one; it has to be published."""
    task_queue: str = Field(default=TASK_QUEUE, min_length=1, max_length=200)
    max_concurrent_activities: int = Field(default=100, ge=1, le=10_000)
    max_cached_workflows: int = Field(default=1000, ge=0, le=100_000)
    graceful_shutdown: int = Field(default=60, ge=0, le=3600)
    """Seconds a stopping worker gives its activities: more than the longest attempt of any definition it runs."""
    wait_for_server: Annotated[int | None, BeforeValidator(_none_if_forever)] = Field(default=30, ge=0)
    """Seconds that a worker keeps trying to reach Temporal before it exits with 3; 0 is one try, `forever` no end."""
    intake_backlog_limit: int = Field(default=60, ge=0, le=86_400)
    """Seconds that a task may wait for a worker before doors take no events in; 0 switches this rule off."""
    payload_keys_file: _Folder | None = None
    """The JWK set of the keys that payloads are encrypted with; the last one encrypts. See `orderflow.keyring`."""
    payload_keys: SecretStr | None = None
    """The same set itself."""
    payload_plaintext: Literal["refuse", "read"] = "refuse"
    """Whether, with keys, payloads that are not encrypted are read: those of orders from before there were keys."""
    temporal_binary: _Folder | None = None
    """The `temporal` program to start as a server of our own, if it is neither installed beside Python nor on PATH."""
    log_format: Literal["auto", "console", "json"] = "auto"
    """`auto` is `console` on a terminal and `json` elsewhere."""

    @field_validator("ledger_url")
    @classmethod
    def _names_a_ledger(cls, url: str) -> str:
        if url and not _is_postgres(url):
            _sqlite_path(url)
        return url

    @field_validator("providers_url")
    @classmethod
    def _is_given_for_http(cls, url: str, info: ValidationInfo) -> str:
        if info.data.get("providers") == "http" and not url:
            raise ValueError("is missing; set it to the base address of the providers, such as http://localhost:8090")
        if url and (urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).hostname):
            raise ValueError("must be an http or https address, such as http://localhost:8090")
        return url

    @field_validator("payload_keys")
    @classmethod
    def _is_given_once(cls, keys: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        if keys is not None and info.data.get("payload_keys_file") is not None:
            raise ValueError("is set, and so is ORDERFLOW_PAYLOAD_KEYS_FILE: keep one of the two")
        return keys

    @field_validator("ingress_url")
    @classmethod
    def _is_private_on_the_way(cls, url: str) -> str:
        split = urlsplit(url)
        if split.scheme not in {"http", "https"} or not split.hostname or "@" in split.netloc or {*"?#"} & {*url}:
            raise ValueError("must be an https address, such as https://orders.example.com, without user, ? and #")
        if split.scheme == "http" and not is_loopback(authority_of(url)):
            raise ValueError("must be https, for orders are personal data; http is for this machine only")
        return url.rstrip("/")

    @property
    def ledger(self) -> LedgerTarget:
        """Where the ledger is."""
        if _is_postgres(self.ledger_url):
            password = self.ledger_password.get_secret_value() if self.ledger_password else None
            return PostgresTarget(self.ledger_url, password, self.ledger_connections)
        return SqliteTarget(_sqlite_path(self.ledger_url) if self.ledger_url else self.state_dir / "ledger.db")

    @property
    def backlog_limit(self) -> timedelta | None:
        """How long a task may wait for a worker before doors take no events in; `None` is no limit."""
        return timedelta(seconds=self.intake_backlog_limit) if self.intake_backlog_limit else None

    @property
    def simulator_log(self) -> Path:
        """The log of the simulated providers, which is all their state."""
        return self.state_dir / "simulator.jsonl"

    @property
    def private_keys(self) -> Path:
        """The folder of private keys."""
        return self.keys_dir or self.state_dir / "keys"


def load_settings(**overrides: Any) -> Settings:
    """Read the settings from the environment; `overrides` (by field name, from flags) count more.

    Raises:
        InvalidSettings: one for all faults; each problem names its variable and says what to do.
    """
    secrets = _secrets_dir()
    _refuse_misspelt([*os.environ, *(file.name for file in Path(secrets).iterdir())] if secrets else os.environ)
    try:
        return Settings(_secrets_dir=secrets, **overrides)
    except ValidationError as error:
        raise _refusal(tuple(Problem(_variable(found.path), found.message) for found in problems_in(error))) from None


def provider_settings(names: Collection[str]) -> ProvidersSettings:
    """What each of these providers is configured with, `ORDERFLOW_PROVIDER_<NAME>_<KEY>` under its lower-case key.

    Where one name begins with another (`ship`, `ship_air`), a variable belongs to the longest that fits.

    Raises:
        InvalidSettings: for what belongs to none of them, and would be ignored (I07); names all of it.
    """
    given: dict[str, dict[str, str]] = {name: {} for name in names}
    strays = []
    for variable, value in sorted(_given_to_providers().items()):
        rest = variable.removeprefix(_OF_PROVIDERS)
        owners = [name for name in names if rest.startswith(f"{name.upper()}_") and len(rest) > len(name) + 1]
        if owners:
            owner = max(owners, key=len)
            given[owner][rest[len(owner) + 1 :].lower()] = value
        else:
            strays.append(Problem(variable, _stray(variable, names)))
    if strays:
        raise _refusal(tuple(strays))
    return given


def child_environment(settings: Settings, *, temporal_address: str) -> dict[str, str]:
    """The environment for a process of our own: `settings`, those of providers, and the server at that address."""
    others = {key: value for key, value in os.environ.items() if not key.startswith((PREFIX, "TEMPORAL_"))}
    inherited = {**others, **_given_to_providers()}
    own = {
        PREFIX + key.upper(): value.get_secret_value() if isinstance(value, SecretStr) else str(value)
        for key, value in settings.model_dump(exclude_none=True).items()
        if value != ""
    }
    return {**inherited, **own, "TEMPORAL_ADDRESS": temporal_address, "TEMPORAL_NAMESPACE": "default"}


def authority_of(url: str) -> str:
    """Give `host:port` of an http or https address. Raises `ValueError` for one without a host or a proper port."""
    split = urlsplit(url)
    if not split.hostname:
        raise ValueError("must name a host")
    host = f"[{split.hostname}]" if ":" in split.hostname else split.hostname
    return f"{host}:{split.port or (443 if split.scheme == 'https' else 80)}"


def environment_value(name: str) -> str | None:
    """What the environment says under a name that another file of settings gives; `None` if it says nothing."""
    return os.environ.get(name)


def is_loopback(address: str) -> bool:
    """Whether `host:port` is surely this machine: 127.0.0.0/8, `[::1]` or `localhost`; no other name is looked up."""
    host = address.rpartition(":")[0] or address
    if host.casefold() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


def _is_postgres(url: str) -> bool:
    return url.startswith(("postgresql://", "postgres://"))


def _sqlite_path(url: str) -> Path:
    """The file that `url` names; the sentences of the error never repeat the URL, which may hold a password."""
    path = url.removeprefix(_SQLITE)
    if not url.startswith(_SQLITE) or path in {"", "/", ":memory:"} or "?" in path:
        raise ValueError(
            "must be sqlite:///relative/path.db, sqlite:////absolute/path.db or postgresql://user@host:5432/database"
        )
    return Path(path).expanduser()


def _secrets_dir() -> str | None:
    folder = os.environ.get(SECRETS_DIR)
    if folder and not Path(folder).is_dir():
        raise _refusal((Problem(SECRETS_DIR, f"{folder} is not a folder; name the one that holds the secrets"),))
    return folder or None


def _refuse_misspelt(variables: Iterable[str]) -> None:
    """A variable or file of secrets that is nearly a setting is a typing error; others belong to somebody else."""
    known = _known()
    foreign = (_OF_PROVIDERS, _OF_TESTS)
    given = [name for name in sorted(variables) if name.startswith(PREFIX) and not name.startswith(foreign)]
    problems = [
        Problem(name, f"is not a setting; did you mean {meant}?")
        for name in given
        if name not in known
        for meant in _nearly(name, known)
    ]
    if problems:
        raise _refusal(tuple(problems))


def _known() -> list[str]:
    return [PREFIX + name.upper() for name in Settings.model_fields] + [SECRETS_DIR]


def _nearly(name: str, known: Sequence[str]) -> list[str]:
    """The one of `known` that `name` is a typing error for, if there is one."""
    return difflib.get_close_matches(name, known, n=1, cutoff=0.9)


def _given_to_providers() -> dict[str, str]:
    """Every setting of a provider by its variable, of the environment and of the files of secrets."""
    secrets = _secrets_dir()
    files = [file for file in Path(secrets).iterdir() if file.name.startswith(_OF_PROVIDERS)] if secrets else []
    try:
        written = {file.name: file.read_text(encoding="utf-8").strip() for file in files}
    except (OSError, UnicodeDecodeError) as error:
        raise _refusal((Problem(SECRETS_DIR, f"a provider's setting in it cannot be read: {error}"),)) from None
    return {**written, **{name: value for name, value in os.environ.items() if name.startswith(_OF_PROVIDERS)}}


def _stray(variable: str, names: Collection[str]) -> str:
    """What is wrong with a provider's setting that none of `names` has."""
    parts = variable.removeprefix(_OF_PROVIDERS).upper().split("_")
    keys = ["_".join(parts[start:]) for start in range(1, len(parts))]
    meant = _nearly(variable, [f"{_OF_PROVIDERS}{name.upper()}_{key}" for name in names for key in keys] + _known())
    advice = f"; did you mean {meant[0]}?" if meant else ""
    return f"belongs to no provider; there are {', '.join(sorted(names))}{advice}"


def _variable(path: str) -> str:
    """`ORDERFLOW_PROVIDERS` for `$.providers`."""
    return PREFIX + path.removeprefix("$.").partition(".")[0].partition("[")[0].upper()


def _refusal(problems: tuple[Problem, ...]) -> InvalidSettings:
    return InvalidSettings("; ".join(map(str, problems)), path=problems[0].path, problems=problems)
