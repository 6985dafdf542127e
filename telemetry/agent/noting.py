"""A source that remembers who records: of this host's rings, what an agent may speak for."""

from __future__ import annotations

import contextlib
from typing import Final

import msgspec

from pushscope.telemetry.events import Origin, decode
from pushscope.telemetry.source import Reading, Source
from pushscope.telemetry.transfer import Transfer

_A_FEW: Final = 64
"""Some of the oldest events in a ring are older than the others: what was open then was said again."""


class Noting:
    """Another source, live, of which the engines are remembered."""

    ends = False

    def __init__(self, source: Source):
        self._source = source
        self.label = source.label
        self.origins: dict[str, Origin] = {}
        """Engine id -> one of those who record for it, the newest; also of engines that are gone."""
        self.num_rings = self.num_alive = 0
        """At the last poll: rings, and those whose process is there."""
        self.alive: frozenset[str] = frozenset()
        """Engines of which at least one process is there."""
        self.notices: tuple[str, ...] = ()
        """What of it could not be read, and why."""
        self.began_ns = 0
        """When it was polled first."""
        self.horizon_ns = 0
        """What happened before, and had been written over when it was polled first, is known in part only."""

    def poll(self) -> Reading | None:
        reading = self._source.poll()
        if reading is None:
            return None
        if not self.began_ns:
            self.began_ns, self.horizon_ns = reading.t_ns, _horizon_of(reading)
        for state in reading.rings:
            known = self.origins.get(state.origin.engine_id)
            if known is None or known.anchor_monotonic_ns < state.origin.anchor_monotonic_ns:
                self.origins[state.origin.engine_id] = state.origin
        alive = [state.origin.engine_id for state in reading.rings if state.alive]
        self.notices = reading.notices
        self.num_rings, self.num_alive, self.alive = len(reading.rings), len(alive), frozenset(alive)
        return reading

    def knows_all_of(self, transfer: Transfer) -> bool:
        """False for one that was over before we came, and of which the beginning may have been written over."""
        return transfer.opened_ns >= self.horizon_ns or transfer.since_ns >= self.began_ns

    def settle(self) -> None:
        self._source.settle()

    def close(self) -> None:
        self._source.close()


def _horizon_of(reading: Reading) -> int:
    """When the youngest of the oldest events happened, of the rings that have forgotten some."""
    oldest: dict[int, list[int]] = {n: [] for n, state in enumerate(reading.rings) if state.forgotten}
    for ring, payload in reading.events:
        times = oldest.get(ring)
        if times is not None and len(times) < _A_FEW:
            with contextlib.suppress(msgspec.MsgspecError):
                times.append(decode(payload).t)
    return max((max(times) for times in oldest.values() if times), default=0)
