"""Effects and the attempts at them."""

from alembic import op

from orderflow.ledger.schema import statements
from orderflow.ledger.statements import POSTGRES

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the tables."""
    for statement in statements(revision, POSTGRES):
        op.execute(statement)
