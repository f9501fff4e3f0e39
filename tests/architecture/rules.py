"""Rules that neither ruff nor import-linter can state: each takes a syntax tree and yields breaches, `line N: …`."""

import ast
import re
from collections.abc import Iterable, Iterator

from tests.architecture.product import dotted, imports

DOMAIN_MAY_IMPORT = {
    "annotated_types", "ciso8601", "orderflow.domain", "pydantic", "pydantic_core", "rfc8785", "typing_extensions",
    "abc", "base64", "binascii", "collections", "contextlib", "copy", "dataclasses", "datetime", "decimal", "difflib",
    "enum", "fractions", "functools", "graphlib", "hashlib", "heapq", "hmac", "itertools", "json", "math", "operator",
    "re", "string", "textwrap", "types", "typing", "unicodedata", "urllib.parse",
}  # fmt: skip
WORKFLOWS_MAY_IMPORT = DOMAIN_MAY_IMPORT | {"asyncio", "orderflow", "temporalio"}
CLOCKS = {"now", "utcnow", "today"}
ACTING_BUILTINS = {"__import__", "breakpoint", "eval", "exec", "input", "open", "print"}
ENVIRONMENT = {"os.environ", "os.environb", "os.getenv", "os.getenvb"}
UNORDERED_WAITS = {"asyncio.as_completed", "asyncio.wait"}
ADDRESS_ORDER = {"hash", "id"}
ORDER_TAKERS = {"enumerate", "extend", "filter", "iter", "join", "list", "map", "next", "reversed", "tuple", "zip"}
SET_METHODS = {"difference", "intersection", "symmetric_difference", "union"}
IMMUTABLE_MAKERS = {
    "ConfigDict", "Field", "MappingProxyType", "NewType", "RetryPolicy", "TemporalRetryPolicy", "TypeVar", "compile",
    "field", "for_keyword", "frozenset", "timedelta", "tuple",
}  # fmt: skip
CACHES = {"cache", "lru_cache"}
VAGUE_WORDS = {"helper", "helpers", "manager", "misc", "util", "utils"}


def impure_imports(tree: ast.AST, allowed: Iterable[str] = frozenset(DOMAIN_MAY_IMPORT)) -> Iterator[str]:
    """What may not be imported: all that is not on the list, by default that of `domain`."""
    for line, module, name in imports(tree):
        if not any(f"{known}.".startswith(f"{prefix}.") for known in (module, name) for prefix in allowed):
            yield f"line {line}: imports {name}"


