"""Fills the figures from what a watcher reads: hang ``on_event`` and ``on_closed`` into it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from pushscope.telemetry import events as ev
from pushscope.telemetry.metrics import catalogue as m
from pushscope.telemetry.metrics.ended import count_ended
from pushscope.telemetry.metrics.figures import EngineFigures, Figures, Seen
from pushscope.telemetry.metrics.place import Place
from pushscope.telemetry.metrics.state import Ledger, State
from pushscope.telemetry.metrics.told import COUNTS, SAID_AGAIN
from pushscope.telemetry.source import SAME_HOST_LAG_NS, RingState
from pushscope.telemetry.transfer import Transfer
from pushscope.telemetry.watch import Watcher

PEER_IDLE_S: Final = 3_600.0
"""Figures of a pair are dropped when it had nothing to do with each other for so long."""


class Trace(NamedTuple):
    """A span, for exemplars."""

    trace_id: int
    span_id: int


Traces = Mapping[str, Trace]
"""Where a transfer that has ended can be looked up: its sides' spans, by ``P`` and ``D``, as far as there are any."""
NO_TRACES: Final[Traces] = MappingProxyType({})


def _to_unix(t_ns: int) -> int:
    return t_ns + time.time_ns() - time.monotonic_ns()


class Meter:
    """Counts what the engines of ``local`` did, from one thread.

    After a restart it is given the ``state`` that the one before had saved, and counts nothing twice.
    """

    def __init__(
        self,
        *,
        local: Container[str] | None = None,
        to_unix: Callable[[int], int] = _to_unix,
        state: State | None = None,
    ):
        """``local``: engine ids, looked up when an engine is first seen; None: all. ``to_unix``: CLOCK_MONOTONIC to
        wall time, both in nanoseconds."""
        self._local, self._to_unix = local, to_unix
        self._places: dict[str, Place | None] = {}
        """By instance; None: not local."""
        self._evicted = 0
        self.go_on_from(state or State())

    def go_on_from(self, state: State) -> None:
        """Take up what an earlier meter had saved; before anything is counted."""
        self.figures: Figures = state.figures
        self._marks, self._saved_ns = state.marks, state.saved_ns
        self._ledger = Ledger(state.halves)
        self._evicted_before = state.evicted

    def is_local(self, engine_id: str) -> bool:
        """Whether this agent tells of an engine."""
        return self._local is None or engine_id in self._local

    @property
    def places(self) -> Sequence[Place]:
        """Who records, of local engines."""
        return [place for place in self._places.values() if place is not None]

    @property
    def evicted(self) -> int:
        """Transfers that were dropped unfinished, over all processes that kept this state."""
        return self._evicted_before + self._evicted

    # -- counting ----------------------------------------------------------------------------------

    def on_event(self, ring: RingState, event: ev.Event | None, news: bool) -> None:
        """An event was read from a ring; None: it could not be understood. Not ``news``: it was only said again."""
        try:
            place = self._places[ring.origin.instance]
        except KeyError:
            place = self._arrived(ring)
        if place is None:
            return
        place.read += 1
        if event is None:
            if not (place.behind and place.counted_before(ring)):
                place.own.add(m.EVENTS_LOST, ("unknown",))
            return
        if type(event) is ev.Tables:
            place.says_sizes(event)
        if place.behind and place.counted_before(ring):
            return
        kind = type(event)
        counts = COUNTS.get(kind)
        if counts is not None and (kind not in SAID_AGAIN or (news and event.t > place.since_ns)):
            counts(place, event)

    def on_closed(self, transfer: Transfer, traces: Traces = NO_TRACES) -> None:
        """A transfer has ended and is followed no longer: counted at each side that is this agent's to tell of."""
        sides = {
            "P": self._side("P", transfer, transfer.p_engine, transfer.p_request),
            "D": self._side("D", transfer, transfer.d_engine, transfer.d_request),
        }
        ours = [(part, figures) for part, figures in sides.items() if figures is not None]
        if not ours:
            return
        unix_s = self._to_unix(transfer.closed_ns or transfer.since_ns) / 1e9
        for part, figures in ours:
            trace = traces.get(part)
            seen = Seen(f"{trace.trace_id:032x}", f"{trace.span_id:016x}", unix_s) if trace else None
            count_ended(transfer, part, figures, unix_s, seen)

    def outcomes(self) -> dict[str, int]:
        """Transfers that ended, by side and outcome: ``transfers.D.delivered`` and so on, where there are any."""
        found: Counter[str] = Counter()
        for figures in self.figures.values():
            for (part, _, outcome), number in figures.own.counters.get(m.TRANSFERS.name, {}).items():
                if number:
                    found[f"transfers.{part}.{outcome}"] += int(number)
        return dict(found)

    def settle(self, watcher: Watcher, known: Container[str] | None = None) -> None:
        """What the rings say of themselves, after a poll: before figures are looked at.

        Engines that are not ``known`` any more are forgotten; not while rings can't be read.
        """
        reading = watcher.reading
        if reading is None:
            return
        rings = reading.rings
        for ring in rings:
            instance = ring.origin.instance
            place = self._places[instance] if instance in self._places else self._arrived(ring)
            if place is not None:
                place.settle(ring)
        if here := {ring.origin.instance for ring in rings}:
            self._places = {i: place for i, place in self._places.items() if i in here}
            self._marks = {i: mark for i, mark in self._marks.items() if i in here}
        if known is not None and (here or not reading.notices):
            for engine_id in [e for e in self.figures if e not in known]:
                del self.figures[engine_id]
        idle_since_s = self._to_unix(reading.t_ns) / 1e9 - PEER_IDLE_S
        for figures in self.figures.values():
            figures.forget_peers(idle_since_s)
        self._evicted = watcher.assembler.evicted

    def state(self, watcher: Watcher) -> State:
        """What to save: how everything stands after the watcher's last poll."""
        self.settle(watcher)
        return State(
            figures=self.figures,
            marks={**self._marks, **{place.origin.instance: place.mark for place in self.places}},
            halves=self._ledger.halves(),
            saved_ns=watcher.reading.t_ns if watcher.reading else self._saved_ns,
            evicted=self.evicted,
        )

    # -- finding -----------------------------------------------------------------------------------

    def _arrived(self, ring: RingState) -> Place | None:
        origin = ring.origin
        place = None
        if self.is_local(origin.engine_id):
            mark = self._marks.get(origin.instance)
            since_ns = self._saved_ns - SAME_HOST_LAG_NS
            place = Place(ring, self._figures_of(origin.engine_id), mark, since_ns)
        self._places[origin.instance] = place
        return place

    def _figures_of(self, engine_id: str) -> EngineFigures:
        if engine_id not in self.figures:
            self.figures[engine_id] = EngineFigures()
        return self.figures[engine_id]

    def _side(
        self, side: str, transfer: Transfer, engine_id: str | None, request_id: str | None
    ) -> EngineFigures | None:
        """The figures of one side, if it was observed, is local, and did not count this transfer before."""
        if not engine_id or not request_id or side not in transfer.sides or not self.is_local(engine_id):
            return None
        if self._ledger.counted_before(engine_id, request_id):
            return None
        return self._figures_of(engine_id)
