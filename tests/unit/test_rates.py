"""The token bucket: as often as agreed, and never more often."""

from hypothesis import given
from hypothesis import strategies as st

from orderflow.domain.rates import Bucket, Rate, full, take

rates = st.builds(Rate, per_second=st.integers(1, 1000), burst=st.integers(1, 200))
TOLERANCE = 1e-6


def test_a_caller_that_was_quiet_may_send_a_burst_and_then_waits() -> None:
    """Three at once, then one every half second; who waits as told is let in."""
    rate, now = Rate(per_second=2, burst=3), 100.0
    bucket = full(rate, now)
    for _ in range(3):
        taken = take(bucket, rate, now)
        assert taken.wait == 0
        bucket = taken.bucket
    assert take(bucket, rate, now).wait == 0.5
    assert take(bucket, rate, now + 0.25).wait == 0.25
    assert take(bucket, rate, now + 0.5).wait == 0


@given(rates, st.lists(st.floats(0, 0.5), min_size=1, max_size=300))
def test_in_no_time_are_more_let_in_than_agreed(rate: Rate, pauses: list[float]) -> None:
    """The burst, and what the time since the beginning brings."""
    now, let_in = 0.0, 0
    bucket = full(rate, now)
    for pause in pauses:
        now += pause
        taken = take(bucket, rate, now)
        bucket, let_in = taken.bucket, let_in + (taken.wait == 0)
        assert let_in <= rate.burst + now * rate.per_second + TOLERANCE


@given(rates, st.integers(1, 300))
def test_whoever_waits_as_told_is_let_in(rate: Rate, asked: int) -> None:
    """`Retry-After` is the truth."""
    bucket, now = full(rate, 0.0), 0.0
    for _ in range(asked):
        taken = take(bucket, rate, now)
        if taken.wait:
            now += taken.wait + TOLERANCE
            taken = take(taken.bucket, rate, now)
        assert taken.wait == 0
        bucket = taken.bucket


@given(rates, st.floats(0, 1e6), st.floats(0, 1e6))
def test_a_clock_that_goes_back_gives_nothing_away(rate: Rate, at: float, back: float) -> None:
    """Neither a burst now nor one when it has caught up."""
    empty = Bucket(0.0, at)
    taken = take(empty, rate, at - back)
    assert taken.wait > 0
    assert take(taken.bucket, rate, at).wait > 0


@given(rates, st.floats(0, 1e9))
def test_the_longest_pause_brings_no_more_than_a_burst(rate: Rate, pause: float) -> None:
    """What is not used is gone."""
    assert take(Bucket(0.0, 0.0), rate, pause).bucket.tokens <= rate.burst
