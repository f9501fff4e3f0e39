"""README and docs as their tests see them: links, fenced blocks, tables, and the symbols that links point at."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.architecture.product import ROOT

README = ROOT / "README.md"

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[([^\]\n]*)\]\(([^)\s]+)\)")
_CODE = re.compile(r"`([^`\n]+)`")
_SYMBOL = re.compile(r"`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?:\(\))?`")


@dataclass(frozen=True)
class Link:
    """`[text](target)` in `page`."""

    page: Path
    text: str
    target: str

    @property
    def file(self) -> Path:
        """The file or folder that it points at; the page itself for `#anchor`."""
        path = self.target.partition("#")[0]
        return (self.page.parent / path).resolve() if path else self.page

    @property
    def anchor(self) -> str:
        """What stands behind `#`."""
        return self.target.partition("#")[2]

    @property
    def symbol(self) -> str:
        """The name that the text gives to something in a Python file; empty when it gives none."""
        named = _SYMBOL.fullmatch(self.text)
        return named[1] if named and self.file.suffix == ".py" and not self.text.endswith(".py`") else ""


@dataclass(frozen=True)
class Block:
    """A fenced block of `page`: its language and its text."""

    page: Path
    language: str
    text: str


def pages() -> list[Path]:
    """Every page that is written for people."""
    return [README, ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page."""
    return [Block(page, language, text) for language, text in _FENCE.findall(page.read_text("utf-8"))]


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return _FENCE.sub("", page.read_text("utf-8"))


def links(page: Path) -> Iterator[Link]:
    """The links of a page that stay in the project."""
    for text, target in _LINK.findall(prose(page)):
        if "://" not in target:
            yield Link(page, text, target)


def inline_code(text: str) -> list[str]:
    """What stands between backticks."""
    return _CODE.findall(text)


def section(page: Path, heading: str) -> str:
    """The text below a heading, up to the next one of its level; LookupError when there is none."""
    level = heading.partition(" ")[0]
    found = re.search(
        rf"^{re.escape(heading)}\n(.*?)(?=^#{{1,{len(level)}}} |\Z)", prose(page), re.MULTILINE | re.DOTALL
    )
    if found is None:
        raise LookupError(f"{page.name} has no section {heading}")
    return found[1]


def rows(text: str) -> list[list[str]]:
    """The rows of the tables in `text` as their cells, headers left out."""
    lines = re.findall(r"^\| (.+) \|$", text, re.MULTILINE)
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)] for line in lines]
    rules = [number for number, row in enumerate(cells) if set(row[0]) <= {"-", ":"} and row[0]]
    return [row for number, row in enumerate(cells) if number not in rules and number + 1 not in rules]


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def defines(file: Path, symbol: str) -> bool:
    """Whether a Python file defines `name`, `Class.method` or `Class.attribute`."""
    scope: list[ast.stmt] = ast.parse(file.read_text("utf-8")).body
    for name in symbol.split("."):
        found = [statement for statement in scope if name in _names(statement)]
        if not found:
            return False
        scope = getattr(found[0], "body", [])
    return True


def _names(statement: ast.stmt) -> list[str]:
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return [statement.name]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case ast.Assign():
            return [target.id for target in statement.targets if isinstance(target, ast.Name)]
    return []
