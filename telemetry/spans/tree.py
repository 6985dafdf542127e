"""Spans as a tree to read: who is whose child, when it began, how long it took."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from pushscope.telemetry.spans.model import Span
from pushscope.telemetry.units import clean, duration

_WIDTH: Final = 44
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
    """A tree for each trace: name, rank, beginning after the trace's first span, duration, what is worth knowing.

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
        zero_ns = min(span.start_unix_ns for span in members)
        yield from _below(None, children, zero_ns, names, "")


def _below(
    parent: int | None,
    children: Mapping[int | None, Sequence[Span]],
    zero_ns: int,
    names: Mapping[str, str],
    indent: str,
) -> Iterator[str]:
    found = children.get(parent, ())
    for place, span in enumerate(found):
        last = place == len(found) - 1
        head = f"{indent}{'└─ ' if last else '├─ '}{_label(span, names)}"
        begun = duration((span.start_unix_ns - zero_ns) / 1e9)
        notes = ", ".join(_notes(span))
        yield f"{head:<{_WIDTH}} {'+' + begun:>9} {duration(span.seconds):>8}  {notes}".rstrip()
        yield from _below(span.span_id, children, zero_ns, names, indent + ("   " if last else "│  "))


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
