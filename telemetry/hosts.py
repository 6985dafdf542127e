"""Readings of engines on several hosts, as if they were on one: every time in the reading's own clock.

Events keep the times of their own host up to here. What is read is held back for half a second, so that when a time
is translated both ends of the messages around it have been read, and no message comes in before it went out.
Readings of one host go through untouched.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from pushscope.telemetry import events as ev
from pushscope.telemetry.clock import Host
from pushscope.telemetry.clocks import ClockId, ClockOffset, Clocks, clock_id
from pushscope.telemetry.crossings import Crossings
from pushscope.telemetry.source import Reading, RingState
from pushscope.telemetry.timeline import Timeline

HOLD_NS: Final = 500_000_000
"""How long readings of several hosts are held back."""


class Decoded(msgspec.Struct, frozen=True):
    """A reading whose times are all in its own clock."""

    reading: Reading
    """Its events are those in ``events``."""
    events: list[tuple[int, ev.Event | None]]
    """None: an event that this version does not know."""


class Hosts:
    """Takes readings; gives them decoded and translated, a little later."""

    def __init__(self) -> None:
        self._clocks = Clocks()
        self._crossings = Crossings(self._clocks)
        self._timeline: Timeline | None = None
        self._held: deque[Decoded] = deque()
        self._host_of: dict[str, ClockId] = {}
        """Instance -> its host."""
        self._origins: dict[tuple[str, int], ev.Origin] = {}
        """(instance, shift) -> its origin in the reading's clock."""

    def are_several(self, reading: Reading) -> bool:
        """Whether there is anything to translate, in a reading or before it."""
        if reading.host is None:
            return False
        here = clock_id(reading.host)
        return self._timeline is not None or any(self._host(s.origin) != here for s in reading.rings)

    def take(self, reading: Reading) -> Iterator[Decoded]:
        """Take what was read; gives what has been held long enough."""
        self._held.append(self._noted(reading))
        while self._held and reading.t_ns - self._held[0].reading.t_ns >= HOLD_NS:
            yield self._translated(self._held.popleft())

    def rest(self) -> Iterator[Decoded]:
        """All that is still held."""
        while self._held:
            yield self._translated(self._held.popleft())

    def offsets(self, t_ns: int) -> tuple[ClockOffset, ...]:
        """How the hosts' clocks are apart at ``t_ns``; nothing if there is one host."""
        return () if self._timeline is None else self._timeline.offsets(t_ns)

    # -- noting ------------------------------------------------------------------------------------

    def _host(self, origin: ev.Origin) -> ClockId:
        host = self._host_of.get(origin.instance)
        if host is None:
            host = self._host_of[origin.instance] = clock_id(_host_of(origin))
        return host

    def _noted(self, reading: Reading) -> Decoded:
        """Decode a reading, and learn from it about the clocks."""
        assert reading.host is not None
        here = clock_id(reading.host)
        if self._timeline is None:
            self._timeline = Timeline(here, self._clocks)
            self._clocks.met(reading.host, reading.unix_ns - reading.t_ns)
        for state in reading.rings:
            origin, host = state.origin, self._host(state.origin)
            self._clocks.met(_host_of(origin), origin.anchor_unix_ns - origin.anchor_monotonic_ns)
            self._crossings.met(origin, host)
        for stamp in reading.stamps:
            there = clock_id(stamp.host)
            self._clocks.told(there, here, stamp.t_ns, stamp.heard_ns)
            if stamp.asked_ns is not None:
                self._clocks.told(here, there, stamp.asked_ns, stamp.t_ns)
        events: list[tuple[int, ev.Event | None]] = []
        for index, payload in reading.events:
            try:
                event = ev.decode(payload)
            except msgspec.MsgspecError:
                events.append((index, None))
                continue
            origin = reading.rings[index].origin
            self._crossings.feed(origin, self._host(origin), event)
            events.append((index, event))
        return Decoded(reading, events)

    # -- translating -------------------------------------------------------------------------------

    def _translated(self, decoded: Decoded) -> Decoded:
        reading, timeline = decoded.reading, self._timeline
        assert timeline is not None
        hosts = [self._host(state.origin) for state in reading.rings]
        abroad = [(hosts[i], e.t) for i, e in decoded.events if e is not None and hosts[i] != timeline.here]
        timeline.reach(abroad, hosts, reading.t_ns)
        events = [
            (i, e if e is None or hosts[i] == timeline.here else _moved(e, hosts[i], timeline))
            for i, e in decoded.events
        ]
        rings = tuple(map(self._moved_ring, reading.rings, hosts))
        return Decoded(msgspec.structs.replace(reading, rings=rings), events)

    def _moved_ring(self, state: RingState, host: ClockId) -> RingState:
        """A ring whose engine's beginning is told in the reading's clock, as far as it is known by now."""
        assert self._timeline is not None
        if host == self._timeline.here:
            return state
        shift = self._timeline.shift(host)
        key = (state.origin.instance, shift)
        if key not in self._origins:
            began = state.origin.anchor_monotonic_ns + shift
            moved = msgspec.structs.replace(state.origin, anchor_monotonic_ns=began)
            self._origins = {k: o for k, o in self._origins.items() if k[0] != key[0]} | {key: moved}
        return msgspec.structs.replace(state, origin=self._origins[key])


def _host_of(origin: ev.Origin) -> Host:
    return Host(origin.host, origin.boot_id, origin.time_namespace)


def _moved(event: ev.Event, host: ClockId, timeline: Timeline) -> ev.Event:
    changes: dict[str, Any] = {"t": timeline.translated(host, event.t)}
    if isinstance(event, ev.HandshakeEnded):
        changes["started_t"] = timeline.translated(host, event.started_t)
    return msgspec.structs.replace(event, **changes)
