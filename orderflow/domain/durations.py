"""Durations as ISO 8601 text: whole weeks, days, hours, minutes and seconds (ISO 8601-1:2019, 5.5.2.2)."""

import datetime
import re
from typing import Any, Self

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

LONGEST = datetime.timedelta(days=3650)
"""Nothing here waits longer; it also keeps the arithmetic on durations far from its limits."""

_ISO_8601 = re.compile(
    r"P(?:(?P<weeks>[0-9]{1,9})W"
    r"|(?=[0-9T])(?:(?P<days>[0-9]{1,9})D)?"
    r"(?:T(?=[0-9])(?:(?P<hours>[0-9]{1,9})H)?(?:(?P<minutes>[0-9]{1,9})M)?(?:(?P<seconds>[0-9]{1,9})S)?)?)"
)


class Duration(str):
    """ISO 8601 text such as `PT10S` or `P1DT12H`; it stays text in JSON, so that a fingerprint has no floats.

    Raises `ValueError` for other text, for nothing (`PT0S`) and for more than ten years. Months and years have no
    fixed length and fractions no exact one, so neither is a duration here.
    """

    __slots__ = ()

    def __new__(cls, text: str) -> Self:  # noqa: D102 - the class docstring speaks for it, as for __init__
        _parse(text)
        return super().__new__(cls, text)

    @classmethod
    def of(cls, span: datetime.timedelta) -> Self:
        """The shortest text for `span`, rounded up to whole seconds."""
        seconds = -(-span // datetime.timedelta(seconds=1))
        minutes, seconds = divmod(seconds, 60)
        hours, minutes = divmod(minutes, 60)
        days, hours = divmod(hours, 24)
        time = "".join(f"{number}{unit}" for number, unit in ((hours, "H"), (minutes, "M"), (seconds, "S")) if number)
        return cls("P" + (f"{days}D" if days else "") + (f"T{time}" if time else ""))

    @property
    def timedelta(self) -> datetime.timedelta:
        """The same span of time as a `timedelta`."""
        return _parse(self)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(cls, core_schema.str_schema(strict=True))


def _parse(text: str) -> datetime.timedelta:
    match = _ISO_8601.fullmatch(text)
    if match is None:
        raise ValueError("must be an ISO 8601 duration in whole weeks, days, hours, minutes and seconds, such as PT10S")
    try:
        span = datetime.timedelta(**{unit: int(number) for unit, number in match.groupdict(default="0").items()})
    except OverflowError:
        span = datetime.timedelta.max
    if not datetime.timedelta(0) < span <= LONGEST:
        raise ValueError("must be longer than nothing and at most ten years (P3650D)")
    return span
