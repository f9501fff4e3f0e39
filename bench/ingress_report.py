"""What was measured of the door: tables for people, one document for programs."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Final

from bench import accepting, refusing, slow_senders
from bench.accepting import Accepting
from bench.refusing import Refusing
from bench.report import as_ms, print_titled
from bench.slow_senders import Besieged
from orderflow.cli.output import print_json

_REFUSED: Final = ("body", "accepted", "refused", "ratio", "accepted, CPU", "refused, CPU", "ratio")
_ASKED: Final = ("what", "of what", "asked", "measured", "met")


@dataclass(frozen=True)
class MeasuredIngress:
    """Everything that one run measures."""

    accepting: tuple[Accepting, ...]
    refusing: list[Refusing]
    siege: Besieged


def print_report(measured: MeasuredIngress, *, as_json: bool) -> None:
    """Print all of it, and how it compares with what is asked of the door."""
    if as_json:
        asked = [dict(zip(_ASKED, row, strict=True)) for row in _asked(measured)]
        print_json({**asdict(measured), "asked": asked})
        return
    print_titled(
        f"Events through the door, and the same orders started bare: {accepting.AT_ONCE} at once, one process",
        ("", *(one.database for one in measured.accepting)),
        _accepted(measured.accepting),
    )
    print_titled(
        "CPU of the door's process for one event, each step alone",
        ("step", *(one.database for one in measured.accepting)),
        _parts(measured.accepting),
    )
    print_titled("A bad signature against a good one", _REFUSED, [_refused(one) for one in measured.refusing])
    print_titled(
        f"{slow_senders.SLOW} slow senders and bodies of {slow_senders.ENDLESS_MEGABYTES} MB against one good sender",
        ("its events", "in quiet", "besieged", "ratio"),
        _besieged(measured.siege),
    )
    print(f"\nThe door's process grew by {measured.siege.grown:.1f} MB meanwhile.")
    print_titled("What is asked", _ASKED, _asked(measured))


def _accepted(measured: tuple[Accepting, ...]) -> list[tuple[str, ...]]:
    def row(what: str, tell: Callable[[Accepting], str]) -> tuple[str, ...]:
        return (what, *map(tell, measured))

    return [
        row("events a second through the door", lambda one: f"{one.door.a_second:,.0f}"),
        row("bare starts a second", lambda one: f"{one.bare.a_second:,.0f}"),
        row("ratio", lambda one: f"{one.ratio:.2f}"),
        row("  with 95 % confidence", lambda one: f"{one.ratio_low:.2f} to {one.ratio_high:.2f}"),
        row("CPU of the door's process, an event", lambda one: as_ms(one.door.cpu)),
        row("CPU of the door's process, a bare start", lambda one: as_ms(one.bare.cpu)),
        row("CPU of Temporal's server, an event", lambda one: as_ms(one.door.temporal)),
        row("CPU of Temporal's server, a bare start", lambda one: as_ms(one.bare.temporal)),
    ]


def _parts(measured: tuple[Accepting, ...]) -> list[tuple[str, ...]]:
    steps = [(step, *(as_ms(one.parts[step]) for one in measured)) for step in measured[0].parts]
    return [*steps, ("together", *(as_ms(one.apart) for one in measured))]


def _refused(one: Refusing) -> tuple[str, ...]:
    return (
        f"{one.size:,} bytes",
        *(as_ms(one.accepted.time), as_ms(one.refused.time), f"{one.time_ratio:.3f} (at most {one.time_high:.3f})"),
        *(as_ms(one.accepted.cpu), as_ms(one.refused.cpu), f"{one.cpu_ratio:.3f} (at most {one.cpu_high:.3f})"),
    )


def _besieged(siege: Besieged) -> list[tuple[str, ...]]:
    return [
        ("median", as_ms(siege.quiet), as_ms(siege.besieged), f"{siege.ratio:.2f}"),
        (
            "95 % within",
            as_ms(siege.quiet_p95),
            as_ms(siege.besieged_p95),
            f"{siege.late:.2f}",
        ),
    ]


def _asked(measured: MeasuredIngress) -> list[tuple[str, ...]]:
    """Every target of the door, and what came of it in this run."""
    asked: list[tuple[str, str, str, str, bool]] = []
    for one in measured.accepting:
        met = one.ratio >= accepting.AT_LEAST
        asked.append(("door to bare starts", one.database, f">= {accepting.AT_LEAST}", f"{one.ratio:.3f}", met))
    for refused in measured.refusing:
        for what, ratio in (("time", refused.time_ratio), ("CPU", refused.cpu_ratio)):
            size, most = f"{refused.size:,} bytes", refusing.AT_MOST
            asked.append((f"refused to accepted, {what}", size, f"< {most}", f"{ratio:.3f}", ratio < most))
    siege, most = measured.siege, slow_senders.MOST_RATIO
    asked.append(("besieged to quiet", "median", f"<= {most}", f"{siege.ratio:.2f}", siege.ratio <= most))
    asked.append(("besieged to quiet", "95 % within", f"<= {most}", f"{siege.late:.2f}", siege.late <= most))
    grown = f"{siege.grown:.1f} MB"
    asked.append(("memory", "grown by", "< 20 MB", grown, siege.grown < slow_senders.MOST_MEGABYTES))
    return [(what, where, target, got, "yes" if met else "NO") for what, where, target, got, met in asked]
