"""Two runs, stage by stage: what became faster or slower, and whether that is more than noise.

What a run varies by itself is taken from the run: its transfers, in the order of their end, are cut into ten stretches
of equally many, and the medians of the stretches tell how far the median moves without a cause. So what lasts for a
while (a burst, a slow start) widens the interval, as it should; it does not tell how one *run* differs from the next of
its kind.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Final

import msgspec

from pushscope.telemetry.report import Spread, spread_of, summarize
from pushscope.telemetry.transfer import Stage, Transfer

STRETCHES: Final = 10
LEAST: Final = 5 * STRETCHES
"""With fewer times on either side nothing is said of noise."""
_T: Final = 2.262
"""Student's t for 95 % and nine degrees of freedom: those of the run that varies more, and so rather too wide."""
_LEAST_S: Final = 1e-9


class Verdict(StrEnum):
    """What is to be thought of a difference."""

    FASTER = "faster"
    SLOWER = "slower"
    NOISE = "within noise"
    TOO_FEW = "too few to tell"
    ONE_SIDED = "in one only"


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One stage, or all exposed time, in both runs."""

    name: str
    """A stage, ``exposed`` or ``hidden``."""
    mode: str
    upper_bound: bool = False
    before: Spread
    after: Spread
    ratio: float | None = None
    """Of the medians, after over before."""
    low: float | None = None
    high: float | None = None
    """Its 95 % interval, by how much the two runs vary in themselves."""
    verdict: Verdict


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What one run was, apart from times."""

    source: str
    transfers: int
    outcomes: dict[str, int]
    retries: int
    num_bytes: int
    duration_s: float | None
    delivered_per_s: float | None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two runs side by side."""

    before: Run
    after: Run
    differences: tuple[Difference, ...]


def compare(before: tuple[str, Sequence[Transfer]], after: tuple[str, Sequence[Transfer]]) -> Comparison:
    """Compare two runs, each a label and its transfers. Of a stage that ranks pass side by side a transfer counts with
    its slowest one: that is what it waited for."""
    was, now = _times(before[1]), _times(after[1])
    order = {"exposed": -2, "hidden": -1, **{stage.value: n for n, stage in enumerate(Stage)}}
    keys = sorted(was.keys() | now.keys(), key=lambda key: (order[key[0]], key[1], key[2]))
    return Comparison(
        before=_run(*before),
        after=_run(*after),
        differences=tuple(_difference(key, was.get(key, []), now.get(key, [])) for key in keys),
    )


def comparison_json(comparison: Comparison) -> bytes:
    """The comparison as JSON, times in seconds."""
    return msgspec.json.encode(comparison, order="deterministic")


# --- the parts -----------------------------------------------------------------------------------------------

_Key = tuple[str, str, bool]
"""(name, mode, whether it is an upper bound)"""


def _times(transfers: Iterable[Transfer]) -> Mapping[_Key, list[float]]:
    """Seconds of each stage, in the order in which their transfers ended."""
    found: defaultdict[_Key, list[float]] = defaultdict(list)
    for t in sorted(transfers, key=lambda t: (t.closed_ns or t.since_ns, t.base_id)):
        for key, ns in _of(t):
            found[key].append(ns / 1e9)
    return found


def _of(t: Transfer) -> Iterator[tuple[_Key, int]]:
    slowest: dict[_Key, int] = {}
    for s in t.stages:
        if s.end_ns is not None:
            key = (s.stage.value, t.mode, s.upper_bound)
            slowest[key] = max(slowest.get(key, 0), s.end_ns - s.start_ns)
    yield from slowest.items()
    if t.exposed_ns is not None:
        yield ("exposed", t.mode, False), t.exposed_ns
    if t.hidden_ns is not None:
        yield ("hidden", t.mode, False), t.hidden_ns


def _difference(key: _Key, was: Sequence[float], now: Sequence[float]) -> Difference:
    name, mode, bound = key
    ratio, wide = None, None
    verdict = Verdict.ONE_SIDED
    if was and now:
        ratio, verdict = _log(statistics.median(now)) - _log(statistics.median(was)), Verdict.TOO_FEW
    if ratio is not None and min(len(was), len(now)) >= LEAST:
        wide = _T * math.hypot(_error(was), _error(now))
        verdict = Verdict.SLOWER if ratio > wide else Verdict.FASTER if ratio < -wide else Verdict.NOISE
    return Difference(
        name=name,
        mode=mode,
        upper_bound=bound,
        before=spread_of(was),
        after=spread_of(now),
        ratio=None if ratio is None else math.exp(ratio),
        low=None if ratio is None or wide is None else math.exp(ratio - wide),
        high=None if ratio is None or wide is None else math.exp(ratio + wide),
        verdict=verdict,
    )


def _error(seconds: Sequence[float]) -> float:
    """The standard error of the logarithm of the median, by the medians of its stretches."""
    ends = [round(n * len(seconds) / STRETCHES) for n in range(STRETCHES + 1)]
    medians = [_log(statistics.median(seconds[a:b])) for a, b in pairwise(ends)]
    return statistics.stdev(medians) / math.sqrt(STRETCHES)


def _log(seconds: float) -> float:
    return math.log(max(seconds, _LEAST_S))


def _run(source: str, transfers: Sequence[Transfer]) -> Run:
    report = summarize(transfers)
    return Run(
        source=source,
        transfers=report.transfers,
        outcomes=report.outcomes,
        retries=report.retries,
        num_bytes=report.num_bytes,
        duration_s=report.duration_s,
        delivered_per_s=report.delivered_per_s,
    )
