"""How often each caller may deliver: one bucket for each, of this process alone."""

import time
from collections.abc import Callable

from orderflow.domain.callers import Caller
from orderflow.domain.deliveries import Cause, DeliveryRefused
from orderflow.domain.rates import Bucket, full, take


class Rates:
    """The buckets of all callers by name; `clock` gives steady seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: dict[str, Bucket] = {}

    def take(self, caller: Caller) -> None:
        """Count one delivery. Raises `DeliveryRefused` when it came too soon; says when it would not have."""
        if caller.rate is None:
            return
        now = self._clock()
        taken = take(self._buckets.get(caller.name) or full(caller.rate, now), caller.rate, now)
        self._buckets[caller.name] = taken.bucket
        if taken.wait:
            agreed = f"{caller.rate.per_second} a second, {caller.rate.burst} at once"
            message = f"{caller.name} may deliver {agreed}; send this one again later"
            raise DeliveryRefused(Cause.RATE_LIMITED, message, retry_after=taken.wait)
