"""Each rule holds in the product, and each rule catches what it is there for."""

import ast
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.architecture import rules
from tests.architecture.product import PACKAGE, name_of, source_files, workflow_files

Rule = Callable[[ast.Module], Iterator[str]]

READS_THE_ENVIRONMENT = {"orderflow/settings.py"}
LONGEST_FILE = 350


def breaches(rule: Rule, files: list[Path]) -> list[str]:
    """What `rule` finds in `files`, each with its file."""
    return [f"{name_of(path)} {found}" for path in files for found in rule(ast.parse(path.read_text("utf-8")))]


@pytest.mark.parametrize("rule", [rules.impure_imports, rules.impure_calls])
def test_domain_imports_nothing_that_acts_and_reads_no_clock(rule: Rule) -> None:
    """The same arguments give the same answer on any machine at any time."""
    assert breaches(rule, source_files(PACKAGE / "domain")) == []


@pytest.mark.parametrize(
    "rule", [partial(rules.impure_imports, allowed=rules.WORKFLOWS_MAY_IMPORT), rules.impure_calls]
)
def test_workflow_code_imports_nothing_that_acts_and_reads_no_clock_but_its_own(rule: Rule) -> None:
    """What is passed through the sandbox is not watched by it: this watches it."""
    assert breaches(rule, workflow_files()) == []


@pytest.mark.parametrize("rule", [rules.unordered_waits, rules.set_iterations])
def test_workflow_code_has_no_order_that_differs_between_processes(rule: Rule) -> None:
    """T32: a history replays the same whatever the hash seed."""
    assert breaches(rule, workflow_files()) == []


def test_workflow_code_shares_no_mutable_state_between_runs() -> None:
    """T35: a warm cache in one worker must not change the commands of the next."""
    frozen = {name for path in source_files() for name in rules.frozen_classes(ast.parse(path.read_text("utf-8")))}
    assert breaches(partial(rules.shared_state, frozen=frozen), workflow_files()) == []


def test_only_settings_reads_the_environment() -> None:
    """What configures a process can be found in one place."""
    files = [path for path in source_files() if name_of(path) not in READS_THE_ENVIRONMENT]
    assert breaches(rules.environment_reads, files) == []


def test_no_check_of_the_product_vanishes_when_optimized() -> None:
    """`assert` is for tests: `python -O` removes it."""
    assert breaches(rules.assert_statements, source_files()) == []


def test_no_definition_has_a_name_that_says_nothing() -> None:
    """The words DESIGN section 12 does not use."""
    assert breaches(rules.vague_names, source_files()) == []


def test_no_file_has_a_name_that_says_nothing() -> None:
    """Neither a module nor a data file."""
    vague = rules.VAGUE_WORDS | {"process"}
    named = [path for path in sorted(PACKAGE.rglob("*")) if vague & set(path.stem.lower().replace(".", "_").split("_"))]
    assert [name_of(path) for path in named] == []


def test_no_file_outgrows_its_name() -> None:
    """A file past the limit wants a second name, not a higher limit."""
    files = [path for path in PACKAGE.rglob("*") if path.suffix in {".py", ".sql", ".json"}]
    lengths = {name_of(path): len(path.read_text("utf-8").splitlines()) for path in files}
    assert {name: length for name, length in lengths.items() if length > LONGEST_FILE} == {}


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        (rules.impure_imports, "import os"),
        (rules.impure_imports, "import socket, re"),
        (rules.impure_imports, "from urllib import parse, request"),
        (rules.impure_imports, "import orderflow.ledger"),
        (rules.impure_imports, "from . import events"),
        (rules.impure_imports, "import pydantic_settings"),
        (rules.impure_calls, "datetime.now(UTC)"),
        (rules.impure_calls, "open('order.json')"),
        (rules.environment_reads, "home = os.environ['HOME']"),
        (rules.environment_reads, "from os import getenv"),
        (rules.assert_statements, "if x:\n    assert y"),
        (rules.unordered_waits, "await asyncio.wait(tasks)"),
        (rules.unordered_waits, "from asyncio import as_completed"),
        (rules.unordered_waits, "key = id(step)"),
        (rules.set_iterations, "for step in {a, b}: ..."),
        (rules.set_iterations, "[s for s in set(steps)]"),
        (rules.set_iterations, "ready = set()\nlist(ready)"),
        (
            rules.set_iterations,
            "class A:\n  def f(self):\n    self.done: set[str] = set()\n    for s in self.done: ...",
        ),
        (rules.set_iterations, "def f(done: frozenset[str]): return ','.join(done)"),
        (rules.set_iterations, "await asyncio.gather(*(ready - done), *set(x))"),
        (rules.set_iterations, "first = set(steps).pop()"),
        (rules.shared_state, "SEEN = {}"),
        (rules.shared_state, "class A:\n    seen: list[str] = []"),
        (rules.shared_state, "if True:\n    SEEN = defaultdict(list)"),
        (rules.shared_state, "@dataclass\nclass A: ...\nSHARED = A()"),
        (rules.shared_state, "@functools.lru_cache(maxsize=None)\ndef load(): ..."),
        (rules.shared_state, "def f():\n    global seen"),
        (rules.vague_names, "class OrderManager: ..."),
        (rules.vague_names, "def process_order(): ..."),
        (rules.vague_names, "self.helper = 1"),
    ],
)
def test_a_rule_catches_its_breach(rule: Rule, code: str) -> None:
    """A rule that finds nothing anywhere would keep nothing."""
    assert len(list(rule(ast.parse(code)))) == 1


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        (
            rules.impure_imports,
            "from collections.abc import Mapping\nfrom urllib import parse\nfrom orderflow.domain.orders import Money",
        ),
        (rules.impure_calls, "when = workflow_now\nnow(x)"),
        (rules.environment_reads, "os.getpid()"),
        (rules.set_iterations, "done = set()\nx in done\nlen(done)\nfor s in sorted(done): ...\nqueue.pop(0)"),
        (
            rules.shared_state,
            "NAMES: Final = frozenset({'a'})\nPAIR = ('a', timedelta(seconds=1))\nclass A:\n    x: int = 0",
        ),
        (rules.shared_state, "@dataclass(frozen=True, slots=True)\nclass A: ...\nSHARED = A()"),
        (rules.vague_names, "def worker_process(): ...\nprocess = start()\n@contextmanager\ndef held(): ..."),
    ],
)
def test_a_rule_lets_pass_what_is_fine(rule: Rule, code: str) -> None:
    """A rule with false alarms would soon be worked around."""
    assert list(rule(ast.parse(code))) == []
