"""Events as the door received them, nonces of their deliveries, and the gates before new ones."""

from alembic import op

from orderflow.ledger.schema import statements
from orderflow.ledger.statements import POSTGRES

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Make the tables and grant."""
    for statement in statements(revision, POSTGRES):
        op.execute(statement)
