"""The tables of a ledger."""

from typing import Final

TABLES: Final = ("attempts", "effects", "endings", "review_items", "operations")
"""Those that hold what it remembers; the schema's own is none of them."""
