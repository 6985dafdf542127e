"""How long each stage takes, of what has ended while one watched: per mode, and per rank with the one that is slow."""

from __future__ import annotations

import msgspec

from pushscope.telemetry.transfer import Rank, Stage


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
    """The median of what the engine's other ranks usually take; None of an engine with one rank."""
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
