"""What no committed file may say: where its packages were downloaded, or where it lay on somebody's machine."""

import re
import tomllib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from tests.architecture.product import ROOT, name_of

LOCKS = sorted(ROOT.glob("requirements*.lock"))
DOT_FOLDERS = {".ci", ".github"}
LOCAL_FOLDER = re.compile(r"\.|(__pycache__|dist|secrets)$")
# In pieces, so that this file does not name them itself.
REGISTRY_HOSTS = [
    ".".join(labels)
    for labels in [
        ("pypi", "org"),
        ("python" + "hosted", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("yarnpkg", "com"),
        ("deb", "debian", "org"),
        ("security", "debian", "org"),
        ("crates", "io"),
        ("proxy", "golang", "org"),
    ]
]
MACHINE_PATHS = [f"/{folder}/" for folder in ["root", "work", "tmp/of", "tmp/v"]]


def committed_files(folder: Path = ROOT) -> Iterator[Path]:
    """The project's files without environments, caches, state and secrets."""
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.name not in {".env", ".git"}:  # in a worktree .git is a file
            yield path
        elif path.is_dir() and (path.name in DOT_FOLDERS or not LOCAL_FOLDER.match(path.name)):
            yield from committed_files(path)


def lines_with(words: list[str]) -> list[str]:
    """`file:line` of each line that holds one of `words`."""
    looked_for = re.compile("|".join(re.escape(word) for word in words))
    return [
        f"{name_of(path)}:{number}"
        for path in committed_files()
        for number, line in enumerate(path.read_text("utf-8", errors="replace").splitlines(), start=1)
        if looked_for.search(line)
    ]


def test_the_whole_project_is_looked_at() -> None:
    """Neither a dot file nor a lock file is left out."""
    names = {name_of(path) for path in committed_files()}
    assert names >= {".ci/run", ".pre-commit-config.yaml", "Makefile", "orderflow/__init__.py", "requirements.lock"}


@pytest.mark.parametrize("words", [REGISTRY_HOSTS, MACHINE_PATHS], ids=["registry hosts", "machine paths"])
def test_no_committed_file_names_a_registry_or_a_path_of_a_machine(words: list[str]) -> None:
    """Which registry serves the packages, and where the project lies, is for each machine to say."""
    assert lines_with(words) == []


def locked(path: Path) -> dict[str, str]:
    """Name and text of each requirement of a lock file."""
    requirements = re.split(r"\n(?=\S)", path.read_text("utf-8").strip())
    return {text.partition("==")[0]: text for text in requirements}


@pytest.mark.parametrize("path", LOCKS, ids=name_of)
def test_each_locked_package_has_one_version_and_hashes(path: Path) -> None:
    """What is installed is what was locked, byte for byte."""
    pattern = re.compile(r"[a-z0-9-]+==[^\s;]+( ; [^\n]+?)?( \\\n    --hash=sha256:[0-9a-f]{64})+")
    assert [name for name, text in locked(path).items() if not pattern.fullmatch(text)] == []


def test_the_lock_files_hold_what_pyproject_asks_for() -> None:
    """A dependency that was added is locked too, and the two files agree on versions: `make lock` writes both."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    core, everything = locked(ROOT / "requirements.lock"), locked(ROOT / "requirements-dev.lock")
    assert names_of([*project["dependencies"], *extras["postgres"]]) <= core.keys()
    assert names_of([*project["dependencies"], *chain(*extras.values())]) <= everything.keys()
    without_markers = [{re.sub(r" ; [^\\]+", " ", text) for text in lock.values()} for lock in (core, everything)]
    assert without_markers[0] <= without_markers[1]


def names_of(requirements: list[str]) -> set[str]:
    """The bare names of requirements."""
    return {re.split(r"[^A-Za-z0-9-]", requirement)[0] for requirement in requirements}
