"""The product's source as the architecture tests see it."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "orderflow"


def source_files(folder: Path = PACKAGE) -> list[Path]:
    """The Python files below `folder`, sorted; LookupError when there are none, so that no test looks at nothing."""
    files = sorted(folder.rglob("*.py"))
    if not files:
        raise LookupError(f"no Python file below {folder}")
    return files


def workflow_files() -> list[Path]:
    """The files that run inside the workflow sandbox: they use `temporalio.workflow`; LookupError as above."""
    files = [path for path in source_files() if "temporalio import workflow\n" in path.read_text("utf-8")]
    if not files:
        raise LookupError("no file imports temporalio.workflow")
    return files


def name_of(path: Path) -> str:
    """The path from the project's root, for test ids and messages."""
    return path.relative_to(ROOT).as_posix()


def dotted(node: ast.AST) -> str:
    """`a.b.c` for such an expression, the empty string for any other."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (owner := dotted(node.value)):
        return f"{owner}.{node.attr}"
    return ""


def imports(tree: ast.AST) -> Iterator[tuple[int, str, str]]:
    """Line, module and full name of each import: `a` and `a.b` for `from a import b`, where `b` may be a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield from ((node.lineno, module, f"{module}.{alias.name}") for alias in node.names)