def impure_calls(tree: ast.AST) -> Iterator[str]:
    """Calls that read a clock, other than the workflow's own, or act on the world."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = dotted(node.func)
            if called == "workflow.now":
                continue
            if called in ACTING_BUILTINS or ("." in called and called.rpartition(".")[2] in CLOCKS):
                yield f"line {node.lineno}: calls {called}"


def environment_reads(tree: ast.AST) -> Iterator[str]:
    """Every way to the process environment."""
    yield from (f"line {line}: imports {name}" for line, _, name in imports(tree) if name in ENVIRONMENT)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and dotted(node) in ENVIRONMENT:
            yield f"line {node.lineno}: {dotted(node)}"


def assert_statements(tree: ast.AST) -> Iterator[str]:
    """`assert`, which `python -O` removes."""
    yield from (f"line {node.lineno}: assert" for node in ast.walk(tree) if isinstance(node, ast.Assert))


def unordered_waits(tree: ast.AST) -> Iterator[str]:
    """Calls whose order differs between processes."""
    banned = UNORDERED_WAITS | ADDRESS_ORDER
    yield from (f"line {line}: imports {name}" for line, _, name in imports(tree) if name in UNORDERED_WAITS)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and dotted(node.func) in banned:
            yield f"line {node.lineno}: calls {dotted(node.func)}"


def set_iterations(tree: ast.AST) -> Iterator[str]:
    """Places where the order of a set decides something; `sorted(…)`, `in` and `len(…)` are fine."""
    named = set(_names_of_sets(tree))
    for node in ast.walk(tree):
        if any(_is_set(source, named) for source in _iterated(node)):
            yield f"line {getattr(node, 'lineno', '?')}: takes the order of a set: {ast.unparse(node).splitlines()[0]}"


def _iterated(node: ast.AST) -> Iterable[ast.expr]:
    if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
        return [node.iter]
    if isinstance(node, ast.Starred):
        return [node.value]
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "pop"
        and not node.args
    ):
        return [node.func.value]
    if isinstance(node, ast.Call) and _last_name(node.func) in ORDER_TAKERS:
        return node.args
    return []


def _is_set(node: ast.expr, named: set[str]) -> bool:
    if isinstance(node, ast.BinOp):
        return _is_set(node.left, named) or _is_set(node.right, named)
    if isinstance(node, ast.Call):
        return dotted(node.func) in {"set", "frozenset"} or _last_name(node.func) in SET_METHODS
    return isinstance(node, ast.Set | ast.SetComp) or dotted(node) in named


def _names_of_sets(tree: ast.AST) -> Iterator[str]:
    """Variables, attributes and parameters that are annotated as a set or get one assigned."""
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign | ast.arg) and node.annotation:
            name = node.arg if isinstance(node, ast.arg) else dotted(node.target)
            if re.search(
                r"\b(frozen)?set\b|\b(Abstract|Mutable)?Set\b", ast.unparse(node.annotation).partition("[")[0]
            ):
                yield name
        elif isinstance(node, ast.Assign) and _is_set(node.value, set()):
            yield from (dotted(target) for target in node.targets)


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else dotted(node)


def shared_state(tree: ast.Module, frozen: Iterable[str] = ()) -> Iterator[str]:
    """Mutable values of the module or of a class, `global`, caches; `frozen`: immutable classes of other modules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            yield f"line {node.lineno}: global"
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            used = {_last_name(mark.func if isinstance(mark, ast.Call) else mark) for mark in node.decorator_list}
            yield from (f"line {node.lineno}: @{name}" for name in sorted(used & CACHES))
    yield from _mutable_values(tree.body, IMMUTABLE_MAKERS | {*frozen, *frozen_classes(tree)})


def _mutable_values(body: list[ast.stmt], makers: set[str]) -> Iterator[str]:
    for statement in body:
        if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
            if statement.value and not _is_immutable(statement.value, makers):
                yield f"line {statement.lineno}: {ast.unparse(statement)}"
        elif not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _mutable_values([*getattr(statement, "body", []), *getattr(statement, "orelse", [])], makers)


def frozen_classes(tree: ast.Module) -> Iterator[str]:
    """Named tuples and frozen data classes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            marks = " ".join(ast.unparse(mark) for mark in [*node.decorator_list, *node.bases])
            if re.search(r"\bNamedTuple\b|\bdataclass\(.*\bfrozen=True", marks):
                yield node.name


def _is_immutable(node: ast.expr, makers: set[str]) -> bool:
    if isinstance(node, ast.Call):
        return _last_name(node.func) in makers
    if isinstance(node, ast.Tuple):
        return all(_is_immutable(item, makers) for item in node.elts)
    if isinstance(node, ast.BinOp):
        return _is_immutable(node.left, makers) and _is_immutable(node.right, makers)
    return isinstance(node, ast.Constant | ast.Name | ast.Attribute | ast.Subscript | ast.JoinedStr | ast.UnaryOp)


def vague_names(tree: ast.AST) -> Iterator[str]:
    """Definitions named by a word that says nothing. A program that runs is a process; no function may "process"."""
    for node in ast.walk(tree):
        for name in _defined_names(node):
            words = _words(name)
            if VAGUE_WORDS & set(words) or (
                words[:1] == ["process"] and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            ):
                yield f"line {getattr(node, 'lineno', '?')}: {name}"


def _defined_names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.arg):
        return [node.arg]
    if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
        return [_last_name(node)]
    return []


def _words(name: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)]
