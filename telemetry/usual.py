"""How long a stage usually takes between two engines: learned from what was delivered, in bounded memory."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from pushscope.telemetry.histogram import Histogram
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
_STEP: Final = 1.25
"""Of the histograms: what is usual is told up to a quarter too long."""


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
                histogram = times.get(stage.stage)
                if histogram is None:
                    histogram = times[stage.stage] = Histogram(_STEP, _FADE_AT)
                histogram.add(stage.end_ns - stage.start_ns)

    def __call__(self, p_engine: str | None, d_engine: str | None, stage: Stage) -> int | None:
        histogram = self._pairs.get((p_engine or "", d_engine or ""), {}).get(stage)
        return usual_ns(histogram) if histogram else None


def usual_ns(histogram: Histogram) -> int | None:
    """What all but one in a hundred, and one at least, didn't exceed, up to its bucket's end; None of too few."""
    if histogram.total < ENOUGH:
        return None
    return histogram.all_but_ns(max(1.0, histogram.total * (100 - PERCENT) / 100))
