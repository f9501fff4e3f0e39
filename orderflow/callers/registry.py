"""The callers in force: read once, and again whenever the file or a secret has changed (W03)."""

import hmac
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from orderflow.callers.reading import Reading, digest_of, token_digest
from orderflow.domain.callers import Caller
from orderflow.domain.deliveries import Cause, DeliveryRefused
from orderflow.domain.errors import InvalidSettings
from orderflow.webhooks import VerifyingKey

Warn = Callable[[str], None]

_LOOK_EVERY: Final = 1.0
_ADVICE: Final = "add one: `orderflow callers new NAME` makes it"


def _utc_now() -> datetime:
    return datetime.now(UTC)


class CallerRegistry:
    """The callers in force. Whoever asks makes it read the files again, at most once a second, and take what changed.

    It compares whole contents: a mounted secret can change and keep its size, its time of change too. Content that
    cannot be used leaves in force what was, and is told by `fault`; each new fault is told to `warn` once.
    """

    def __init__(
        self,
        file: Path,
        warn: Warn,
        *,
        steady: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = _utc_now,
    ) -> None:
        """Read `file`. Raises `InvalidSettings` if it or a secret cannot be used, or if no secret is in force."""
        self._file, self._warn, self._steady, self._now = file, warn, steady, now
        self._refusal: str | None = None
        self._told: str | None = None
        reading = Reading(file)
        self._loaded = reading.load()
        self._contents = reading.contents
        self._looked = steady()
        if not any(key.is_active(now()) for key in self._loaded.keys):
            raise InvalidSettings(f"{file}: every secret and key in it has ended; {_ADVICE}")
        self._tell()

    @property
    def keys(self) -> Sequence[VerifyingKey]:
        """What deliveries are verified with; those that ended are still among them."""
        self._look()
        return self._loaded.keys

    @property
    def fault(self) -> str | None:
        """What somebody has to put right, in one sentence."""
        self._look()
        return self._refusal or self._ended()

    def caller(self, name: str) -> Caller:
        """Give the caller that `verify` named. Raises `DeliveryRefused` if it was taken out of the file meanwhile."""
        self._look()
        if (caller := self._loaded.callers.get(name)) is None:
            raise DeliveryRefused(Cause.SIGNATURE_INVALID, "this caller is no longer known")
        return caller

    def by_token(self, token: str) -> Caller | None:
        """Give the caller whose bearer token this is, if it is one and has not ended; in constant time."""
        self._look()
        given, now, found = token_digest(token), self._now(), None
        for known in self._loaded.tokens:
            if hmac.compare_digest(known.digest, given) and (known.until is None or now < known.until):
                found = self._loaded.callers[known.caller]
        return found

    def _look(self) -> None:
        if (at := self._steady()) - self._looked < _LOOK_EVERY:
            return
        self._looked = at
        if any(digest_of(path) != digest for path, digest in self._contents.items()):
            self._reload()
        self._tell()

    def _reload(self) -> None:
        reading = Reading(self._file)
        try:
            self._loaded, self._refusal = reading.load(), None
        except InvalidSettings as error:
            self._refusal = f"what is in force is older than the files: {error.message}"
        self._contents = reading.contents

    def _tell(self) -> None:
        fault = self._refusal or self._ended()
        if fault is not None and fault != self._told:
            self._warn(fault)
        self._told = fault

    def _ended(self) -> str | None:
        now = self._now()
        alive = {key.caller for key in self._loaded.keys if key.is_active(now)}
        ended = [name for name in self._loaded.callers if name not in alive]
        if not ended:
            return None
        return f"every secret of {', '.join(ended)} has ended, nothing it sends is taken; {_ADVICE}"
