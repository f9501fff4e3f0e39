"""Roles and what they may do; an index on when orders ended."""

from alembic import op

from orderflow.ledger.schema import statements
from orderflow.ledger.statements import POSTGRES

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Make the roles and grant."""
    for statement in statements(revision, POSTGRES):
        op.execute(statement)
