"""The effect store on a real ledger against a plain model of it, whoever stops or dies between any two steps (issue 3).

What is compared is said in `machine.py`, what the bank promises in `bank.py`, the ledger in `reference.py`.

A failure prints its shortest program of steps, and a line `@reproduce_failure('6.…', b'…')`. To see the same again,
with the same release of hypothesis:

    ORDERFLOW_TEST_MODEL_REPLAY='the text between b and )' python -m pytest tests/model -k sqlite

To look for longer than a suite should take (a second for each ten examples on SQLite, each five on PostgreSQL):

    ORDERFLOW_TEST_MODEL_EXAMPLES=5000 python -m pytest tests/model -k effects_on

Without that variable the examples are the same in each run, as is, nearly, the time; with it they are others each time.
"""

from pathlib import Path

import pytest

from tests.model.harness import examples, explore, on_postgres, on_sqlite
from tests.support.postgres import Postgres

pytestmark = pytest.mark.timeout(600 + examples(0))


def test_effects_on_sqlite_are_what_the_model_says(tmp_path: Path) -> None:
    """Each effect applied once, and told as it is, whatever dies (I03, I05, I06, T02, T07, D06)."""
    with on_sqlite(tmp_path) as harness:
        explore(harness, max_examples=examples(150))


def test_effects_on_postgres_are_what_the_model_says(postgres: Postgres) -> None:
    """The same on PostgreSQL (I03, I05, I06, T02, T07, D06)."""
    with on_postgres(postgres) as harness:
        explore(harness, max_examples=examples(40))
