"""The figures: counters, sums and histograms by family and label values. Plain data, saved as it is."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, NamedTuple

import msgspec

from pushscope.telemetry.metrics.family import Family

Labels = tuple[str, ...]
"""Values of a family's own labels, in its order."""
MAX_PEERS: Final = 256
"""Of one engine. Beyond, the peer that it had to do with longest ago is dropped with its figures."""


class Seen(NamedTuple):
    """Where an observation can be looked at: a span, and when it ended."""

    trace_id: str
    span_id: str
    unix_s: float


class Exemplar(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The newest observation of a bucket that has a span."""

    trace_id: str
    span_id: str
    value: float
    unix_s: float


class Histogram(msgspec.Struct, array_like=True):
    """``counts`` of each bucket alone, the last of them beyond every bound."""

    counts: list[int]
    total: float = 0.0
    exemplars: dict[int, Exemplar] = {}
    """By bucket."""

    def observe(self, bounds: tuple[float, ...], value: float, seen: Seen | None) -> None:
        """Into the first bucket whose bound is not below the value."""
        bucket = bisect_left(bounds, value)
        self.counts[bucket] += 1
        self.total += value
        if seen is not None:
            self.exemplars[bucket] = Exemplar(seen.trace_id, seen.span_id, value, seen.unix_s)


class Summary(msgspec.Struct, array_like=True):
    """How many, and their sum."""

    count: int = 0
    total: float = 0.0


Summaries = dict[Labels, Summary]
Histograms = dict[Labels, Histogram]


class Series(msgspec.Struct):
    """By the family's name, then by labels."""

    counters: dict[str, dict[Labels, float]] = {}
    summaries: dict[str, Summaries] = {}
    histograms: dict[str, Histograms] = {}

    def add(self, family: Family, labels: Labels = (), amount: float = 1) -> None:
        """Count."""
        counters = self.counters.get(family.name)
        if counters is None:
            counters = self.counters[family.name] = {}
        counters[labels] = counters.get(labels, 0) + amount

    def zeros(self, family: Family, parts: tuple[str, ...], mode: str) -> None:
        """A counter's zeros, as far as its labels are known beforehand: a rate needs them before the first event."""
        if family.name not in self.counters:
            for labels in family.known(parts, mode):
                self.add(family, labels, 0)

    def sum(self, family: Family, labels: Labels, value: float) -> None:
        """Observe, for a mean."""
        add_up(self.summaries_of(family), labels, value)

    def observe(self, family: Family, labels: Labels, value: float, seen: Seen | None = None) -> None:
        """Observe, into a bucket."""
        observe(self.histograms_of(family), family, labels, value, seen)

    def summaries_of(self, family: Family) -> Summaries:
        """Those of one family, to be filled with :func:`add_up`."""
        found = self.summaries.get(family.name)
        if found is None:
            found = self.summaries[family.name] = {}
        return found

    def histograms_of(self, family: Family) -> Histograms:
        """Those of one family, to be filled with :func:`observe`."""
        found = self.histograms.get(family.name)
        if found is None:
            found = self.histograms[family.name] = {}
        return found


def add_up(summaries: Summaries, labels: Labels, value: float) -> None:
    """Observe, for a mean."""
    summary = summaries.get(labels)
    if summary is None:
        summary = summaries[labels] = Summary()
    summary.count += 1
    summary.total += value


def observe(
    histograms: Histograms, family: Family, labels: Labels, value: float, seen: Seen | None = None
) -> None:
    """Observe, into a bucket."""
    histogram = histograms.get(labels)
    if histogram is None:
        histogram = histograms[labels] = Histogram([0] * (len(family.buckets) + 1))
    histogram.observe(family.buckets, value, seen)


class Pair(msgspec.Struct):
    """What an engine had to do with one peer."""

    series: Series = msgspec.field(default_factory=Series)
    used_unix_s: float = 0.0


class EngineFigures(msgspec.Struct):
    """What is counted of one engine."""

    own: Series = msgspec.field(default_factory=Series)
    peers: dict[str, Pair] = {}
    """The one that was used last comes last."""

    def peer(self, engine_id: str, unix_s: float) -> Series:
        """The figures of a pair."""
        pair = self.peers.pop(engine_id, None) or Pair()
        pair.used_unix_s = max(unix_s, pair.used_unix_s)
        self.peers[engine_id] = pair
        if len(self.peers) > MAX_PEERS:
            del self.peers[next(iter(self.peers))]
        return pair.series

    def forget_peers(self, before_unix_s: float) -> None:
        """Peers that were not heard of since."""
        for engine_id in [e for e, pair in self.peers.items() if pair.used_unix_s < before_unix_s]:
            del self.peers[engine_id]


Figures = dict[str, EngineFigures]
"""By engine id."""
