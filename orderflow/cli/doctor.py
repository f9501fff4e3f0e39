"""`orderflow doctor`: look at everything that orderflow needs, and say what to do about what is missing."""

import asyncio

from orderflow.cli.arguments import AsJson
from orderflow.cli.exits import ExitCode
from orderflow.cli.output import print_json, print_line, print_table


def doctor(as_json: AsJson = False) -> ExitCode:
    """Check everything and say what to do."""
    from orderflow.cli.checks import Health, examine  # Temporal's client, see orderflow.cli
    from orderflow.cli.connection import quieten_client

    quieten_client()
    checks = asyncio.run(examine())
    well = all(check.health is not Health.FAIL for check in checks)
    if as_json:
        found = [{"name": check.name, "health": check.health.value, "says": check.says} for check in checks]
        print_json({"ok": well, "checks": found})
    else:
        print_table(("", "what", "finding"), [(check.health.value, check.name, check.says) for check in checks])
        print_line("all is well" if well else "what failed has to be put right first")
    return ExitCode.DONE if well else ExitCode.NOT_REACHABLE
