"""How long each stage takes, of what has ended while one watched: per mode, and per rank with the one that is slow."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from heapq import nsmallest
from itertools import accumulate
from typing import Final

import msgspec

from pushscope.telemetry import units
from pushscope.telemetry.histogram import Histogram
from pushscope.telemetry.transfer import P_STAGES, Rank, Stage, Transfer

SHAPE_BOUNDS_S: Final = (*(k * 10.0**power for power in range(-6, 2) for k in (1, 3)), 100.0)
"""1 µs, 3 µs, 10 µs ... 100 s."""
MAX_RANKS: Final = 200
MAX_ENGINES: Final = 128
"""Of so many engines ranks are kept apart: those that had transfers last."""
ENOUGH: Final = 20
"""A rank with fewer times is neither called slow nor compared with."""
OUTLIER_RATIO: Final = 1.5
OUTLIER_S: Final = 0.001
"""A rank is slow by both: half as long again, which is ten times what a bucket's width can feign, and by a
millisecond, for below that the ranks differ by when their loops come round."""
PRECISE: Final = 1.1
"""The step of histograms whose percentiles are to be less than 5 % off: see ``times_of``."""
_MIDDLE: Final = PRECISE**-0.5
"""Times a bucket's end: where in it a time is taken to lie, less than 5 % off."""


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """How a set of times is spread, from a histogram of bounded size; None if there are none."""

    count: int = 0
    p50_s: float | None = None
    p90_s: float | None = None
    p99_s: float | None = None
    max_s: float | None = None
    shape: tuple[int, ...] = ()
    """How many lie in each bucket of ``SHAPE_BOUNDS_S``; the last are those beyond."""


class StagePace(msgspec.Struct, frozen=True, kw_only=True):
    """One stage in one mode, each rank's interval counted by itself."""

    mode: str
    stage: Stage
    upper_bound: bool = False
    """The times are upper bounds (``wire`` seen by P alone)."""
    times: Times


class RankPace(msgspec.Struct, frozen=True, kw_only=True):
    """One stage on one rank of one engine."""

    engine: str
    rank: Rank
    stage: Stage
    times: Times
    others_p50_s: float | None = None
    """The median of what the engine's other ranks usually take; None if there are none, or not enough is known."""
    outlier: bool = False
    """This rank takes clearly longer than the others."""


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """The pace of all transfers that ended while one watched, or since a mark."""

    transfers: int = 0
    exposed: dict[str, Times] = {}
    """By mode: blocks staged at P -> decode scheduled at D."""
    stages: tuple[StagePace, ...] = ()
    ranks: tuple[RankPace, ...] = ()
    """The outliers first; of engines with one rank too. Bounded."""


# --- the folds ------------------------------------------------------------------------------------------------------

_STAGE_ORDER: Final = {stage: position for position, stage in enumerate(Stage)}
_AT_P: Final = P_STAGES | {Stage.WIRE}


class _Series:
    """The times of one thing, and what was told of them last."""

    __slots__ = ("_histogram", "_told")

    def __init__(self) -> None:
        self._histogram = Histogram(PRECISE)
        self._told: Times | None = None

    def add(self, ns: int) -> None:
        self._histogram.add(max(0, ns))
        self._told = None

    def times(self) -> Times:
        if self._told is None:
            self._told = times_of(self._histogram)
        return self._told


class StageFold:
    """The pace of transfers that have ended, whatever their ranks: exposed time and stages, by mode."""

    def __init__(self) -> None:
        self.transfers = 0
        self._exposed: dict[str, _Series] = {}
        self._stages: dict[tuple[str, Stage, bool], _Series] = {}

    def add(self, transfer: Transfer) -> None:
        """Count an ended transfer in. Stages that did not end are not counted."""
        self.transfers += 1
        if transfer.exposed_ns is not None:
            self._exposed.setdefault(transfer.mode, _Series()).add(transfer.exposed_ns)
        for s in transfer.stages:
            if s.end_ns is not None:
                key = (transfer.mode, s.stage, s.upper_bound)
                if (series := self._stages.get(key)) is None:
                    series = self._stages[key] = _Series()
                series.add(s.end_ns - s.start_ns)

    def exposed(self) -> dict[str, Times]:
        """By mode."""
        return {mode: series.times() for mode, series in sorted(self._exposed.items())}

    def stages(self) -> tuple[StagePace, ...]:
        """By mode, in the order in which a request meets them."""
        keys = sorted(self._stages, key=lambda key: (key[0], _STAGE_ORDER[key[1]], key[2]))
        return tuple(
            StagePace(
                mode=mode, stage=stage, upper_bound=bound, times=self._stages[mode, stage, bound].times()
            )
            for mode, stage, bound in keys
        )


