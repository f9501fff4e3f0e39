"""`python -m bench.ledger`: what the ledger costs, how fast it is, and what becomes of that when it grows."""

import asyncio
from typing import Annotated

import typer

from bench import contention, growth, round_trip, throughput
from bench.databases import durable_databases
from bench.measured import Measured
from bench.report import print_report


def main(
    rows: Annotated[int, typer.Option(min=growth.FEW, help="Effects in the large database.")] = 1_000_000,
    pairs: Annotated[int, typer.Option(min=10, help="Pairs of blocks of round trips, on each database.")] = 60,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document instead of tables.")] = False,
) -> None:
    """Measure the effect ledger on SQLite and PostgreSQL against a real Temporal server; leaves nothing behind."""
    measured = asyncio.run(_measure(rows, pairs))
    print_report(measured, as_json=as_json)


async def _measure(rows: int, pairs: int) -> Measured:
    with durable_databases() as databases:
        costs = await round_trip.measure_costs(databases, pairs)
        rates = await throughput.measure_throughput(databases)
        contended = await contention.measure_contention(databases)
        grown, plans = await growth.measure_growth(databases, rows)
    return Measured(costs, rates, contended, grown, plans)


if __name__ == "__main__":
    typer.run(main)
