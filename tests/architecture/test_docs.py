"""README and docs say what is so: what they name exists, and what exists is named."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from orderflow.cli import app
from orderflow.definitions import packaged_definitions
from orderflow.settings import PREFIX, SECRETS_DIR, Settings
from tests.architecture.markdown import (
    README,
    Block,
    Link,
    anchors,
    blocks,
    defines,
    inline_code,
    links,
    pages,
    prose,
    rows,
    section,
)
from tests.architecture.product import PACKAGE, ROOT, name_of

ROOMS = ROOT / "docs" / "rooms.md"
LONGEST_README = 250
MAP, COMMANDS, SETTINGS = "## The map of rooms", "## Commands", "## Settings"
DECISIONS = sorted((ROOT / "docs" / "adr").glob("*.md"))
SHELLS = {"sh", "console", "powershell"}
BESIDES = {f"{PREFIX}TEST_MAX_CACHED_WORKFLOWS", f"{PREFIX}TEST_SERVER_BINARY", SECRETS_DIR}
IMPOSSIBLE_PROMISE = re.compile("exactly[- ]once", re.IGNORECASE)

Command = Any  # typer brings its own copy of click, whose classes have no public names


def test_the_readme_is_short() -> None:
    """What does not fit is a page of docs."""
    assert len(README.read_text("utf-8").splitlines()) <= LONGEST_README


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    """To a file or folder of the project, and to a heading that is there."""
    assert [link.target for link in links(page) if not _resolves(link)] == []


def _resolves(link: Link) -> bool:
    return link.file.exists() and (not link.anchor or link.anchor in anchors(link.file))


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_every_symbol_that_is_linked_is_defined_in_that_file(page: Path) -> None:
    """A function that moved takes its links along."""
    gone = [link for link in links(page) if link.symbol and link.file.exists() and not defines(link.file, link.symbol)]
    assert [f"{link.symbol} in {link.target}" for link in gone] == []


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_no_page_promises_what_no_distributed_system_can(page: Path) -> None:
    """The promise is at-least-once delivery, each effect applied once."""
    assert IMPOSSIBLE_PROMISE.findall(page.read_text("utf-8")) == []


def test_the_map_names_every_module_and_nothing_else() -> None:
    """A package's own row stands for its `__init__.py` and its data; scripts that alembic runs are data."""
    files = [path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py") if (path.parent / "__init__.py").is_file()]
    modules = {path.as_posix() for path in files if path.name != "__init__.py"}
    packages = {f"{path.parent.as_posix()}/" for path in files if path.name == "__init__.py"} - {"./"}
    named = [name for row in rows(section(ROOMS, MAP)) for name in inline_code(row[0])]
    assert sorted(named) == sorted(modules | packages)


def test_the_settings_table_is_complete() -> None:
    """Each field of `Settings` by its variable, and the folder of secrets."""
    named = [name for row in rows(section(README, SETTINGS)) for name in inline_code(row[0])]
    assert sorted(named) == sorted({PREFIX + field.upper() for field in Settings.model_fields} | {SECRETS_DIR})


def test_the_settings_table_tells_the_defaults() -> None:
    """Those that are a plain number or word."""
    told = {row[0].strip("`"): row[1].strip("`") for row in rows(section(README, SETTINGS))}
    plain = {PREFIX + name.upper(): field.default for name, field in Settings.model_fields.items() if field.default}
    assert {name: told[name] for name in plain} == {name: f"{default}" for name, default in plain.items()}


def test_every_setting_that_a_page_names_exists() -> None:
    """Somebody will copy it."""
    known = {PREFIX + field.upper() for field in Settings.model_fields} | BESIDES
    named = {
        (name_of(page), name)
        for page in pages()
        for name in re.findall(rf"\b{PREFIX}[A-Z_]+", page.read_text("utf-8"))
        if name not in known and not name.startswith(f"{PREFIX}PROVIDER_")
    }
    assert named == set()


def test_the_commands_table_names_every_verb() -> None:
    """What the program can do is in the README."""
    spoken = [words for row in rows(section(README, COMMANDS)) for words in _calls_in_prose(row[0])]
    assert {words[1] for words in spoken} == set(_root().commands)


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_every_command_of_ours_is_one_that_the_program_takes(page: Path) -> None:
    """Verbs and options, in fenced blocks and between backticks alike."""
    calls = [*_calls_in_blocks(page), *_calls_in_prose(prose(page))]
    assert [f"{shlex.join(words)}: {fault}" for words in calls if (fault := _fault(words))] == []


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_every_make_target_that_a_page_names_exists(page: Path) -> None:
    """And is one of the targets that `make help` lists."""
    targets = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    lines = [line for block in blocks(page) if block.language in SHELLS for line in _commands(block)]
    named = re.findall(r"^make (?:\w+=\S+ )?([a-z-]+)", "\n".join([*lines, *inline_code(prose(page))]), re.MULTILINE)
    assert [target for target in named if target not in targets] == []


def test_json_in_the_readme_is_part_of_the_shipped_definition() -> None:
    """An excerpt is cut out, not made up."""
    steps = [step for raw in packaged_definitions() for step in json.loads(raw)["steps"]]
    excerpts = [json.loads(block.text) for block in blocks(README) if block.language == "json"]
    assert excerpts
    assert [excerpt for excerpt in excerpts if excerpt not in steps] == []


@pytest.mark.parametrize("decision", DECISIONS, ids=name_of)
def test_a_decision_says_context_decision_and_consequences(decision: Path) -> None:
    """On one page, under its number, and the overview leads to it."""
    text = decision.read_text("utf-8")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Context", "Decision", "Consequences"]
    assert text.startswith(f"# {decision.name[:4]}: ")
    assert len(text.splitlines()) <= 60
    assert decision in [link.file for link in links(ROOT / "docs" / "overview.md")]


def test_decisions_are_numbered_without_gaps() -> None:
    """The next one takes the next number."""
    assert [int(decision.name[:4]) for decision in DECISIONS] == [*range(1, len(DECISIONS) + 1)]


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["orderflow", "validate", "--json"], ""),
        (["orderflow", "graph", "order.json", "--format", "svg"], ""),
        (["orderflow", "validat"], "no such verb"),
        (["orderflow", "graph", "--colour"], "no option --colour"),
    ],
)
def test_the_check_of_commands_tells_right_from_wrong(words: list[str], fault: str) -> None:
    """A check that finds nothing anywhere would keep nothing."""
    assert _fault(words) == fault


