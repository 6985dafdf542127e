"""How soon a cause is named: an event list is played to a watcher as time goes on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from faults.result import Named, Wait

from pushscope.telemetry import events as ev
from pushscope.telemetry.diagnosis.leftovers import SPAN_NS
from pushscope.telemetry.diagnosis.model import Severity
from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.source import Reading, RingState
from pushscope.telemetry.watch import Watcher

from .scenario import ORIGINS, START_NS, ListSource, Said

EVERY_NS = 250_000_000
_UNTIL_NS = 20_000_000_000
"""Nobody looks on for longer after it could have been named."""
_SHARES = {"half": 0.5, "whole": 1.0}
_STEPS = (ev.Loop, ev.Tables, ev.HeartbeatSent, ev.HeartbeatDrained, ev.LeaseExtended)
"""What engines go on to say."""


@dataclass(frozen=True)
class Course:
    """The course of a failure, as events."""

    code: str
    """What it must be named."""
    said: Said
    begins_s: float | None = None
    """When it begins; None: with the last that happens, but for what engines at work go on to say."""
    lease: Wait = ""
    """What must have run out before it can be known; seconds until it is named are from then."""
    origins: tuple[ev.Origin, ...] = ORIGINS
    gone: tuple[str, ...] = ()
    """The engines, or processes, that end when it begins."""
    stopped: tuple[str, ...] = ()
    """The engines that are stopped when it begins."""


def named_after(course: Course) -> Named:
    """When it is named, if somebody looks every 250 ms from its begin on."""
    code, lease = course.code, course.lease
    said = at_their_places(course.said, course.origins)
    begins_ns = max(e.t for _, e in said if not isinstance(e, _STEPS))
    if course.begins_s is not None:
        begins_ns = START_NS + int(course.begins_s * 1e9)
    from_ns = max(begins_ns, _runs_out(said, lease, begins_ns)) if lease else begins_ns
    ever: set[str] = set()
    for snapshot in _looks(course, said, begins_ns, from_ns + _UNTIL_NS):
        found = next((d for d in snapshot.diagnoses if d.code == code), None)
        ever |= {d.code for d in snapshot.diagnoses}
        if found is not None:
            besides = {d.code for d in snapshot.diagnoses if d.severity is Severity.ERROR} - {code}
            return Named(
                code=code,
                lease=lease,
                named_s=round((snapshot.taken_ns - from_ns) / 1e9, 2),
                severity=found.severity,
                sentence=found.sentence,
                besides=tuple(sorted(besides)),
            )
    return Named(code=code, lease=lease, named_s=None, besides=tuple(sorted(ever)))


def at_their_places(said: Said, origins: tuple[ev.Origin, ...]) -> Said:
    """The same events of the engines as ``origins`` has them: of other hosts, say, or with other block sizes."""
    places = {_place(o): o for o in reversed(origins)}
    return [(o if o in origins else places[_place(o)], e) for o, e in said]


def _place(origin: ev.Origin) -> tuple[str, str, int, int]:
    return origin.engine_id, origin.connector_role, origin.pp_rank, origin.tp_rank


def _runs_out(said: Said, lease: Wait, begins_ns: int) -> int:
    """When the first lease, or its half, is over; or when what has been there since the begin is a pile."""
    if lease == "pile":
        return begins_ns + SPAN_NS
    t_ns, lease_s = min((e.t, e.lease_s) for _, e in said if isinstance(e, ev.BlocksStaged))
    return t_ns + int(_SHARES[lease] * lease_s * 1e9)


def _looks(course: Course, said: Said, begins_ns: int, until_ns: int) -> Iterator[Snapshot]:
    """What a watcher shows every 250 ms from the begin on; it has followed what was before."""
    said = sorted(said, key=lambda each: each[1].t)
    first_ns = said[0][1].t
    before = math.ceil((begins_ns - first_ns) / EVERY_NS)
    watcher = Watcher(ListSource())
    last_ns = 0
    for n in range(-before, (until_ns - begins_ns) // EVERY_NS + 1):
        now_ns = begins_ns + n * EVERY_NS
        there = [o for o in course.origins if o.anchor_monotonic_ns <= max(now_ns, START_NS)]
        rings = tuple(_state(o, course) if n >= 0 else RingState(o) for o in there)
        new = [(there.index(o), ev.encode(e)) for o, e in said if last_ns < e.t <= now_ns]
        watcher.source = ListSource([Reading(now_ns, 0, rings, new)])
        watcher.poll()
        snapshot = watcher.snapshot()
        if n >= 0:
            yield snapshot
        last_ns = now_ns


def _state(origin: ev.Origin, course: Course) -> RingState:
    """How a ring stands from the begin on."""
    alive = not {origin.instance, origin.engine_id} & set(course.gone)
    return RingState(origin, alive, stopped=origin.engine_id in course.stopped)
