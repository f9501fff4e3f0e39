"""One append-only file of JSON lines that several processes share; what is true is the fold over its lines."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import BinaryIO, Final, Generic, Protocol, TypeVar

from filelock import FileLock

from orderflow.domain.errors import InvalidSettings
from orderflow.domain.strict_json import JsonValue

Line = dict[str, JsonValue]

_POLL_SECONDS: Final = 0.002


class Folded(Protocol):
    """A state that is made from nothing but lines."""

    def apply(self, line: Line) -> None:
        """Take in the next line."""
        ...


StateT = TypeVar("StateT", bound=Folded)


class Turn(Generic[StateT]):
    """Sole possession of the log: `state` is up to date, and what is appended is written when the turn ends."""

    def __init__(self, state: StateT, next_seq: int) -> None:
        self.state = state
        self.now = datetime.now(UTC)
        self.next_seq = next_seq
        self.lines: list[Line] = []

    def append(self, line: Line) -> Line:
        """Add `line` to the log with its `seq` (from 1) and `at` (UTC, ISO 8601); `state` knows it at once."""
        full: Line = {"seq": self.next_seq, "at": self.now.isoformat(), **line}
        self.state.apply(full)
        self.lines.append(full)
        self.next_seq += 1
        return full


class Journal(Generic[StateT]):
    """The log at `path`, and the fold over it as far as this process has read. Blocking; safe between threads."""

    def __init__(self, path: Path, empty: Callable[[], StateT]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._empty = empty
        self._in_process = Lock()
        self._between_processes = FileLock(f"{path}.lock", poll_interval=_POLL_SECONDS)
        self._forget()

    @contextmanager
    def turn(self) -> Iterator[Turn[StateT]]:
        """Hold the log alone, read what others wrote, then write what this turn appends, flushed to the disk.

        Raises:
            InvalidSettings: when a line before the last one cannot be read.
            OSError: when the file cannot be read or written.
        """
        with self._in_process, self._between_processes, self.path.open("a+b") as file:
            try:
                self._catch_up(file)
                turn = Turn(self._state, self._next_seq)
                yield turn
                self._write(file, turn)
            except BaseException:
                self._forget()  # the fold may be ahead of the file: read it again from the start
                raise

    def _forget(self) -> None:
        self._state = self._empty()
        self._offset = 0
        self._next_seq = 1

    def _catch_up(self, file: BinaryIO) -> None:
        size = file.seek(0, os.SEEK_END)
        if size < self._offset:  # somebody removed the file
            self._forget()
        file.seek(self._offset)
        whole, _, torn = file.read().rpartition(b"\n")
        if torn:  # its writer was killed in the middle: it holds the lock no more, so nobody will complete it
            file.truncate(size - len(torn))
        for raw in whole.split(b"\n") if whole else ():
            self._state.apply(self._parse(raw))
            self._next_seq += 1
        self._offset = size - len(torn)

    def _parse(self, raw: bytes) -> Line:
        try:
            line = json.loads(raw)
        except ValueError:
            line = None
        if not isinstance(line, dict) or line.get("seq") != self._next_seq:
            raise InvalidSettings(f"{self.path} line {self._next_seq} is no line of a simulator's log; remove the file")
        return line

    def _write(self, file: BinaryIO, turn: Turn[StateT]) -> None:
        if not turn.lines:
            return
        raw = b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in turn.lines)
        file.write(raw)
        file.flush()
        os.fsync(file.fileno())
        self._offset += len(raw)
        self._next_seq = turn.next_seq
