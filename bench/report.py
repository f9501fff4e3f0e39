"""The results: tables for people, one document for programs."""

from collections.abc import Callable, Sequence
from dataclasses import asdict

from bench import contention, growth, round_trip, throughput
from bench.measured import Measured
from orderflow.cli.output import print_json, print_table


def print_report(measured: Measured, *, as_json: bool) -> None:
    """Print all of it, and how it compares with what is asked of the ledger."""
    if as_json:
        shares = [{"share": cost.share, "share_of_worker": cost.share_of_worker} for cost in measured.costs]
        print_json(
            {
                **asdict(measured),
                "shares": shares,
                "asked": [dict(zip(_ASKED, row, strict=True)) for row in _asked(measured)],
            }
        )
        return
    print_titled(
        "One effect through the ledger against the activity round trip that it rides on",
        ("CPU", *(cost.database for cost in measured.costs)),
        _costs(measured),
    )
    print_titled("Durable effects a second", _RATE, _rates(measured))
    print_titled(
        f"{contention.PROCESSES} processes that want the same {contention.EFFECTS} effects", _SAME, _contended(measured)
    )
    print_titled(
        f"One claim and settle on PostgreSQL, beside {growth.FEW:,} and {measured.plans.rows:,} effects"
        f" ({measured.plans.megabytes:,.0f} MB, filled in {measured.plans.fill_seconds:.0f} s)",
        _GROWN,
        _grown(measured),
    )
    print_titled(f"How PostgreSQL runs each statement beside {measured.plans.rows:,} effects", _PLAN, _plans(measured))
    print(f"\nA page of reconciliation that finds nothing takes {measured.plans.page_seconds:.2f} s there.")
    print_titled("What is asked", _ASKED, _asked(measured))


_RATE = ("ledger on", "at once", "a second", "slowest block", "one fsync")
_SAME = ("ledger on", "seconds", "provider calls", "effects", "errors")
_GROWN = ("COMMIT", "few rows", "many rows", "ratio", "blocks")
_PLAN = ("statement", "plan")
_ASKED = ("what", "ledger on", "asked", "measured", "met")


def _costs(measured: Measured) -> list[tuple[str, ...]]:
    def row(what: str, tell: Callable[[round_trip.Cost], str]) -> tuple[str, ...]:
        return (what, *map(tell, measured.costs))

    return [
        row("round trip without ledger: worker", lambda cost: as_ms(cost.worker)),
        row("round trip without ledger: Temporal's server", lambda cost: as_ms(cost.temporal)),
        row("the ledger adds: worker", lambda cost: as_ms(cost.in_worker)),
        row("  with 95 % confidence", lambda cost: f"{cost.in_worker_low:.2f} to {cost.in_worker_high:.2f} ms"),
        row("  one effect after another, nothing else", lambda cost: as_ms(cost.alone)),
        row("the ledger adds: the database's server", lambda cost: as_ms(cost.in_database)),
        row("share of the round trip", lambda cost: _percent(cost.share)),
        row("share of the worker alone", lambda cost: _percent(cost.share_of_worker[0])),
        row("  with 95 % confidence", lambda cost: _range(*cost.share_of_worker[1:])),
    ]


def _rates(measured: Measured) -> list[tuple[str, ...]]:
    return [
        (rate.database, str(rate.at_once), f"{rate.a_second:,.0f}", f"{rate.slowest:,.0f}", as_ms(rate.sync))
        for rate in measured.throughput
    ]


def _contended(measured: Measured) -> list[tuple[str, ...]]:
    return [
        (one.database, f"{one.seconds:.1f}", str(one.calls), str(one.effects), str(one.errors))
        for one in measured.contention
    ]


def _grown(measured: Measured) -> list[tuple[str, ...]]:
    return [
        (
            "waits for the disk" if grown.waiting else "does not wait",
            as_ms(grown.few),
            as_ms(grown.many),
            f"{grown.ratio:.2f}",
            f"{grown.ratio_low:.2f} to {grown.ratio_high:.2f}",
        )
        for grown in measured.growth
    ]


def _plans(measured: Measured) -> list[tuple[str, ...]]:
    return [
        (name if not number else "", line)
        for name, plan in measured.plans.statements.items()
        for number, line in enumerate(plan.splitlines())
    ]


def _asked(measured: Measured) -> list[tuple[str, ...]]:
    """Every target of the ledger, and what came of it in this run."""
    asked: list[tuple[str, str, str, str, bool]] = []
    for cost in measured.costs:
        most = round_trip.AT_MOST[cost.database]
        asked.append(
            ("share of the round trip", cost.database, f"<= {_percent(most)}", _percent(cost.share), cost.share <= most)
        )
    for rate in measured.throughput:
        if rate.at_once == throughput.AT_ONCE:
            least = throughput.AT_LEAST
            got = f"{rate.a_second:,.0f}"
            asked.append(("effects a second", rate.database, f">= {least:,}", got, rate.a_second >= least))
    for one in measured.contention:
        right = (one.calls, one.effects, one.errors) == (contention.EFFECTS, contention.EFFECTS, 0)
        got = f"{one.calls} calls, {one.effects} effects, {one.errors} errors"
        asked.append(("each effect once", one.database, f"{contention.EFFECTS} and no error", got, right))
    worst = max(grown.ratio for grown in measured.growth)
    asked.append(("growth", "PostgreSQL", f"<= {growth.AT_MOST}", f"{worst:.2f}", worst <= growth.AT_MOST))
    scans = measured.plans.scans
    asked.append(("whole-table reads", "PostgreSQL", "none", ", ".join(scans) or "none", not scans))
    return [(what, where, target, got, "yes" if met else "NO") for what, where, target, got, met in asked]


def print_titled(title: str, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table under its title."""
    print(f"\n{title}\n")
    print_table(headers, rows)


def as_ms(milliseconds: float) -> str:
    """Give milliseconds for people."""
    return f"{milliseconds:.2f} ms"


def _range(low: float, high: float) -> str:
    return f"{100 * low:.1f} to {100 * high:.1f} %"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
