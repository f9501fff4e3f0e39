"""`orderflow db upgrade` and `db current`: the schema of the ledger."""

import asyncio

import typer

from orderflow.cli.arguments import AsJson
from orderflow.cli.output import print_fields, print_json, print_line

app = typer.Typer(name="db", help="The ledger's schema.", rich_markup_mode=None)


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
