"""The memory of a watcher with many transfers in flight, in a process that does little else."""

from __future__ import annotations

import gc
import os
import time
from pathlib import Path

from bench.estimate import Estimate
from bench.figure import Figure, Progress, Settings
from bench.rings import ORIGINS
from bench.traffic import SUBMITTED, Said, stream
from pushscope.telemetry.source import Reading, RingState
from pushscope.telemetry.watch import Watcher

IN_FLIGHT = 10_000
BUDGET_MIB = 200.0
PER_S = 4_000
WINDOW_NS = 500_000_000


class Traffic:
    """A source that gives prepared events in readings of half a second, as rings are read."""

    label = "traffic"
    ends = False

    def __init__(self) -> None:
        self._said: list[Said] = []
        self._at = self._t_ns = 0
        self._rings = tuple(RingState(origin) for origin in ORIGINS)

    def give(self, said: list[Said]) -> None:
        """What comes next."""
        self._said, self._at, self._t_ns = said, 0, said[0][0]

    def poll(self) -> Reading | None:
        if self._at == len(self._said):
            return None
        self._t_ns += WINDOW_NS
        begin = self._at
        while self._at < len(self._said) and self._said[self._at][0] < self._t_ns:
            self._at += 1
        events = [(ring, payload) for _, ring, payload in self._said[begin : self._at]]
        return Reading(self._t_ns, self._t_ns, self._rings, events)

    def close(self) -> None:
        pass


def run(_settings: Settings, progress: Progress) -> list[Figure]:
    """Growth with transfers in flight, and then with many more that came and went beside them."""
    traffic = Traffic()
    watcher = Watcher(traffic)
    begin_ns = time.monotonic_ns()
    grown: list[float] = []
    passed: list[int] = []
    plan = [(IN_FLIGHT, True), (2 * IN_FLIGHT, False), (2 * IN_FLIGHT, False), (2 * IN_FLIGHT, False)]
    for part, (num_transfers, stay) in enumerate(plan):
        progress(
            part / len(plan), "making transfers that stay" if stay else "making transfers that come and go"
        )
        if stay:
            said = stream(num_transfers, begin_ns, PER_S, moments=SUBMITTED, seed=part)
        else:
            said = stream(num_transfers, begin_ns, PER_S, seed=part)
        begin_ns = said[-1][0]
        traffic.give(said)
        before = _resident_mib()
        while watcher.poll():
            snapshot = watcher.snapshot()
        grown.append(_resident_mib() - before)
        passed.append(sum(snapshot.totals.outcomes.values()))
        assert len(snapshot.in_flight) == IN_FLIGHT, len(snapshot.in_flight)
    within = f"<= {BUDGET_MIB:g} MiB"
    return [
        Figure(
            what=f"watcher's growth, {IN_FLIGHT:,} in flight",
            unit="MiB",
            measured=_once(grown[0]),
        ).against(within, held=grown[0] <= BUDGET_MIB),
        Figure(
            what=f"its growth while {passed[1]:,} more passed",
            unit="MiB",
            measured=_once(grown[1]),
        ),
        Figure(
            what=f"and while another {passed[-1] - passed[1]:,} passed",
            unit="MiB",
            measured=_once(sum(grown[2:])),
        ),
    ]


def _once(value: float) -> Estimate:
    return Estimate(value, value, value, "once")


def _resident_mib() -> float:
    gc.collect()
    resident_pages = int(Path("/proc/self/statm").read_text().split()[1])
    return resident_pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
