"""What one engine process writes: as the real recorder does, but in virtual time and into a list."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from pushscope.lab.simulator.timeline import Timeline
from pushscope.telemetry import events as ev
from pushscope.telemetry.recorder import SAY_AGAIN_NS
from pushscope.telemetry.ring import DEFAULT_BYTES, SLOT_BYTES

Said = tuple[int, bytes]
"""(index of the ring, encoded event)"""
_HALF_TURN: Final = DEFAULT_BYTES // SLOT_BYTES // 2
_PER_TICK: Final = 800
"""The real recorder says eight again in a step; there are about a hundred steps in a second."""


class VirtualRecorder:
    """Records events of one simulated process; see :class:`pushscope.telemetry.recorder.Recorder`."""

    def __init__(self, timeline: Timeline, index: int, origin: ev.Origin, said: list[Said]):
        self.origin = origin
        self._timeline = timeline
        self._index = index
        self._said = said
        self._open: dict[Hashable, ev.Event] = {}
        self._again: list[Hashable] = []
        self._again_due = timeline.now_ns + SAY_AGAIN_NS
        self._written = 0
        self._half_turn = _HALF_TURN

    def record(self, event: ev.Event) -> None:
        self._said.append((self._index, ev.encode(event)))
        self._written += 1

    def begin(self, key: Hashable, event: ev.Event) -> None:
        """Record what is said again until ``end(key)``."""
        self.record(event)
        self._open[key] = event

    def end(self, key: Hashable) -> None:
        self._open.pop(key, None)

    def is_open(self, key: Hashable) -> bool:
        return key in self._open

    def tick(self, steps: int, tables: ev.Tables, *, has_work: bool) -> None:
        """Once a second: what an engine that makes steps says by itself, and again what is still open."""
        t = self._timeline.now_ns
        self.record(ev.Loop(t, 2 * steps, 15_000 * steps, 90_000, has_work))
        self.record(tables)
        half_a_turn = self._written >= self._half_turn
        if half_a_turn or t >= self._again_due:
            self._again_due, self._half_turn = t + SAY_AGAIN_NS, self._written + _HALF_TURN
            self._again = [k for k, e in self._open.items() if half_a_turn or t - e.t >= SAY_AGAIN_NS]
        now, self._again = self._again[:_PER_TICK], self._again[_PER_TICK:]
        for key in now:
            if (event := self._open.get(key)) is not None:
                self.record(event)
