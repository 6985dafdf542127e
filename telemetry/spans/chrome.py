"""Spans as Chrome trace JSON, which ui.perfetto.dev and chrome://tracing open.

Processes are engines, threads are their ranks (and the scheduler). Slices of one thread must nest (the "Trace Event
Format" of Chrome), and transfers overlap: a thread has as many lanes as it needs, each of its own name. An arrow leads
from a write's submission at P to its notification at D.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Final

from pushscope.telemetry import events as ev
from pushscope.telemetry.spans.attributes import RECEIVE, stage_name
from pushscope.telemetry.spans.model import Span
from pushscope.telemetry.transfer import Stage

_SCHEDULER: Final = "scheduler"
_SUBMIT: Final = stage_name(Stage.SUBMIT)
_NOTIFICATION: Final = stage_name(Stage.NOTIFICATION)
Event = dict[str, Any]
Transfer = Sequence[Span]
"""The spans of one transfer."""


def trace_events(transfers: Iterable[Transfer], origins: Mapping[str, ev.Origin]) -> Iterator[Event]:
    """The elements of ``traceEvents``, for the spans of many transfers. Times are microseconds since the first."""
    found = sorted((t for t in transfers if t), key=_start)
    zero_ns = _start(found[0]) if found else 0
    processes = _Processes(origins)
    arrows = count(1)
    for spans in found:
        placed = processes.place(spans)
        for span, pid, tid in placed:
            yield {
                "ph": "X",
                "name": span.name,
                "cat": "kv_transfer" + (",error" if span.error_type else ""),
                "ts": (span.start_unix_ns - zero_ns) / 1e3,
                "dur": (span.end_unix_ns - span.start_unix_ns) / 1e3,
                "pid": pid,
                "tid": tid,
                "args": _arguments(span),
            }
        yield from _arrows(placed, arrows, zero_ns)
    yield from processes.named()


def _start(spans: Transfer) -> int:
    return min(span.start_unix_ns for span in spans)


def _arguments(span: Span) -> dict[str, Any]:
    ids: dict[str, Any] = {"trace_id": f"{span.trace_id:032x}", "span_id": f"{span.span_id:016x}"}
    return ids | dict(span.attributes) | ({"error": span.error} if span.error else {})


def _arrows(placed: Sequence[tuple[Span, int, int]], numbers: Iterator[int], zero_ns: int) -> Iterator[Event]:
    """From each submission to the notification of the same write."""
    arrived = {_ranks(span): (span, pid, tid) for span, pid, tid in placed if span.name == _NOTIFICATION}
    for span, pid, tid in placed:
        if span.name != _SUBMIT or (there := arrived.get(_ranks(span))) is None:
            continue
        number = next(numbers)
        common = {"name": "write", "cat": "kv_transfer", "id": number}
        yield common | {"ph": "s", "ts": (span.start_unix_ns - zero_ns) / 1e3, "pid": pid, "tid": tid}
        end, end_pid, end_tid = there
        ts = (end.start_unix_ns - zero_ns) / 1e3
        yield common | {"ph": "f", "bp": "e", "ts": ts, "pid": end_pid, "tid": end_tid}


def _ranks(span: Span) -> tuple[object, object]:
    return span.attributes.get("kv_transfer.p.rank"), span.attributes.get("kv_transfer.d.rank")


class _Processes:
    """The processes and threads that slices were placed on."""

    def __init__(self, origins: Mapping[str, ev.Origin]):
        self._origins = origins
        self._pids: dict[str, int] = {}
        self._lanes: dict[tuple[str, str], list[int]] = {}
        """(engine, thread) -> until when each of its lanes is taken."""
        self._tids: dict[tuple[str, str, int], int] = {}

    def place(self, spans: Transfer) -> list[tuple[Span, int, int]]:
        """(span, pid, tid) of one transfer's spans; transfers come in the order of their start."""
        threads: dict[tuple[str, str], list[Span]] = {}
        for span in spans:
            threads.setdefault((span.engine_id, self._thread(span)), []).append(span)
        placed = []
        for (engine, thread), members in threads.items():
            pid = self._pids.setdefault(engine, len(self._pids) + 1)
            for members_of_lane in _nested(members):
                start = min(span.start_unix_ns for span in members_of_lane)
                lane = self._free_lane((engine, thread), start, max(s.end_unix_ns for s in members_of_lane))
                tid = self._tids.setdefault((engine, thread, lane), len(self._tids) + 1)
                placed += [(span, pid, tid) for span in members_of_lane]
        return placed

    def named(self) -> Iterator[Event]:
        """What the viewer calls them."""
        for engine, pid in self._pids.items():
            yield _metadata("process_name", pid, 0, name=self._engine_name(engine))
        for place, (engine, thread, lane) in enumerate(sorted(self._tids)):
            pid, tid = self._pids[engine], self._tids[engine, thread, lane]
            yield _metadata("thread_name", pid, tid, name=thread + (f" ({lane + 1})" if lane else ""))
            yield _metadata("thread_sort_index", pid, tid, sort_index=place)

    def _thread(self, span: Span) -> str:
        """The rank that a span is of: its own engine's."""
        if span.name == RECEIVE:
            return _SCHEDULER
        origin = self._origins.get(span.engine_id)
        own = "d" if origin is not None and origin.kv_role == "kv_consumer" else "p"
        rank = span.attributes.get(f"kv_transfer.{own}.rank")
        return str(rank) if rank is not None else _SCHEDULER

    def _free_lane(self, thread: tuple[str, str], start: int, end: int) -> int:
        lanes = self._lanes.setdefault(thread, [])
        for lane, until in enumerate(lanes):
            if until <= start:
                lanes[lane] = end
                return lane
        lanes.append(end)
        return len(lanes) - 1

    def _engine_name(self, engine: str) -> str:
        origin = self._origins.get(engine)
        side = {"kv_producer": "P ", "kv_consumer": "D "}.get(origin.kv_role, "") if origin else ""
        return side + engine


def _nested(spans: Iterable[Span]) -> list[list[Span]]:
    """Spans that nest, or follow each other, together; as few groups as the first fit gives."""
    groups: list[list[Span]] = []
    stacks: list[list[int]] = []
    for span in sorted(spans, key=lambda s: (s.start_unix_ns, -s.end_unix_ns)):
        for group, stack in zip(groups, stacks, strict=True):
            while stack and stack[-1] <= span.start_unix_ns:
                stack.pop()
            if not stack or span.end_unix_ns <= stack[-1]:
                group.append(span)
                stack.append(span.end_unix_ns)
                break
        else:
            groups.append([span])
            stacks.append([span.end_unix_ns])
    return groups


def _metadata(what: str, pid: int, tid: int, **args: object) -> Event:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": args}
