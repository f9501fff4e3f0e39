"""How often a caller may send: a token bucket as a value; whoever keeps it brings the time."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class Rate(BaseModel):
    """So many requests per second in the long run, and so many at once after a pause."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    per_second: Annotated[int, Field(ge=1, le=100_000)]
    burst: Annotated[int, Field(ge=1, le=100_000)]


@dataclass(frozen=True)
class Bucket:
    """What is left at a moment: `tokens`, of which a request takes one, `at` in seconds of any steady clock."""

    tokens: float
    at: float


@dataclass(frozen=True)
class Taken:
    """What came of a request: the bucket afterwards, and for one that must wait, how many seconds (else 0)."""

    bucket: Bucket
    wait: float


def full(rate: Rate, now: float) -> Bucket:
    """Give the bucket of a caller who has not sent anything yet."""
    return Bucket(float(rate.burst), now)


def take(bucket: Bucket, rate: Rate, now: float) -> Taken:
    """Take one token at `now`; a refused request takes none. A clock that went back counts as one that stood still."""
    passed = max(0.0, now - bucket.at)
    tokens = min(float(rate.burst), bucket.tokens + passed * rate.per_second)
    at = max(bucket.at, now)
    if tokens >= 1:
        return Taken(Bucket(tokens - 1, at), 0.0)
    return Taken(Bucket(tokens, at), (1 - tokens) / rate.per_second)
