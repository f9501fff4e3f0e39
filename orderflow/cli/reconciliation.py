"""`orderflow reconcile`: have a worker compare ledger, providers and Temporal, and show what it found."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orderflow.cli.arguments import AsJson
from orderflow.cli.output import money, print_fields, print_json, print_line, print_table
from orderflow.contracts import ReconcileReport, ReconcileRequest
from orderflow.domain.durations import Duration
from orderflow.domain.errors import InvalidInput

if TYPE_CHECKING:
    from temporalio.client import Client

    from orderflow.settings import Settings

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done; nothing is written.")]
Since = Annotated[str, typer.Option("--since", metavar="P7D", help="How far back providers are asked (ISO 8601).")]


def reconcile(dry_run: DryRun = False, since: Since = "P7D", as_json: AsJson = False) -> None:
    """Compare ledger, providers and workflows; settle or queue what is open."""
    from orderflow.cli.connection import with_temporal  # Temporal's client, see orderflow.cli

    request = ReconcileRequest(dry_run=dry_run, since=_duration(since))
    report = with_temporal(lambda client, settings: _reconciled(client, settings, request))
    if as_json:
        print_json(report.model_dump(mode="json"))
    else:
        _print_report(report)


def _duration(text: str) -> Duration:
    try:
        return Duration(text)
    except ValueError as error:
        raise InvalidInput(f"--since {error}") from None


async def _reconciled(client: "Client", settings: "Settings", request: ReconcileRequest) -> ReconcileReport:
    from orderflow.client.reconciliations import reconcile as run

    return await run(client, request, task_queue=settings.task_queue, say=_say)


def _say(progress: str) -> None:
    print(f"orderflow: {progress}", file=sys.stderr)


def _print_report(report: ReconcileReport) -> None:
    if report.findings:
        rows = [
            (each.what, each.key or each.order, money(each.amount_minor, each.currency), each.detail)
            for each in report.findings
        ]
        print_table(("what", "effect or order", "amount", "detail"), rows)
    print_fields(_fields(report))
    if not report.findings:
        print_line("nothing to settle and nothing to decide")


def _fields(report: ReconcileReport) -> dict[str, Any]:
    counted = ", ".join(f"{number} {what}" for what, number in report.counts.items())
    return {
        "orders looked at": report.orders,
        "changes": "none: a dry run" if report.dry_run else report.changes,
        "counts": counted,
        "providers asked since": report.since,
        "cannot list": ", ".join(report.unlisted),
        "keys of others": report.foreign or None,
    }
