"""Spans as a tree to read: who is whose child, when it began, how long it took, and a bar of both."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from pushscope.telemetry.spans.model import Span
from pushscope.telemetry.units import clean, duration

_WIDTH: Final = 44
_BAR_WIDTH: Final = 24
_NOTES: Final = (
    "kv_transfer.outcome",
    "kv_transfer.waited",
    "kv_transfer.diagnosis",
    "error.type",
)
_MARKS: Final = {
    "kv_transfer.unfinished": "unfinished",
    "kv_transfer.upper_bound": "upper bound",
    "kv_transfer.clamped": "clamped",
    "kv_transfer.tentative": "tentative",
}


def tree_lines(spans: Sequence[Span], names: Mapping[str, str]) -> Iterator[str]:
    """A tree for each trace: name, rank, beginning after the trace's first span, duration, both as a bar on the time
    that the trace took, and what is worth knowing.

    ``names`` has the short names of engines. A span whose parent is not among them stands at the root.
    """
    in_order = sorted(
        spans, key=lambda s: (s.trace_id, s.start_unix_ns, s.kind == "internal", -s.end_unix_ns)
    )
    for trace_id, of_trace in groupby(in_order, key=lambda s: s.trace_id):
        yield f"trace {trace_id:032x}"
        members = list(of_trace)
        known = {span.span_id for span in members}
        children: defaultdict[int | None, list[Span]] = defaultdict(list)
        for span in members:
            children[span.parent_span_id if span.parent_span_id in known else None].append(span)
        within = min(span.start_unix_ns for span in members), max(span.end_unix_ns for span in members)
        yield from _below(None, children, within, names, "")


def _below(
    parent: int | None,
    children: Mapping[int | None, Sequence[Span]],
    within: tuple[int, int],
    names: Mapping[str, str],
    indent: str,
) -> Iterator[str]:
    found = children.get(parent, ())
    for place, span in enumerate(found):
        last = place == len(found) - 1
        head = f"{indent}{'└─ ' if last else '├─ '}{_label(span, names)}"
        begun = duration((span.start_unix_ns - within[0]) / 1e9)
        bar = _bar(span, within)
        notes = ", ".join(_notes(span))
        yield f"{head:<{_WIDTH}} {'+' + begun:>9} {duration(span.seconds):>8}  {bar:<{_BAR_WIDTH}}  {notes}".rstrip()
        yield from _below(span.span_id, children, within, names, indent + ("   " if last else "│  "))


def _bar(span: Span, within: tuple[int, int]) -> str:
    """Where in the trace's time a span lies; at least one character."""
    per_ns = _BAR_WIDTH / max(1, within[1] - within[0])
    start = min(_BAR_WIDTH - 1, int((span.start_unix_ns - within[0]) * per_ns))
    end = max(start + 1, round((span.end_unix_ns - within[0]) * per_ns))
    return " " * start + "━" * (end - start)


def _label(span: Span, names: Mapping[str, str]) -> str:
    ranks = [span.attributes.get(f"kv_transfer.{side}.rank") for side in ("p", "d")]
    way = "→".join(str(rank) for rank in ranks if rank is not None)
    engine = names.get(span.engine_id, span.engine_id[:8]) if span.kind != "internal" else ""
    return " ".join(filter(None, (span.name, clean(engine), way)))


def _notes(span: Span) -> Iterator[str]:
    for name in _NOTES:
        if value := span.attributes.get(name):
            yield clean(str(value))
    for name, mark in _MARKS.items():
        if span.attributes.get(name):
            yield mark
    if not span.parent_is_remote:
        return
    yield f"called by {span.parent_span_id:016x}"
