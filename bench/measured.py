"""Everything that one run measures."""

from dataclasses import dataclass

from bench.contention import Contention
from bench.growth import Growth, Plans
from bench.round_trip import Cost
from bench.throughput import Throughput


@dataclass(frozen=True)
class Measured:
    """The parts, in the order in which they ran."""

    costs: list[Cost]
    throughput: list[Throughput]
    contention: list[Contention]
    growth: list[Growth]
    plans: Plans
