"""Times in buckets of even ratio: how a set of times is spread, in bounded memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

FIRST_NS: Final = 1_000
"""The end of the first bucket: what is shorter lies in it too."""
_LONGEST_NS: Final = 5_000_000_000_000
"""83 minutes: what is longer lies in the last bucket."""


class Histogram:
    """Each bucket is ``step`` times as wide as the one before; the longest time is kept exactly."""

    __slots__ = ("_counts", "_fade_at", "_last", "_log_step", "max_ns", "total")

    def __init__(self, step: float, fade_at: int | None = None):
        """``fade_at``: so many times are kept in full; then all count half, so that what was long ago fades."""
        self._log_step = math.log(step)
        self._last = math.ceil(math.log(_LONGEST_NS / FIRST_NS) / self._log_step)
        self._fade_at = fade_at
        self._counts: dict[int, float] = {}
        self.total = 0.0
        """How many times it stands for."""
        self.max_ns = 0

    def add(self, ns: int) -> None:
        bucket = math.ceil(math.log(ns / FIRST_NS) / self._log_step) if ns > FIRST_NS else 0
        bucket = min(bucket, self._last)
        self._counts[bucket] = self._counts.get(bucket, 0) + 1
        self.total += 1
        self.max_ns = max(self.max_ns, ns)
        if self._fade_at is not None and self.total >= self._fade_at:
            self._counts = {b: count / 2 for b, count in self._counts.items() if count >= 1}
            self.total = sum(self._counts.values())

    def buckets(self) -> Iterator[tuple[float, float]]:
        """(the bucket's end in nanoseconds, how many lie in it) of those that have any, the shortest first."""
        for bucket in sorted(self._counts):
            yield FIRST_NS * math.exp(bucket * self._log_step), self._counts[bucket]

    def all_but_ns(self, number: float) -> int:
        """What all but so many times didn't exceed: the end of the bucket that this lies in."""
        left = self.total - number
        for end_ns, count in self.buckets():
            left -= count
            if left <= 0:
                return int(end_ns)
        return self.max_ns