class PaceFold:
    """The pace of transfers that have ended, and of each rank. What did not change is not computed again."""

    def __init__(self) -> None:
        self._all = StageFold()
        self._engines: dict[str, dict[Stage, _Ranks]] = {}
        """The one that had a transfer last comes last."""
        self._told: Pace | None = None

    def add(self, transfer: Transfer) -> None:
        """Count an ended transfer in. Of a stage that only has an upper bound no rank is told."""
        self._told = None
        self._all.add(transfer)
        of_p, of_d = self._of(transfer.p_engine), self._of(transfer.d_engine)
        at_p = _AT_P if transfer.mode == "push" else frozenset()
        for s in transfer.stages:
            stages, rank = (of_p, s.rank) if s.stage in at_p else (of_d, s.peer_rank)
            if stages is not None and rank is not None and s.end_ns is not None and not s.upper_bound:
                if (ranks := stages.get(s.stage)) is None:
                    ranks = stages[s.stage] = _Ranks()
                ranks.add(rank, s.end_ns - s.start_ns)

    def _of(self, engine: str | None) -> dict[Stage, _Ranks] | None:
        if engine is None:
            return None
        stages = self._engines[engine] = self._engines.pop(engine, {})
        if len(self._engines) > MAX_ENGINES:
            del self._engines[next(iter(self._engines))]
        return stages

    def pace(self) -> Pace:
        """What all of it amounts to by now."""
        if self._told is None:
            self._told = Pace(
                transfers=self._all.transfers,
                exposed=self._all.exposed(),
                stages=self._all.stages(),
                ranks=tuple(nsmallest(MAX_RANKS, self._ranks(), key=_slowest_first)),
            )
        return self._told

    def _ranks(self) -> Iterator[RankPace]:
        for engine, stages in self._engines.items():
            for stage, ranks in stages.items():
                yield from ranks.told(engine, stage)


class _Ranks:
    """One stage on the ranks of one engine."""

    __slots__ = ("_by_rank", "_told")

    def __init__(self) -> None:
        self._by_rank: dict[Rank, _Series] = {}
        self._told: tuple[RankPace, ...] | None = None

    def add(self, rank: Rank, ns: int) -> None:
        if (series := self._by_rank.get(rank)) is None:
            series = self._by_rank[rank] = _Series()
        series.add(ns)
        self._told = None

    def told(self, engine: str, stage: Stage) -> tuple[RankPace, ...]:
        if self._told is None:
            times = {rank: series.times() for rank, series in sorted(self._by_rank.items())}
            self._told = tuple(_compared(engine, stage, rank, times) for rank in times)
        return self._told


def _compared(engine: str, stage: Stage, rank: Rank, times: dict[Rank, Times]) -> RankPace:
    """The times of one rank, by those of the others."""
    own = times[rank]
    others = [t.p50_s for r, t in times.items() if r != rank and t.count >= ENOUGH and t.p50_s is not None]
    usual_s = units.percentile(others, 50)
    outlier = (
        usual_s is not None
        and own.p50_s is not None
        and own.count >= ENOUGH
        and own.p50_s >= max(usual_s * OUTLIER_RATIO, usual_s + OUTLIER_S)
    )
    return RankPace(engine=engine, rank=rank, stage=stage, times=own, others_p50_s=usual_s, outlier=outlier)


def _slowest_first(pace: RankPace) -> tuple[bool, float, str, int, Rank]:
    return not pace.outlier, -(pace.times.p99_s or 0.0), pace.engine, _STAGE_ORDER[pace.stage], pace.rank


def times_of(histogram: Histogram) -> Times:
    """How the times of a histogram are spread: nearest-rank percentiles, less than 5 % off; the longest is exact."""
    if not histogram.total:
        return Times()
    max_s = histogram.max_ns / 1e9
    ends_ns, numbers = zip(*histogram.buckets(), strict=True)
    seconds = [min(end_ns * _MIDDLE / 1e9, max_s) for end_ns in ends_ns]
    shape = [0] * (len(SHAPE_BOUNDS_S) + 1)
    for value, number in zip(seconds, numbers, strict=True):
        shape[bisect_left(SHAPE_BOUNDS_S, value)] += int(number)
    up_to = list(accumulate(numbers))
    count = int(up_to[-1])
    p50_s, p90_s, p99_s = (
        seconds[bisect_left(up_to, units.nearest_rank(count, percent))] for percent in (50, 90, 99)
    )
    return Times(count=count, p50_s=p50_s, p90_s=p90_s, p99_s=p99_s, max_s=max_s, shape=tuple(shape))
