"""How a fault shapes what comes back: in place of acting, or after it."""

import math
from dataclasses import dataclass
from typing import Literal, cast

from orderflow.domain.effects import Busy, Found, Refused, Unavailable, Unknown
from orderflow.providers.simulation.books import Books
from orderflow.providers.simulation.faults import Fault
from orderflow.providers.simulation.journal import Line, Turn


@dataclass(frozen=True)
class Reply:
    """What comes back: an answer that is sent, lost on the way, or never sent.

    With `delay` (seconds) nothing comes back yet: the call is to be made again after it, with `seq`, the log line
    which says that it has started.
    """

    answer: Found
    delivery: Literal["sent", "lost", "never"] = "sent"
    delay: float | None = None
    seq: int = 0


def tell(turn: Turn[Books], base: Line, answer: Found, outcome: str) -> Found:
    """Log an answer that leaves the world as it is."""
    code: Line = {"code": answer.code} if isinstance(answer, Refused) else {}
    turn.append({**base, **code, "outcome": outcome})
    return answer


def held_back(turn: Turn[Books], base: Line, fault: Fault, *, begins: bool) -> Reply | None:
    """Give the reply of a fault that keeps the provider from acting now; `begins` if it is to act after a delay."""
    wait = fault.milliseconds
    retry_after = None if wait is None else float(math.ceil(wait / 1000))
    match fault.kind:
        case "unavailable":
            return Reply(tell(turn, base, Unavailable(retry_after=retry_after), "unavailable"))
        case "busy":
            return Reply(tell(turn, base, Busy(retry_after=retry_after), "busy"))
        case "delay" if wait is not None:
            outcome = "started" if begins else "delayed"
            line = turn.append({**base, "outcome": outcome, "milliseconds": wait})
            return Reply(Unknown(), delay=wait / 1000, seq=cast("int", line["seq"]))
        case _ if not fault.commit:
            return delivered(tell(turn, base, Unknown(), "lost"), fault)
        case _:
            return None


def delivered(answer: Found, fault: Fault) -> Reply:
    """Send the answer, unless the fault loses it."""
    match fault.kind:
        case "lost_reply":
            return Reply(answer, "lost")
        case "hang":
            return Reply(answer, "never")
        case _:
            return Reply(answer)
