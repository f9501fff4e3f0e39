"""Endings of orders, review items and operations."""

from alembic import op

from orderflow.ledger.schema import statements
from orderflow.ledger.statements import POSTGRES

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the tables."""
    for statement in statements(revision, POSTGRES):
        op.execute(statement)
