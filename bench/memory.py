"""The memory of a watcher with many transfers in flight, in a process that does little else."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from pathlib import Path

from bench.estimate import Estimate
from bench.figure import Figure, Progress, Settings
from bench.rings import ORIGINS
from bench.traffic import SUBMITTED, TRANSFER, Said, stream
from pushscope.telemetry.source import Reading, RingState
from pushscope.telemetry.watch import Watcher, rest_the_collector

IN_FLIGHT = 10_000
BUDGET_MIB = 200.0
PER_S = 4_000
PIECE = 2_000
PASSING = (20_000, 40_000, 20_000)
"""Ids of closed transfers are remembered for two leases, of up to 50,000 transfers: go beyond that."""
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

    def settle(self) -> None:
        pass

    def close(self) -> None:
        pass


def run(_settings: Settings, progress: Progress) -> list[Figure]:
    """Memory with transfers in flight, and then with many more that came and went beside them."""
    follower = _Follower()
    before = resident_mib()
    follower.follow(IN_FLIGHT, stay=True, progress=lambda done: progress(done / 8, "transfers that stay"))
    with_crowd = resident_mib()
    after = [with_crowd]
    for part, num_transfers in enumerate(PASSING):
        follower.follow(
            num_transfers,
            stay=False,
            progress=_part(progress, part),
        )
        after.append(resident_mib())
    within = f"<= {BUDGET_MIB:g} MiB"
    return [
        _mib(f"a watching process, {IN_FLIGHT:,} in flight", with_crowd).against(
            within, held=with_crowd <= BUDGET_MIB
        ),
        _mib("of it for these transfers", with_crowd - before),
        _mib(f"the process after {sum(PASSING):,} more came and went", after[-1]).against(
            within, held=after[-1] <= BUDGET_MIB
        ),
        _mib(f"of it grown by the last {PASSING[-1]:,}", after[-1] - after[-2]),
    ]


def _part(progress: Progress, part: int) -> Callable[[float], None]:
    return lambda done: progress((1 + 7 * (part + done) / len(PASSING)) / 8, "transfers that come and go")


class _Follower:
    """A watcher, and traffic for it, made in small pieces so that the making takes no memory to speak of."""

    def __init__(self) -> None:
        self._traffic = Traffic()
        rest_the_collector()  # as the command does
        self._watcher = Watcher(self._traffic)
        self._next_ns = time.monotonic_ns()
        self._pieces = 0
        stream(PIECE, self._next_ns, PER_S)  # what a piece takes is taken before anything is measured

    def follow(self, num_transfers: int, *, stay: bool, progress: Callable[[float], None]) -> None:
        """Read transfers as they are recorded, with a snapshot for each half second."""
        for done in range(0, num_transfers, PIECE):
            progress(done / num_transfers)
            self._pieces += 1
            said = stream(
                PIECE, self._next_ns, PER_S, moments=SUBMITTED if stay else TRANSFER, seed=self._pieces
            )
            self._next_ns = said[-1][0]
            self._traffic.give(said)
            while self._watcher.poll():
                self._watcher.snapshot()


def _mib(what: str, value: float) -> Figure:
    return Figure(what=what, unit="MiB", measured=_once(value))


def _once(value: float) -> Estimate:
    return Estimate(value, value, value, "once")


def resident_mib() -> float:
    """What this process has in memory."""
    gc.collect()
    resident_pages = int(Path("/proc/self/statm").read_text().split()[1])
    return resident_pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
