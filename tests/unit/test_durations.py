from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, ValidationError

from orderflow.domain.durations import LONGEST, Duration


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("PT10S", timedelta(seconds=10)),
        ("PT90M", timedelta(minutes=90)),
        ("P1DT2H3M4S", timedelta(days=1, hours=2, minutes=3, seconds=4)),
        ("P2W", timedelta(weeks=2)),
        ("P0DT1S", timedelta(seconds=1)),
        ("P3650D", LONGEST),
    ],
)
def test_iso_8601_text_is_that_span_of_time(text: str, span: timedelta) -> None:
    """Weeks, days, hours, minutes and seconds mean what ISO 8601 says."""
    assert Duration(text).timedelta == span


NO_DURATIONS = [
    *("", "10", "P", "PT", "P1", "PT1", "P1S", "PT1D", "PT1M1H", "P1DT", "P1W1D", "pt1s"),
    *("P1M", "P1Y", "P1Y2M", "PT0.5S", "PT1,5S", "-PT1S", "PT-1S", "+PT1S", "PT\u0661S"),
    *(" PT1S", "PT1S\n", "PT1S ", "PT 1S"),
]


@pytest.mark.parametrize("text", NO_DURATIONS, ids=ascii)
def test_other_text_is_no_duration(text: str) -> None:
    """Months, years, fractions, signs, other digits and unfinished text are refused, not guessed."""
    with pytest.raises(ValueError, match="ISO 8601"):
        Duration(text)


@pytest.mark.parametrize("text", ["PT0S", "P0D", "P0W", "P3651D", "PT999999999H", "P999999999W"])
def test_nothing_and_more_than_ten_years_are_refused(text: str) -> None:
    """A span of zero means "unlimited" to Temporal (T22), and a huge one overflows."""
    with pytest.raises(ValueError, match="longer than nothing and at most ten years"):
        Duration(text)


@given(st.integers(min_value=1, max_value=int(LONGEST.total_seconds())))
def test_every_whole_number_of_seconds_has_a_text_that_reads_back(seconds: int) -> None:
    """`Duration.of` and `timedelta` are inverse."""
    assert Duration.of(timedelta(seconds=seconds)).timedelta == timedelta(seconds=seconds)


def test_parts_of_a_second_are_rounded_up() -> None:
    """A stated minimum must never be too small."""
    assert Duration.of(timedelta(seconds=60, microseconds=1)) == "PT1M1S"


class Waiting(BaseModel):
    model_config = ConfigDict(strict=True)
    time: Duration


def test_a_duration_stays_text_in_json() -> None:
    """It crosses Temporal as it was written, and comes back as a duration."""
    waiting = Waiting.model_validate_json('{"time":"PT90S"}')
    assert waiting.model_dump_json() == '{"time":"PT90S"}'
    assert waiting.time.timedelta == timedelta(seconds=90)


@pytest.mark.parametrize("value", ["10", "null", "true", '"ten seconds"', '["PT1S"]'])
def test_only_text_of_the_right_form_becomes_a_duration(value: str) -> None:
    """Numbers of seconds and other guesses are refused by the model too."""
    with pytest.raises(ValidationError):
        Waiting.model_validate_json(f'{{"time":{value}}}')
