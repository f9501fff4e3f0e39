"""A file with an event on each line, read line by line: a million of them take no more memory than a few."""

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from stat import S_ISREG
from typing import Self

from orderflow.cli.arguments import open_document, reading


@dataclass(frozen=True)
class Line:
    """One line: its number from 1, and its bytes without the line's end; `None` when they are more than are read."""

    number: int
    body: bytes | None


class EventLines:
    """`with EventLines(file, max_bytes) as lines`: the lines of `file` that are not blank; `-` is standard input.

    Raises `InvalidFile` when it cannot be opened, or later cannot be read.
    """

    def __init__(self, file: str, max_bytes: int) -> None:
        self._file = file
        self._max_bytes = max_bytes
        self._resources = ExitStack()
        # A thread of its own, that nobody waits for: standard input may keep it for ever, also after Ctrl+C.
        self._reader = ThreadPoolExecutor(max_workers=1)
        self.number = 0
        self.read_bytes = 0
        self.size: int | None = None

    def __enter__(self) -> Self:
        with reading(self._file):
            self._opened = self._resources.enter_context(open_document(self._file))
            self.size = self._size()
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.shutdown(wait=False, cancel_futures=True)
        self._resources.close()

    async def next(self) -> Line | None:
        """Give the next line, `None` at the end. One caller at a time."""
        return await asyncio.get_running_loop().run_in_executor(self._reader, self._next)

    def _next(self) -> Line | None:
        with reading(self._file):
            while raw := self._read():
                body = raw.removesuffix(b"\n").removesuffix(b"\r")
                if len(body) > self._max_bytes:
                    self._skip_rest_of(raw)
                    return Line(self.number, None)
                if body.strip():
                    return Line(self.number, body)
        return None

    def _read(self) -> bytes:
        self.number += 1
        raw = self._opened.readline(self._max_bytes + 2)
        self.read_bytes += len(raw)
        return raw

    def _skip_rest_of(self, raw: bytes) -> None:
        while raw and not raw.endswith(b"\n"):
            raw = self._opened.readline(self._max_bytes)
            self.read_bytes += len(raw)

    def _size(self) -> int | None:
        """Of a regular file, so that progress has an end to come to."""
        try:
            found = os.fstat(self._opened.fileno())
        except OSError:  # io.UnsupportedOperation: it is no file at all
            return None
        return found.st_size if S_ISREG(found.st_mode) else None
