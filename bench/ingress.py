"""`python -m bench.ingress`: what the door costs beside the start of an order, and what it costs to refuse."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import typer

from bench.accepting import measure_accepting
from bench.databases import Databases, durable_databases
from bench.deliveries import ACCEPTED, bodies, connect_to, send_all, signed
from bench.doors import MeasuredDoor, measured_door
from bench.ingress_report import MeasuredIngress, print_report
from bench.refusing import measure_refusing
from bench.slow_senders import Besieged, measure_siege


def main(
    pairs: Annotated[int, typer.Option(min=5, help="Pairs of blocks of accepted events, on each database.")] = 30,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document instead of tables.")] = False,
) -> None:
    """Measure the door, on SQLite and on PostgreSQL, before a real Temporal server; leaves nothing behind."""
    print_report(asyncio.run(_measure(pairs)), as_json=as_json)


async def _measure(pairs: int) -> MeasuredIngress:
    with durable_databases() as databases:
        sqlite, postgres = databases.urls("door").items()
        async with _door_on(databases, *postgres) as door:
            on_postgres = await measure_accepting(door, postgres[0], pairs)
        async with _door_on(databases, *sqlite) as door:
            on_sqlite = await measure_accepting(door, sqlite[0], pairs)
            return MeasuredIngress((on_sqlite, on_postgres), await measure_refusing(door), await _siege(door))


@asynccontextmanager
async def _door_on(databases: Databases, database: str, url: str) -> AsyncIterator[MeasuredDoor]:
    folder = databases.folder / database
    folder.mkdir()
    async with measured_door(folder, url) as door:
        yield door


async def _siege(door: MeasuredDoor) -> Besieged:
    """A good sender's events, one after another, on one connection for as long as the door keeps it."""
    sent, connection = bodies("siege"), await connect_to(door.url)

    async def deliver() -> None:
        nonlocal connection
        if connection.is_over:
            await connection.aclose()
            connection = await connect_to(door.url)
        await send_all([connection], [signed(next(sent), door.secret)], ACCEPTED)

    try:
        return await measure_siege(door.url, door.pid, deliver)
    finally:
        await connection.aclose()


if __name__ == "__main__":
    typer.run(main)
