"""Reads the named, explained statements of the `.sql` files beside this module."""

import re
from importlib.resources import files

_NAMED = re.compile(r"^-- name: (\w+)\n(.*?)(?=^-- name: |\Z)", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"^\s*--.*\n?", re.MULTILINE)


def load_statements(file: str, *, clock: str) -> dict[str, str]:
    """Give the statements of `sql/<file>` by name, in the file's order.

    `clock` is the backend's expression for its own time in whole milliseconds since 1970; it replaces `now_ms()`.
    """
    text = files("orderflow.ledger").joinpath("sql", file).read_text(encoding="utf-8")
    return {
        name: _COMMENT.sub("", body).replace("now_ms()", clock).strip().removesuffix(";")
        for name, body in _NAMED.findall(text)
    }
