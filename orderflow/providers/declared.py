"""What a provider is declared to be capable of by its settings, `ORDERFLOW_PROVIDER_<NAME>_<KEY>`.

KEY_HORIZON   how long it remembers an idempotency key: an ISO 8601 duration, `forever`, or `none`
LOOKUP_BY     by what it finds an act again: `key`, `merchant_reference`, both with a comma between, or `none`
LISTS         `true` if its list tells of every act
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Final

from orderflow.domain.durations import Duration
from orderflow.domain.effects import Capabilities, Handle
from orderflow.domain.errors import InvalidSettings, Problem

_NONE: Final = "none"


def declared(name: str, settings: Mapping[str, str], otherwise: Capabilities) -> Capabilities:
    """Give what `settings` of the provider `name` declare; what they leave out is as in `otherwise`.

    Raises:
        InvalidSettings: for what cannot be read and for settings that this provider does not have; names all of them.
    """
    read, problems = {}, []
    for key, text in settings.items():
        variable = f"ORDERFLOW_PROVIDER_{name.upper()}_{key.upper()}"
        try:
            read[key] = _READERS[key](text)
        except KeyError:
            problems.append(Problem(variable, f"is no setting of this provider; there are {', '.join(_READERS)}"))
        except ValueError as error:
            problems.append(Problem(variable, str(error)))
    if problems:
        raise InvalidSettings("; ".join(map(str, problems)), problems=tuple(problems))
    return replace(otherwise, **read)


def _horizon(text: str) -> timedelta | None:
    if text == "forever":
        return None
    try:
        return timedelta(0) if text == _NONE else Duration(text).timedelta
    except ValueError:
        raise ValueError("must be a duration such as PT24H, or forever, or none") from None


def _handles(text: str) -> frozenset[Handle]:
    try:
        return frozenset(Handle(part.strip()) for part in text.split(",")) if text != _NONE else frozenset()
    except ValueError:
        raise ValueError(f"must be none, or one or more of {', '.join(Handle)}") from None


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("must be true or false")
    return text == "true"


_READERS: Final[Mapping[str, Callable[[str], Any]]] = MappingProxyType(
    {"key_horizon": _horizon, "lookup_by": _handles, "lists": _flag}
)
