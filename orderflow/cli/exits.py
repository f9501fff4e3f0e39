"""How a verb ends: its exit code, and the one line (or a line for each problem of a file) that says why.

    0   done
    1   refused: the order, or whoever decides about it, said no
    2   bad input: nothing was started
    3   something is not reachable, or a disk is full
    70  a bug in orderflow (sysexits.h calls it EX_SOFTWARE); `orderflow --debug …` shows where
    130 interrupted from the keyboard
    141 whoever read the output went away before its end (128 + SIGPIPE, as `head` does to any program); no line says so

With `--json` the same goes to standard output as `{"error": …}`.
"""

import errno
import sys
from collections.abc import Iterator
from contextlib import suppress
from enum import IntEnum
from typing import Any, Final

import typer

from orderflow.cli.output import print_json, shortened
from orderflow.domain.errors import InvalidInput, OrderflowError, Problem, TransientError

_MEDIUM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""What a full or broken disk answers."""


class ExitCode(IntEnum):
    """What scripts rely on."""

    DONE = 0
    REFUSED = 1
    BAD_INPUT = 2
    NOT_REACHABLE = 3
    BUG = 70
    OUTPUT_CUT_OFF = 141


class Refused(OrderflowError):
    """Nothing is wrong with the call, and the answer is no. `facts` are added to the JSON answer."""

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.facts = facts


class NotReachable(OrderflowError):
    """A server, a worker or a file's medium cannot be reached now; says which and what to do."""


class InvalidFile(InvalidInput):
    """What a file holds cannot be used; every problem is printed with the file's name."""

    def __init__(self, file: str, error: InvalidInput) -> None:
        super().__init__(f"{file}: {error.message}", path=error.path, problems=error.problems)
        self.file = file


def report(error: Exception, *, as_json: bool) -> ExitCode:
    """Print what went wrong and give the exit code for it."""
    code = exit_code(error)
    if code is ExitCode.OUTPUT_CUT_OFF:
        return code
    if as_json:
        with suppress(OSError):  # standard output itself may be what cannot be written
            print_json({"error": _as_json(error, code)})
    for line in lines(error):
        print(f"orderflow: {shortened(line)}", file=sys.stderr)
    return code


def exit_code(error: Exception) -> ExitCode:
    """Which exit code stands for `error`."""
    match error:
        case typer.TyperException() | InvalidInput():
            return ExitCode.BAD_INPUT
        case BrokenPipeError():
            return ExitCode.OUTPUT_CUT_OFF
        case OSError(errno=number) if number in _MEDIUM:
            return ExitCode.NOT_REACHABLE
        case NotReachable() | TransientError():
            return ExitCode.NOT_REACHABLE
        case OrderflowError():
            return ExitCode.REFUSED
        case _:
            return ExitCode.BUG


def lines(error: Exception) -> Iterator[str]:
    """What to tell a person: one line, or one for each problem of a file that has several."""
    match error:
        case InvalidFile():
            yield from (f"{error.file}: {problem}" for problem in error.problems)
        case OrderflowError():
            yield error.message
        case typer.TyperException():
            yield _usage(error)
        case OSError(errno=number) if number in _MEDIUM:
            what = error.filename or "the output"
            yield f"{what} cannot be written ({error.strerror}); make room, or write elsewhere"
        case _:
            yield f"a bug in orderflow: {type(error).__name__}: {error} (`orderflow --debug …` shows where)"


def _usage(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    message = error.format_message().rstrip(".").replace(": Value error, ", ": ")
    return f"{message}; see `{context.command_path if context else 'orderflow'} --help`"


def _as_json(error: Exception, code: ExitCode) -> dict[str, Any]:
    answer: dict[str, Any] = {"exit_code": int(code), "message": " | ".join(shortened(line) for line in lines(error))}
    if isinstance(error, InvalidInput):
        answer["problems"] = [_problem(problem) for problem in error.problems]
    if isinstance(error, Refused):
        answer |= error.facts
    return answer


def _problem(problem: Problem) -> dict[str, str]:
    return {"path": problem.path, "message": problem.message}
