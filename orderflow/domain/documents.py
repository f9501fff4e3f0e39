"""Documents that people write: strict JSON, then a strict model; every fault by its JSON path, no value repeated."""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError

from orderflow.domain.errors import InvalidInput, InvalidJson, InvalidSettings, Problem
from orderflow.domain.intents import canonical_json
from orderflow.domain.problems import problems_in, summary
from orderflow.domain.strict_json import MAX_BYTES, read_json

MAX_SET_BYTES: Final = 1024 * 1024
"""Of a set of keys, callers or subscribers."""

_M = TypeVar("_M", bound=BaseModel)


def _as_it_is(problem: Problem) -> Problem:
    return problem


def read_model(
    model: type[_M],
    raw: bytes,
    where: str,
    *,
    kind: type[InvalidInput] = InvalidSettings,
    max_bytes: int = MAX_BYTES,
    explained: Callable[[Problem], Problem] = _as_it_is,
) -> _M:
    """Read `raw` as a `model`; a byte order mark is taken. `where` is what errors call it.

    Raises `kind` with every fault; `explained` may say one of the model better than pydantic does.
    """
    try:
        value = read_json(raw, max_bytes=max_bytes, allow_bom=True)
        return model.model_validate_json(canonical_json(value))
    except InvalidJson as error:
        problems: Sequence[Problem] = error.problems
    except ValidationError as error:
        problems = [explained(problem) for problem in problems_in(error)]
    raise document_refused(where, problems, kind)


def document_refused(
    where: str, problems: Sequence[Problem], kind: type[InvalidInput] = InvalidSettings
) -> InvalidInput:
    """Give the error for a document with these faults."""
    return kind(f"{where}: {summary(tuple(problems))}", path=problems[0].path, problems=tuple(problems))
