"""How long a stage usually takes between two engines: learned from what was delivered, in bounded memory."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Final

from pushscope.telemetry.transfer import Outcome, Stage, Transfer

PERCENT: Final = 99
ENOUGH: Final = 20
"""Of fewer times nothing is said."""
MAX_PAIRS: Final = 1_024
_FADE_AT: Final = 4_096
"""So many times are kept in full; then all count half, so that what was long ago fades."""
_WELL_KNOWN: Final = 512
_EVERY: Final = 8
"""Of a pair that is well known only every so-many-th transfer is looked at."""
_STEP: Final = math.log(1.25)
_FIRST_NS: Final = 1_000
_BUCKETS: Final = 100
"""1 µs times 1.25 to the 100th: 80 minutes."""


class Histogram:
    """Times in buckets, each a quarter wider than the one before."""

    __slots__ = ("_counts", "_total")

    def __init__(self) -> None:
        self._counts: dict[int, float] = {}
        self._total = 0.0

    def add(self, ns: int) -> None:
        bucket = math.ceil(math.log(max(ns, _FIRST_NS) / _FIRST_NS) / _STEP)
        bucket = min(bucket, _BUCKETS)
        self._counts[bucket] = self._counts.get(bucket, 0.0) + 1.0
        self._total += 1.0
        if self._total >= _FADE_AT:
            self._counts = {b: count / 2 for b, count in self._counts.items() if count >= 1}
            self._total = sum(self._counts.values())

    def percentile_ns(self) -> int | None:
        """What all but one in a hundred, and one at least, didn't exceed, up to its bucket's end; None of too few."""
        if self._total < ENOUGH:
            return None
        left = self._total - max(1.0, self._total * (100 - PERCENT) / 100)
        for bucket in sorted(self._counts):
            left -= self._counts[bucket]
            if left <= 0:
                break
        return int(_FIRST_NS * math.exp(bucket * _STEP))


class UsualTimes:
    """Learns from delivered transfers; call it as :data:`pushscope.telemetry.diagnosis.case.Usual`."""

    def __init__(self) -> None:
        self._pairs: OrderedDict[tuple[str, str], dict[Stage, Histogram]] = OrderedDict()
        self._seen: dict[tuple[str, str], int] = {}

    def learn(self, transfer: Transfer) -> None:
        """Take in the stages of a transfer, if it was delivered and both engines are known."""
        if transfer.outcome is not Outcome.DELIVERED or not transfer.p_engine or not transfer.d_engine:
            return
        pair = (transfer.p_engine, transfer.d_engine)
        seen = self._seen[pair] = self._seen.get(pair, 0) + 1
        if seen > _WELL_KNOWN and seen % _EVERY:
            return
        times = self._pairs.get(pair)
        if times is None:
            times = self._pairs[pair] = {}
            if len(self._pairs) > MAX_PAIRS:
                del self._seen[self._pairs.popitem(last=False)[0]]
        self._pairs.move_to_end(pair)
        for stage in transfer.stages:
            if stage.end_ns is not None:
                times.setdefault(stage.stage, Histogram()).add(stage.end_ns - stage.start_ns)

    def __call__(self, p_engine: str | None, d_engine: str | None, stage: Stage) -> int | None:
        histogram = self._pairs.get((p_engine or "", d_engine or ""), {}).get(stage)
        return histogram.percentile_ns() if histogram else None