def _root() -> Command:
    return typer.main.get_command(app)


def _fault(words: list[str]) -> str:
    command, rest = _root(), words[1:]
    while subcommands := getattr(command, "commands", None):
        if not rest or rest[0].startswith("-"):
            break
        if rest[0] not in subcommands:
            return "no such verb"
        command, rest = subcommands[rest[0]], rest[1:]
    options = {"--help", *(name for param in command.params for name in (*param.opts, *param.secondary_opts))}
    strange = [word for word in rest if word.startswith("-") and word != "-" and word.partition("=")[0] not in options]
    return f"no option {strange[0]}" if strange else ""


def _calls_in_blocks(page: Path) -> Iterator[list[str]]:
    for block in blocks(page):
        if block.language in SHELLS:
            for line in _commands(block):
                yield from _calls(line)


def _commands(block: Block) -> list[str]:
    """The lines that are typed; in a `console` block those after the prompt."""
    lines = block.text.replace("\\\n", " ").splitlines()
    return [line[2:] for line in lines if line.startswith("$ ")] if block.language == "console" else lines


def _calls(line: str) -> Iterator[list[str]]:
    """Each call of our program in a line of shell, as its words."""
    for part in re.split(r"&&|\||;|\$\(|\)", line.partition(" #")[0]):
        words = shlex.split(part.replace("\\", "/")) if part.count("'") % 2 == 0 and part.count('"') % 2 == 0 else []
        for place, word in enumerate(words):
            if word.rpartition("/")[2] == "orderflow" and place + 1 < len(words):
                yield ["orderflow", *words[place + 1 :]]
                break


def _calls_in_prose(text: str) -> Iterator[list[str]]:
    """Calls between backticks; `a|b` stands for two of them, in brackets is what may be left out."""
    for code in inline_code(text.replace("\\|", "|")):
        words = re.sub(r"[\[\]]", "", code).split()
        if words[:1] != ["orderflow"] or len(words) < 2 or "…" in words[1]:
            continue
        place = next((place for place, word in enumerate(words) if "|" in word and not word.startswith("-")), 0)
        for choice in words[place].split("|") if 0 < place <= 2 else [words[place]]:
            yield [*words[:place], choice, *words[place + 1 :]] if place else words
