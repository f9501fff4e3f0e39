import gc
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from tests.support.postgres import Postgres

# Asserts in modules that tests share explain themselves too, and run under `python -O`. Not "tests" itself: it is
# imported before this file.
pytest.register_assert_rewrite(
    *(f"tests.{path.stem}" for path in Path(__file__).parent.iterdir() if path != Path(__file__))
)


def pytest_collection_finish() -> None:
    """Keep thousands of collected tests out of each collection of garbage: in a workflow it may take two seconds."""
    gc.collect()
    gc.freeze()


# How long an example takes says more about the machine than about the code.
settings.register_profile("any-machine", settings.default, deadline=None)
settings.load_profile("any-machine")


@pytest.fixture(scope="session")
def postgres() -> "Iterator[Postgres]":
    """A real PostgreSQL for all tests of a session that ask for it; one that is missing is an error, not a skip."""
    from tests.support.postgres import running_postgres  # after the line above that rewrites its asserts

    with running_postgres() as server:
        yield server
