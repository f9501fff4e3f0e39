"""What the door's answers mean for whoever sent an event: words, JSON and an exit code for each."""

import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from orderflow.cli.exits import ExitCode
from orderflow.cli.output import print_fields, print_json, print_line, shortened
from orderflow.domain.deliveries import TYPE_PREFIX, Cause
from orderflow.sending import RETRIED, Answered, Retry, Taken, TurnedAway, Undelivered

_BUSINESS: Final = frozenset({403, 409})

_ADVICE: Final[Mapping[str, str]] = MappingProxyType(
    {
        Cause.SIGNATURE_MISSING: "something between here and the door takes headers away",
        Cause.SIGNATURE_INVALID: "check ORDERFLOW_CALLER_SECRET: it has to be one that the door knows its caller by",
        Cause.TIMESTAMP_OUTSIDE_WINDOW: "check the clock of this machine, and that of the door's",
        Cause.NOT_FOUND: "check ORDERFLOW_INGRESS_URL or --url: it is the door's address, without a path",
        Cause.METHOD_NOT_ALLOWED: "check ORDERFLOW_INGRESS_URL or --url: it is the door's address, without a path",
    }
)
_LOCKED_OUT: Final = "check ORDERFLOW_CALLER_SECRET and the clock of this machine"
_NOBODY: Final = "see that `orderflow ingress` runs, and ORDERFLOW_INGRESS_URL or --url"
_AGAIN: Final = "send the same event again later: if it did arrive, it is only a duplicate then"


def print_answer(answered: Answered, *, as_json: bool) -> ExitCode:
    """Print what came of one event, and give the exit code for it."""
    if as_json:
        print_json(answer_as_json(answered))
    if not isinstance(answered, Taken):
        for line in lines(answered):
            print(f"orderflow: {shortened(line)}", file=sys.stderr)
    elif not as_json:
        _print_taken(answered)
    return exit_code(answered)


def exit_code(answered: Answered) -> ExitCode:
    """Give 0 for what has an order, 1 for a refusal of business, 3 for what no door has judged, else 2."""
    if isinstance(answered, Taken):
        return ExitCode.DONE
    if isinstance(answered, Undelivered) or answered.status in RETRIED or answered.status >= 500:
        return ExitCode.NOT_REACHABLE
    return ExitCode.REFUSED if answered.status in _BUSINESS else ExitCode.BAD_INPUT


def answer_as_json(answered: Answered) -> dict[str, Any]:
    """Give what came of one event for programs; an error looks as in `orderflow.cli.exits`."""
    if isinstance(answered, Taken):
        return {
            "order": answered.order,
            "duplicate": answered.duplicate,
            "status": answered.status,
            "attempts": answered.attempts,
        }
    error: dict[str, Any] = {
        "exit_code": int(exit_code(answered)),
        "message": " | ".join(shortened(line) for line in lines(answered)),
    }
    if isinstance(answered, TurnedAway):
        error["problems"] = [{"path": each.path, "message": each.message} for each in answered.problems]
    of_door = TYPE_PREFIX + answered.cause if isinstance(answered, TurnedAway) else None
    return {"error": error, "type": of_door, "status": answered.status, "attempts": answered.attempts}


def lines(answered: TurnedAway | Undelivered) -> list[str]:
    """Give the lines that tell a person why an event was not taken, and what to do."""
    told = [_headline(answered)]
    if isinstance(answered, TurnedAway):
        told += map(str, answered.problems)
    return [*told, *_advice(answered)]


def first_reason(answered: Answered) -> str:
    """Give the one line that says most about why an event was not taken."""
    if isinstance(answered, TurnedAway) and answered.problems:
        return shortened(str(answered.problems[0]))
    return "" if isinstance(answered, Taken) else shortened(_headline(answered))


def tell_retry(retry: Retry) -> None:
    """Tell a person why nothing happens just now, and until when."""
    print(f"orderflow: {retry_line(retry)}", file=sys.stderr, flush=True)


def retry_line(retry: Retry) -> str:
    """Give one line: what the next attempt waits for, and how long."""
    tries = f"attempt {retry.attempt} of {retry.attempts} in {retry.wait:.1f} s"
    return shortened(f"{_headline(retry.after)}; {tries}")


def _headline(answered: TurnedAway | Undelivered) -> str:
    if isinstance(answered, Undelivered):
        return answered.reason
    title = f"{answered.status} {answered.title}"
    told_apart = bool(answered.problems) and answered.detail.startswith(str(answered.problems[0]))
    return title if told_apart or not answered.detail else f"{title}: {answered.detail}"


def _advice(answered: TurnedAway | Undelivered) -> list[str]:
    """What to do, but for what the door itself says already."""
    said = answered.detail if isinstance(answered, TurnedAway) else ""
    if isinstance(answered, TurnedAway) and answered.cause == Cause.CONFLICT:
        return [] if "new id" in said else ["give a new event a new id"]
    if isinstance(answered, TurnedAway) and answered.cause in _ADVICE:
        return [_ADVICE[answered.cause]]
    if answered.status == 401:
        return [_LOCKED_OUT]
    if exit_code(answered) is not ExitCode.NOT_REACHABLE:
        return []
    tried = [f"given up after {answered.attempts} attempts"] if answered.attempts > 1 else []
    if isinstance(answered, TurnedAway):
        return tried if "again" in said else [*tried, _AGAIN]
    return [*tried, f"{_NOBODY}; {_AGAIN}"]


def _print_taken(taken: Taken) -> None:
    if taken.duplicate:
        by_us = ", perhaps by an earlier attempt of this call" if taken.attempts > 1 else ""
        print_line(f"duplicate: already started as {taken.order}{by_us}")
    answer = None if taken.duplicate else "new"
    print_fields({"order": taken.order, "answer": answer, "next": f"orderflow show {taken.order}"})
