"""The times of all hosts in the clock of one: what is added to each, moment by moment.

What an event's time becomes is decided once and stays, since an event may be said again. So the shifts are a line
through *knots*, moments (of the one clock, a tick or more apart) for which all hosts' shifts were decided together,
within the bounds of their clocks; before the first knot, and after the last, a shift is what it is there. Every
host's times keep their order: no span within a host becomes negative.

Shifts stay as they are as long as they fit the bounds and nothing much better is known; then times within a host
are not distorted at all.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from pushscope.telemetry.clocks import TICK_NS, Bound, ClockId, ClockOffset, Clocks, Pair, fits, narrowest

STRETCH: Final = 0.8
"""A shift may grow by so much of the time that passes: more, and a host's times would go backwards."""
BREAK_NS: Final = 1_000_000_000
"""A shift that was wrong by more than this was a guess: nothing is kept of it."""
MAX_KNOTS: Final = 20_000

Shifts = dict[ClockId, int]


class Timeline:
    """Translates times into ``here``'s clock."""

    def __init__(self, here: ClockId, clocks: Clocks):
        self.here = here
        self._clocks = clocks
        self._moments: list[int] = []
        self._shifts: list[Shifts] = []
        self._starts: dict[ClockId, list[int]] = {}
        """Per host, what its own clock said at each knot."""

    def shift(self, host: ClockId) -> int:
        """What is added to a host's times now."""
        known = self._shifts[-1].get(host) if self._shifts else None
        return self._clocks.by_wall_clock(self.here, host) if known is None else known

    def translated(self, host: ClockId, t: int) -> int:
        """A host's time in ``here``'s clock."""
        starts = self._starts.get(host)
        if not starts:
            return t + self.shift(host)
        after = bisect_right(starts, t)
        if after == 0:
            return t + self._shifts[0][host]
        if after == len(starts):
            return t + self._shifts[-1][host]
        begin, end = starts[after - 1], starts[after]
        first, last = self._shifts[after - 1][host], self._shifts[after][host]
        return t + first + (last - first) * (t - begin) // (end - begin)

    def reach(self, times: Collection[tuple[ClockId, int]], hosts: Iterable[ClockId], until: int) -> None:
        """Decide the shifts of all ``hosts`` up to these times, in their order, with what is known by now.

        ``until``: a moment that no time can lie beyond, unless it is damaged, or the clocks unsure.
        """
        if self._shifts and (strangers := set(hosts) - self._shifts[-1].keys()):
            self._welcome(strangers)
        if not times:
            return
        shifts = {host: self.shift(host) for host in {*hosts, self.here}}
        for tick in sorted({min(t + shifts[host], until) // TICK_NS for host, t in times}):
            self._decide((tick + 1) * TICK_NS, shifts)
        for host, t in times:  # a shift that has grown meanwhile reaches less far
            while self._starts[host][-1] <= t and self._moments[-1] <= until:
                self._decide(self._moments[-1] + TICK_NS, shifts)

    def offsets(self, moment: int) -> tuple[ClockOffset, ...]:
        """The offsets between the hosts as they are taken to be now, at ``moment`` of ``here``'s clock."""
        if not self._shifts:
            return ()
        shifts = self._shifts[-1]
        return self._clocks.offsets(self.here, shifts, self._bounds(moment, shifts))

    # -- deciding ----------------------------------------------------------------------------------

    def _decide(self, moment: int, guess: Shifts) -> None:
        if self._moments and moment <= self._moments[-1]:
            return
        known = self._shifts[-1] if self._shifts else None
        best, bounds = self._best(moment, {self.here: 0}, known or guess)
        if known is None:
            self._append(moment, best)
            return
        wrong = max(abs(best[host] - known[host]) for host in known)
        if fits(known, bounds) and wrong <= narrowest(bounds) / 4:
            self._append(moment, known)
        elif wrong > BREAK_NS:
            self._forget()
            self._append(moment, best)
        else:
            most = int(STRETCH * (moment - self._moments[-1]))
            self._append(moment, {host: min(best[host], known[host] + most) for host in known})

    def _best(self, moment: int, fixed: Shifts, guess: Shifts) -> tuple[Shifts, Mapping[Pair, Bound]]:
        """The shifts that fit best, and the bounds: which are aged by what the hosts' clocks say, so by the shifts."""
        for _ in range(3):
            bounds = self._bounds(moment, guess)
            best = self._clocks.shifts(fixed, bounds, guess)
            if max(abs(best[host] - guess[host]) for host in guess) < TICK_NS:
                break
            guess = best
        return best, bounds

    def _bounds(self, moment: int, shifts: Shifts) -> Mapping[Pair, Bound]:
        return self._clocks.bounds({host: moment - shift for host, shift in shifts.items()})

    def _welcome(self, strangers: set[ClockId]) -> None:
        """Hosts that were not met before: before now their shifts are what they are now."""
        known, moment = self._shifts[-1], self._moments[-1]
        best, _ = self._best(moment, known, {**known, **{host: self.shift(host) for host in strangers}})
        self._shifts = [{**shifts, **{host: best[host] for host in strangers}} for shifts in self._shifts]
        for host in strangers:
            self._starts[host] = [moment - best[host] for moment in self._moments]

    def _append(self, moment: int, shifts: Shifts) -> None:
        if len(self._shifts) > 1 and self._shifts[-1] == self._shifts[-2] == shifts:
            self._moments[-1] = moment  # the line goes on as it was
            for host, starts in self._starts.items():
                starts[-1] = moment - shifts[host]
            return
        self._moments.append(moment)
        self._shifts.append(shifts)
        for host, shift in shifts.items():
            self._starts.setdefault(host, []).append(moment - shift)
        if len(self._moments) > MAX_KNOTS:
            dropped = slice(MAX_KNOTS // 10)
            del self._moments[dropped], self._shifts[dropped]
            for starts in self._starts.values():
                del starts[dropped]

    def _forget(self) -> None:
        self._moments.clear()
        self._shifts.clear()
        self._starts.clear()
