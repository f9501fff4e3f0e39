"""What alembic runs: the missing revisions, on the connection that `orderflow.ledger.upgrade` opened.

All of them are one transaction, so a migration that fails leaves nothing behind. A lock that ends with that transaction
(D06) keeps a second upgrade waiting until there is nothing left for it to do.
"""

from alembic import context
from sqlalchemy import text

from orderflow.ledger.schema import UPGRADE_LOCK

context.configure(connection=context.config.attributes["connection"], version_table="ledger_schema")
with context.begin_transaction():
    context.execute(text(f"SELECT pg_advisory_xact_lock({UPGRADE_LOCK})"))
    context.run_migrations()
