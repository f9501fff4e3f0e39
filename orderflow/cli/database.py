"""`orderflow db upgrade`, `db current` and `db prune`: the schema of the ledger, and how long it remembers."""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import aclosing
from datetime import timedelta
from typing import Annotated

import typer

from orderflow.cli.arguments import AsJson
from orderflow.cli.output import print_fields, print_json, print_line
from orderflow.domain.durations import Duration

app = typer.Typer(name="db", help="The ledger's schema, and how long it remembers.", rich_markup_mode=None)

_PERIOD = Duration("P400D")  # a year, and the time to close its books
_COUNTED = ("orders", "effects", "attempts", "review_items", "events")
_UNSTARTED = "unstarted_events"
_TOLD_EVERY = 1000  # orders


@app.command("upgrade")
def upgrade(as_json: AsJson = False) -> None:
    """Bring the ledger to the schema that this orderflow works with; make it if there is none."""
    from orderflow.backends import upgrade_ledger  # the settings and database drivers, see orderflow.cli
    from orderflow.settings import load_settings

    before, after = asyncio.run(upgrade_ledger(load_settings()))
    if as_json:
        print_json({"ledger": after.ledger, "from": before.found, "to": after.found})
    elif before.found == after.found:
        print_line(f"{after.ledger} has schema {after.found} already")
    else:
        print_line(f"{after.ledger}: schema {before.found or 'none'} became {after.found}")


@app.command("current")
def current(as_json: AsJson = False) -> None:
    """Show which schema the ledger has, and which one this orderflow works with."""
    from orderflow.backends import read_ledger_schema
    from orderflow.settings import load_settings

    schema = asyncio.run(read_ledger_schema(load_settings()))
    if as_json:
        fits = schema.found == schema.needed
        print_json({"ledger": schema.ledger, "schema": schema.found, "needed": schema.needed, "up_to_date": fits})
    else:
        print_fields({"ledger": schema.ledger, "schema": schema.found or "none", "needed": schema.needed})


def _duration(text: str) -> Duration:
    try:
        return Duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


@app.command("prune")
def prune(
    older_than: Annotated[
        Duration, typer.Option("--older-than", parser=_duration, metavar="PERIOD", help="Since the end of an order.")
    ] = _PERIOD,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count what would be forgotten, and forget nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Forget orders that ended long ago and hold nothing open, and their events; what operators signed is kept."""
    counts = asyncio.run(_prune(older_than.timedelta, dry_run, (lambda *_: None) if as_json else _tell))
    told = {name: counts[name] for name in (*_COUNTED, _UNSTARTED)}
    if as_json:
        print_json({"older_than": older_than, "dry_run": dry_run, **told})
        return
    rows = ", ".join(f"{told[name]} {name.replace('_', ' ')}" for name in _COUNTED[1:])
    unstarted = f"{told[_UNSTARTED]} events that never became an order"
    print_line(f"{'would forget' if dry_run else 'forgot'} {told['orders']} orders with {rows}; {unstarted}")


def _tell(before: int, orders: int) -> None:
    if orders // _TOLD_EVERY > before // _TOLD_EVERY:
        print_line(f"{orders} orders so far", sys.stderr)


async def _prune(period: timedelta, dry_run: bool, tell: Callable[[int, int], None]) -> Counter[str]:
    from orderflow.backends import open_existing_ledger
    from orderflow.ledger import retention
    from orderflow.settings import load_settings

    counts: Counter[str] = Counter()
    async with aclosing(await open_existing_ledger(load_settings())) as ledger:
        async for page in retention.prune(ledger, period, dry_run=dry_run):
            before = counts["orders"]
            for order in page:
                found = {name: getattr(order, name) for name in _COUNTED[1:]}
                counts.update({"orders": 1, **found})
            tell(before, counts["orders"])
        counts[_UNSTARTED] = await retention.prune_events(ledger, period, dry_run=dry_run)
    return counts
