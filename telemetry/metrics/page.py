"""The page that Prometheus scrapes: the families with what they hold, in the text format that it asks for."""

from __future__ import annotations

import contextlib
import importlib.metadata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from prometheus_client import ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Exemplar, Sample
from prometheus_client.utils import floatToGoString

from pushscope.telemetry.metrics import catalogue as m
from pushscope.telemetry.metrics.family import Family, Kind, Of
from pushscope.telemetry.metrics.figures import Figures, Histogram, Labels, Series, Summary
from pushscope.telemetry.metrics.meter import Meter
from pushscope.telemetry.metrics.now import Gauge, gauges
from pushscope.telemetry.metrics.text import openmetrics, plain
from pushscope.telemetry.watch import Watcher


class Own(msgspec.Struct, frozen=True, kw_only=True):
    """An agent's figures of its own work."""

    spans_exported: int = 0
    spans_dropped: Mapping[str, int] = {}
    """By reason."""
    spans_queued: int = 0
    polls: int = 0
    poll_s: float = 0.0
    """Time that all polls took."""


def gathered(watcher: Watcher, meter: Meter, *, own: Own | None = None) -> list[Metric]:
    """What the page will show, as a copy: what follows needs neither the watcher nor the meter.

    Not while the watcher polls. ``own``: of an agent.
    """
    snapshot = watcher.snapshot()
    assembler = watcher.assembler
    followed = assembler.open_transfers()
    meter.settle(watcher, {engine.engine_id for engine in snapshot.engines})
    now: dict[str, list[tuple[Labels, float]]] = {}
    found: list[Iterable[Gauge]] = [
        gauges(snapshot, meter.places, assembler.groups(), followed, meter.is_local),
        [(m.FOLLOWED, (), len(followed)), (m.EVICTED, (), meter.evicted)],
        _own(own) if own is not None else (),
    ]
    for family, labels, value in (gauge for some in found for gauge in some):
        now.setdefault(family.name, []).append((labels, value))
    return [_metric(family, meter.figures, now.get(family.name, ()), own) for family in m.FAMILIES]


def rendered(metrics: Sequence[Metric], accept: str = "") -> tuple[bytes, str]:
    """The page and its content type, by a request's ``Accept`` header; exemplars are in OpenMetrics only.

    With it, what is known of this process.
    """
    _, content_type = choose_encoder(accept)
    write = openmetrics if content_type.startswith("application/openmetrics-text") else plain
    return write((*metrics, *ProcessCollector(registry=None).collect())), content_type


def _own(own: Own) -> Iterator[Gauge]:
    yield m.SPANS_EXPORTED, (), own.spans_exported
    reasons = dict.fromkeys(reason for (reason,) in m.SPANS_DROPPED.known(("P",), ""))
    for reason in (*reasons, *(r for r in own.spans_dropped if r not in reasons)):
        yield m.SPANS_DROPPED, (reason,), own.spans_dropped.get(reason, 0)
    yield m.SPANS_QUEUED, (), own.spans_queued
    yield m.AGENT_INFO, (_version(),), 1


def _version() -> str:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version("pushscope")
    return ""


def _metric(family: Family, figures: Figures, now: Iterable[tuple[Labels, float]], own: Own | None) -> Metric:
    """One family with all its samples."""
    base = family.name.removesuffix("_total").removesuffix("_info")
    metric = Metric(base, family.help, family.kind.value, family.unit)
    if family is m.POLL_SECONDS:
        if own is not None:
            _add_summary(metric, {}, Summary(own.polls, own.poll_s))
        return metric
    for labels, value in now:
        metric.samples.append(Sample(family.name, dict(zip(family.labels, labels, strict=True)), value))
    for implied, series in _series_of(family, figures):
        match family.kind:
            case Kind.COUNTER:
                for labels, value in series.counters.get(family.name, {}).items():
                    metric.samples.append(Sample(family.name, _named(family, implied, labels), value))
            case Kind.SUMMARY:
                for labels, summary in series.summaries.get(family.name, {}).items():
                    _add_summary(metric, _named(family, implied, labels), summary)
            case Kind.HISTOGRAM:
                for labels, histogram in series.histograms.get(family.name, {}).items():
                    _add_histogram(metric, family, _named(family, implied, labels), histogram)
    return metric


def _series_of(family: Family, figures: Figures) -> Iterator[tuple[Labels, Series]]:
    if family.of is Of.ENGINE:
        for engine_id, engine in figures.items():
            yield (engine_id,), engine.own
    elif family.of is Of.PAIR:
        for engine_id, engine in figures.items():
            for peer_id, pair in engine.peers.items():
                yield (engine_id, peer_id), pair.series


def _named(family: Family, implied: Labels, labels: Labels) -> dict[str, str]:
    return dict(zip(family.labels, (*implied, *labels), strict=True))


def _add_summary(metric: Metric, labels: dict[str, str], summary: Summary) -> None:
    metric.samples.append(Sample(f"{metric.name}_count", labels, summary.count))
    metric.samples.append(Sample(f"{metric.name}_sum", labels, summary.total))


def _add_histogram(metric: Metric, family: Family, labels: dict[str, str], histogram: Histogram) -> None:
    below, bounds = 0, _BOUNDS[family.name]
    for bucket, count in enumerate(histogram.counts):
        below += count
        seen = histogram.exemplars.get(bucket) if family.exemplars else None
        exemplar = None
        if seen is not None:
            ids = {"trace_id": seen.trace_id, "span_id": seen.span_id}
            exemplar = Exemplar(ids, seen.value, seen.unix_s)
        metric.samples.append(
            Sample(f"{metric.name}_bucket", {**labels, "le": bounds[bucket]}, below, None, exemplar)
        )
    metric.samples.append(Sample(f"{metric.name}_count", labels, below))
    metric.samples.append(Sample(f"{metric.name}_sum", labels, histogram.total))


_BOUNDS: Final[dict[str, tuple[str, ...]]] = {
    family.name: tuple(map(floatToGoString, (*family.buckets, float("inf"))))
    for family in m.FAMILIES
    if family.kind is Kind.HISTOGRAM
}
