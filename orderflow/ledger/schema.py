"""The ledger's schema as numbered steps: `migrations/versions/NNNN_*.sql`, each with an alembic revision beside it.

The same SQL makes both backends. SQLite runs what is missing when a ledger is opened and counts it in `user_version`;
on PostgreSQL `orderflow db upgrade` runs it through alembic, which keeps the revision in the table `ledger_schema`.
"""

from importlib.resources import files
from typing import Final

from orderflow.domain.errors import InvalidSettings
from orderflow.ledger.statements import Dialect, load_statements

UPGRADE: Final = "orderflow db upgrade"

UPGRADE_LOCK: Final = 0x6F72646572666C6F
"""The advisory lock that keeps two upgrades of a PostgreSQL ledger apart: the letters `orderflo`."""

ROLES: Final = ("orderflow_worker", "orderflow_ingress", "orderflow_operator", "orderflow_keeper", "orderflow_reader")
"""The group roles that revision 0003 makes on a PostgreSQL server, each with the least that it needs."""

_VERSIONS = "migrations/versions"


def _revisions() -> dict[str, str]:
    names = sorted(file.name for file in files("orderflow.ledger").joinpath(_VERSIONS).iterdir())
    return {name[:4]: name for name in names if name.endswith(".sql")}


REVISIONS: Final = tuple(_revisions())
"""The revisions that this orderflow knows, `0001` and so on, oldest first."""

LATEST: Final = REVISIONS[-1]
"""The schema that this orderflow works with."""


def statements(revision: str, dialect: Dialect) -> list[str]:
    """Give what `revision` does to a ledger that has the revision before it."""
    return list(load_statements(f"{_VERSIONS}/{_revisions()[revision]}", dialect).values())


def require_known(found: str | None, ledger: str) -> None:
    """Raise `InvalidSettings` if `ledger`, as people know it, has a schema that this orderflow has never heard of."""
    if found is not None and found not in REVISIONS:
        raise InvalidSettings(f"{ledger} has schema {found}, this orderflow knows {LATEST}; run the newer one")


def require_latest(found: str | None, ledger: str) -> None:
    """Raise `InvalidSettings` unless `ledger` has the schema that this orderflow works with; says what to run."""
    require_known(found, ledger)
    if found is None:
        raise InvalidSettings(f"{ledger} has no tables yet; run `{UPGRADE}`")
    if found != LATEST:
        raise InvalidSettings(f"{ledger} has schema {found}, this orderflow needs {LATEST}; run `{UPGRADE}`")
