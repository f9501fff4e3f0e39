"""One reading of the callers file and of the secrets it names: all of it can be used, or each fault is told."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

from orderflow.domain.callers import Caller, SecretPlace, callers_refused, read_callers
from orderflow.domain.errors import InvalidInput, InvalidSettings, Problem
from orderflow.domain.problems import json_path
from orderflow.settings import environment_value
from orderflow.webhooks import VerifyingKey, read_verifying_key

MAX_KEYS: Final = 64
"""Secrets and public keys in one file: each costs a look at every delivery, genuine or not."""

_MAX_SECRET_BYTES: Final = 4096
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]{24,256}=*")


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
        if len(keys) > MAX_KEYS:
            self._problems.append(Problem("$.callers", f"hold {len(keys)} secrets and keys; at most {MAX_KEYS}"))
        if self._problems:
            raise callers_refused(str(self._file), tuple(self._problems))
        return Loaded(
            {caller.name: caller for caller in callers},
            tuple(key for _, key in keys),
            tuple(token for _, token in tokens),
        )

    def _bytes(self, path: Path) -> bytes | None:
        try:
            raw = path.read_bytes()
        except OSError:
            raw = None
        self.contents[path] = None if raw is None else hashlib.sha256(raw).digest()
        return raw

    def _keys(self, index: int, caller: Caller) -> Iterator[tuple[str, VerifyingKey]]:
        given = [(("secrets", i), self._secret(index, "secrets", i, p), p.until) for i, p in enumerate(caller.secrets)]
        public = [(("public_keys", i, "key"), key.key, key.until) for i, key in enumerate(caller.public_keys)]
        for place, text, until in (*given, *public):
            where = json_path(("callers", index, *place))
            if text is None:
                continue
            try:
                yield where, read_verifying_key(text, caller.name, until)
            except InvalidInput as error:
                self._problems.append(Problem(where, error.message))

    def _tokens(self, index: int, caller: Caller) -> Iterator[tuple[str, Token]]:
        for i, place in enumerate(caller.tokens):
            where = json_path(("callers", index, "tokens", i))
            token = self._secret(index, "tokens", i, place)
            if token is None:
                continue
            if _TOKEN.fullmatch(token.strip()):
                yield where, Token(caller.name, place.until, token_digest(token.strip()))
            else:
                self._problems.append(Problem(where, "must be a token of 24 to 256 of A-Z, a-z, 0-9 and -._~+/"))

    def _secret(self, index: int, kind: str, number: int, place: SecretPlace) -> str | None:
        """What stands at a place; a fault is noted."""
        where = json_path(("callers", index, kind, number))
        if place.env is not None:
            text = environment_value(place.env)
            if text is None:
                self._problems.append(Problem(f"{where}.env", f"the environment variable {place.env} is not set"))
            return text
        path = self._file.parent / (place.file or "")
        raw = self._bytes(path)
        if raw is None or len(raw) > _MAX_SECRET_BYTES:
            self._problems.append(Problem(f"{where}.file", f"no secret can be read from {path}"))
            return None
        return raw.decode("ascii", errors="replace")

    def _require_unique(self, found: list[tuple[str, str]]) -> None:
        first: dict[str, str] = {}
        for where, identity in found:
            if (earlier := first.setdefault(identity, where)) != where:
                self._problems.append(Problem(where, f"is the same as {earlier}; every caller needs one of its own"))


def token_digest(token: str) -> bytes:
    """Give what tokens are compared by, for any text."""
    return hashlib.sha256(token.encode("utf-8", errors="surrogatepass")).digest()


def digest_of(path: Path) -> bytes | None:
    """Give the digest of a file's content, `None` if it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).digest()
    except OSError:
        return None
