"""The systems outside, as Protocols: each backend answers the same typed answers for the same keys.

The Protocol and its answers are pure and stand in `orderflow.domain.effects`, so that the ledger, which guarantees that
each effect is applied once, can speak of them without importing a backend.
"""

from orderflow.domain.effects import (
    Absent,
    Act,
    Answer,
    Busy,
    Capabilities,
    Done,
    Found,
    Handle,
    Listed,
    Pending,
    Performed,
    Provider,
    Refused,
    Unavailable,
    Undone,
    Unknown,
)

__all__ = [
    "Absent",
    "Act",
    "Answer",
    "Busy",
    "Capabilities",
    "Done",
    "Found",
    "Handle",
    "Listed",
    "Pending",
    "Performed",
    "Provider",
    "Refused",
    "Unavailable",
    "Undone",
    "Unknown",
]
