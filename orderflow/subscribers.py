"""Who is told that orders have finished: the configured subscribers with their secrets, read once, at the start."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from orderflow.domain.announcements import SOURCE, Subscription
from orderflow.domain.documents import document_refused
from orderflow.domain.errors import InvalidInput, InvalidSettings, Problem
from orderflow.domain.orders import Stage
from orderflow.domain.problems import json_path
from orderflow.domain.subscribers import Subscriber, read_subscribers
from orderflow.settings import Settings, authority_of, environment_value, is_loopback
from orderflow.webhooks import SigningSecret, read_secret

_LONGEST_SECRET = 1024


@dataclass(frozen=True)
class Endpoint:
    """Where one subscriber is told, and what that is signed with."""

    url: str = field(repr=False)
    secret: SigningSecret


@dataclass(frozen=True)
class Subscribers:
    """All who are told, `source` being what calls itself the sender; the default is nobody."""

    entries: tuple[Subscriber, ...] = ()
    endpoints: Mapping[str, Endpoint] = field(default_factory=dict)
    source: str = SOURCE

    def hearing(self, stage: Stage, source: str) -> tuple[Subscription, ...]:
        """Who wants to hear of an order from `source` that ended in `stage`."""
        return tuple(
            Subscription(name=each.name, retry=each.retry) for each in self.entries if each.hears(stage, source)
        )


def load_subscribers(settings: Settings) -> Subscribers:
    """Read the subscribers that the settings name, and their secrets; nobody where they name none.

    Raises:
        InvalidSettings: with every fault; none repeats a secret.
    """
    file = settings.subscribers_file
    if file is None:
        return Subscribers()
    try:
        raw = file.read_bytes()
    except OSError as error:
        message = f"the subscribers file {file} cannot be read ({error.strerror})"
        raise InvalidSettings(f"{message}; ORDERFLOW_SUBSCRIBERS_FILE names it") from None
    read = read_subscribers(raw, str(file))
    endpoints, problems = _endpoints(read.subscribers, file)
    if problems:
        raise document_refused(str(file), problems)
    return Subscribers(read.subscribers, MappingProxyType(endpoints), read.source)


def _endpoints(entries: Iterable[Subscriber], file: Path) -> tuple[dict[str, Endpoint], list[Problem]]:
    endpoints, problems = {}, []
    for index, entry in enumerate(entries):
        if not entry.url.startswith("https:") and not is_loopback(authority_of(entry.url)):
            where = json_path(("subscribers", index, "url"))
            problems.append(Problem(where, "must be https; http is for this machine only"))
        try:
            endpoints[entry.name] = Endpoint(entry.url, read_secret(_fetched(entry, file)))
        except InvalidInput as error:
            problems.append(Problem(json_path(("subscribers", index, "secret")), error.message))
    return endpoints, problems


def _fetched(entry: Subscriber, file: Path) -> str:
    place = entry.secret
    if place.file is None:
        if (value := environment_value(place.env or "")) is None:
            raise InvalidInput(f"is not set: the environment variable {place.env}")
        return value
    path = file.parent / place.file
    try:
        with path.open("rb") as opened:
            return opened.read(_LONGEST_SECRET).decode("ascii", errors="replace")
    except OSError as error:
        raise InvalidInput(f"cannot be read: {path} ({error.strerror})") from None
