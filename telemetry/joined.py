"""Several sources as one: the rings of a folder, and what agents stream.

A ring that is seen in two ways, as by two agents that share a folder, is read in one of them: where it was seen
first, in the order of the sources. A mark that comes in two ways is one.
"""

from __future__ import annotations

from collections.abc import Sequence

from pushscope.telemetry.errors import PushscopeError
from pushscope.telemetry.marks import Marks
from pushscope.telemetry.source import Reading, RingState, Source, Stamp


class JoinedSource:
    """Live sources of one reader, polled together."""

    ends = False

    def __init__(self, sources: Sequence[Source]):
        self.label = ", ".join(source.label for source in sources)
        self._sources = tuple(sources)
        self._seen_in: dict[str, int] = {}
        """Ring -> the source that it is read in."""
        self._marks = Marks()

    def poll(self) -> Reading:
        rings: list[RingState] = []
        events: list[tuple[int, bytes]] = []
        stamps: list[Stamp] = []
        notices: dict[str, None] = {}
        asides: dict[str, None] = {}
        readings = [
            reading for source in self._sources if (reading := source.poll())
        ]  # live ones have no end
        for number, reading in enumerate(readings):
            place: dict[int, int] = {}
            for index, state in enumerate(reading.rings):
                if self._seen_in.setdefault(state.origin.instance, number) == number:
                    place[index] = len(rings)
                    rings.append(state)
            events.extend((place[index], payload) for index, payload in reading.events if index in place)
            stamps.extend(reading.stamps)
            notices |= dict.fromkeys(reading.notices)
            asides |= dict.fromkeys(reading.asides)
        newest = max(readings, key=lambda reading: reading.t_ns)
        lag_ns = max(reading.lag_ns for reading in readings)
        marks = self._marks.add(mark for reading in readings for mark in reading.marks)
        return Reading(
            newest.t_ns,
            newest.unix_ns,
            tuple(rings),
            events,
            tuple(notices),
            newest.host,
            lag_ns,
            tuple(stamps),
            marks=marks,
            asides=tuple(asides),
        )

    def settle(self) -> None:
        failures = []
        for source in self._sources:
            try:
                source.settle()
            except PushscopeError as e:  # of one: the reading's notices tell it
                failures.append(e)
        if len(failures) == len(self._sources):
            raise failures[0]

    def close(self) -> None:
        for source in self._sources:
            source.close()
