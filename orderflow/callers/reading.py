"""One reading of the callers file and of the secrets it names: all of it can be used, or each fault is told."""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

from orderflow.domain.callers import MAX_CALLERS_BYTES, Caller, SecretPlace, read_callers
from orderflow.domain.documents import document_refused
from orderflow.domain.errors import InvalidInput, InvalidSettings, Problem
from orderflow.domain.problems import json_path
from orderflow.settings import environment_value
from orderflow.webhooks import VerifyingKey, read_verifying_key

MAX_KEYS: Final = {"HMAC-SHA256": 64, "Ed25519": 16}
"""How many keys of each kind one file may bring in: a delivery that is not genuine costs a try of each."""

_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]{24,256}=*")

_Found = tuple[str, str, datetime | None]
"""A JSON path, what stands there, and until when it counts."""


@dataclass(frozen=True)
class Token:
    """A bearer token of a caller, by its digest."""

    caller: str
    until: datetime | None
    digest: bytes = field(repr=False)


@dataclass(frozen=True)
class Loaded:
    """What one reading of the file and its secrets gave; keys and tokens that ended are among them."""

    callers: Mapping[str, Caller]
    keys: tuple[VerifyingKey, ...]
    tokens: tuple[Token, ...]


class Reading:
    """One reading of a callers file: the digest of everything it read, also of what was not there."""

    def __init__(self, file: Path) -> None:
        self.contents: dict[Path, bytes | None] = {}
        self._file = file
        self._problems: list[Problem] = []

    def load(self) -> Loaded:
        """Read the file and what it names. Raises `InvalidSettings` with every fault."""
        raw = self._bytes(self._file)
        if raw is None:
            raise InvalidSettings(f"the callers file {self._file} cannot be read; ORDERFLOW_CALLERS_FILE names it")
        callers = read_callers(raw, str(self._file))
        keys = [key for index, caller in enumerate(callers) for key in self._keys(index, caller)]
        tokens = [token for index, caller in enumerate(callers) for token in self._tokens(index, caller)]
        self._require_unique([(where, key.fingerprint) for where, key in keys])
        self._require_unique([(where, token.digest.hex()) for where, token in tokens])
        for algorithm, most in MAX_KEYS.items():
            if (number := sum(key.algorithm == algorithm for _, key in keys)) > most:
                self._problems.append(Problem("$.callers", f"hold {number} keys of {algorithm}; at most {most}"))
        if self._problems:
            raise document_refused(str(self._file), self._problems)
        return Loaded(
            {caller.name: caller for caller in callers},
            tuple(key for _, key in keys),
            tuple(token for _, token in tokens),
        )

    def _bytes(self, path: Path) -> bytes | None:
        raw = _content(path)
        self.contents[path] = _digest(raw)
        return raw

    def _keys(self, index: int, caller: Caller) -> Iterator[tuple[str, VerifyingKey]]:
        for where, text, until in (*self._secrets(index, "secrets", caller.secrets), *_public_keys(index, caller)):
            try:
                yield where, read_verifying_key(text, caller.name, until)
            except InvalidInput as error:
                self._problems.append(Problem(where, error.message))

    def _tokens(self, index: int, caller: Caller) -> Iterator[tuple[str, Token]]:
        for where, text, until in self._secrets(index, "tokens", caller.tokens):
            if _TOKEN.fullmatch(token := text.strip()):
                yield where, Token(caller.name, until, token_digest(token))
            else:
                self._problems.append(Problem(where, "must be a token of 24 to 256 of A-Z, a-z, 0-9 and -._~+/"))

    def _secrets(self, index: int, kind: str, places: Sequence[SecretPlace]) -> Iterator[_Found]:
        """What stands at these places; where nothing can be read, a fault is noted."""
        for number, place in enumerate(places):
            where = json_path(("callers", index, kind, number))
            if place.file is not None:
                path = self._file.parent / place.file
                text, fault = self._in_file(path), Problem(f"{where}.file", f"cannot be read: {path}")
            else:
                text = environment_value(place.env or "")
                fault = Problem(f"{where}.env", f"is not set: the environment variable {place.env}")
            if text is None:
                self._problems.append(fault)
            else:
                yield where, text, place.until

    def _in_file(self, path: Path) -> str | None:
        raw = self._bytes(path)
        return None if raw is None else raw.decode("ascii", errors="replace")

    def _require_unique(self, found: list[tuple[str, str]]) -> None:
        first: dict[str, str] = {}
        for where, identity in found:
            if (earlier := first.setdefault(identity, where)) != where:
                self._problems.append(Problem(where, f"is the same as {earlier}; every caller needs one of its own"))


def _public_keys(index: int, caller: Caller) -> Iterator[_Found]:
    for number, key in enumerate(caller.public_keys):
        yield json_path(("callers", index, "public_keys", number, "key")), key.key, key.until


def token_digest(token: str) -> bytes:
    """Give what tokens are compared by, for any text."""
    return hashlib.sha256(token.encode("utf-8", errors="surrogatepass")).digest()


def digest_of(path: Path) -> bytes | None:
    """Give the digest of a file's content, `None` if it cannot be read."""
    return _digest(_content(path))


def _content(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            return file.read(MAX_CALLERS_BYTES + 1)
    except OSError:
        return None


def _digest(raw: bytes | None) -> bytes | None:
    return None if raw is None else hashlib.sha256(raw).digest()
