"""A reading, taken apart: its events given one by one, in the order of their time, and then what is left of it."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from pushscope.telemetry import events as ev
from pushscope.telemetry.source import Reading, RingState


class Stepped(NamedTuple):
    """An event that was stepped to."""

    event: ev.Event | None
    """None: it can't be understood."""
    ring: RingState


class Apart:
    """Parts of one reading. Each is as of the time of its last event; what is left is as of the reading's own."""

    def __init__(self, reading: Reading, before: Reading | None):
        """``before``: the reading before it, than whose no part's time is earlier. Until the last part rings stand as
        they did then: an engine's end must not be known before its last events."""
        self._reading = reading
        stood = {state.origin.instance: state for state in before.rings} if before is not None else {}
        self._rings = tuple(stood.get(state.origin.instance, state) for state in reading.rings)
        self._floor_ns = before.t_ns if before is not None else 0
        decoded = [(_decoded(payload), index, payload) for index, payload in reading.events]
        self._events = sorted(decoded, key=lambda each: each[0].t if each[0] else reading.t_ns)
        self._at = 0

    def first(self, number: int) -> Reading:
        """The next events, so many."""
        taken = self._events[self._at : self._at + number]
        self._at += len(taken)
        reading = self._reading
        last = taken[-1][0] if taken else None
        t_ns = reading.t_ns if last is None else max(self._floor_ns, min(last.t, reading.t_ns))
        return msgspec.structs.replace(
            reading,
            t_ns=t_ns,
            unix_ns=reading.unix_ns - (reading.t_ns - t_ns),
            rings=self._rings,
            events=[(index, payload) for _, index, payload in taken],
            stamps=(),
            marks=(),  # with the rest
        )

    @property
    def rest(self) -> Reading:
        """What is left: maybe no event, but how the rings stood at its end."""
        events = [(index, payload) for _, index, payload in self._events[self._at :]]
        return msgspec.structs.replace(self._reading, events=events)

    @property
    def stepped(self) -> Stepped | None:
        """The last event that was given."""
        if not self._at:
            return None
        event, index, _ = self._events[self._at - 1]
        return Stepped(event, self._reading.rings[index])


def _decoded(payload: bytes) -> ev.Event | None:
    try:
        return ev.decode(payload)
    except msgspec.MsgspecError:
        return None
