"""How far the clocks of hosts are apart: bounds from messages that went between them, and what fits all bounds.

A message that left host ``a`` when its clock said ``t_a``, and was in ``b``'s hands when ``b``'s clock said ``t_b``,
proves that ``b``'s clock is ahead of ``a``'s by at most ``t_b - t_a``. Messages in both directions enclose the
offset, and a proof holds for other moments too, if it is widened by what two clocks may drift in the time between.
Bounds chain: what is proven of a and b, and of b and c, is proven of a and c.

CLOCK_MONOTONIC never steps, but stands still while a host sleeps or is moved. The offset is then another one, and
older bounds contradict newer ones: of those that contradict each other the nearest in time is believed.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from typing import Final

import msgspec

from pushscope.telemetry.clock import Host

DRIFT: Final = 100e-6
"""By how much of the time that passes two clocks may drift apart: two quartz crystals of 50 ppm each."""
TICK_NS: Final = 100_000_000
"""Of each direction the tightest bound of a tick is kept."""
MAX_TICKS: Final = 10_000
"""Ticks, the newest, that are kept: rings that are read from their beginning reach back."""
_NEAR: Final = 48
"""Bounds on either side of a moment that are looked at; others are widened too much to tell more."""

ClockId = tuple[str, str]
"""What is the same for all processes that share a CLOCK_MONOTONIC."""
Bound = float
"""Nanoseconds; infinite if nothing is proven. Finite ones are integers, which stay exact."""
Pair = tuple[ClockId, ClockId]


class ClockOffset(msgspec.Struct, frozen=True):
    """What a host's clock says beyond what another's says: ``peer_host``'s reading minus ``host``'s."""

    host: str
    peer_host: str
    offset_ns: int
    uncertainty_ns: int | None
    """The true offset lies within so much of ``offset_ns``. None: unsure, no messages both ways were seen, and the
    offset is the last that was known, at first that of the wall clocks."""

    @property
    def notice(self) -> str:
        """What a reader must know; empty if there is nothing."""
        if self.uncertainty_ns is not None:
            return ""
        return (
            f"the clocks of {self.host} and {self.peer_host} are unsure: no handshake between them was seen, nor "
            f"messages both ways; times that span both hosts are by their wall clocks"
        )


def clock_id(host: Host) -> ClockId:
    """Processes with the same id compare their times as they are. Without a boot id a host is known by its name."""
    return (host.boot_id, host.time_namespace) if host.boot_id else (host.name, "")


class _OneWay:
    """What is proven of ``b``'s clock minus ``a``'s, from above. The same whatever the order of messages."""

    __slots__ = ("_ticks", "_tightest")

    def __init__(self) -> None:
        self._tightest: dict[int, tuple[int, int]] = {}
        """Tick (of a's clock) -> (bound, when it holds)."""
        self._ticks: list[int] = []
        """In order."""

    def add(self, t: int, most: int) -> None:
        tick = t // TICK_NS
        known = self._tightest.get(tick)
        if known is None:
            insort(self._ticks, tick)
            if len(self._ticks) > MAX_TICKS:
                self._tightest.pop(self._ticks.pop(0), None)
                if tick < self._ticks[0]:
                    return
        if known is None or (most, t) < known:
            self._tightest[tick] = most, t

    def aged(self, t: int) -> Iterator[tuple[int, int]]:
        """(how far from ``t``, the bound widened by drift) of what is near."""
        at = bisect_left(self._ticks, t // TICK_NS)
        for tick in self._ticks[max(0, at - _NEAR) : at + _NEAR]:
            most, then = self._tightest[tick]
            age = abs(t - then)
            yield age, most + math.ceil(age * DRIFT)


class Clocks:
    """Bounds of the offsets between any number of hosts."""

    def __init__(self) -> None:
        self._proven: dict[Pair, _OneWay] = {}
        self._wall: dict[ClockId, int] = {}
        self._names: dict[ClockId, str] = {}
        self._talking: set[Pair] = set()
        """Pairs of hosts whose engines were seen to talk."""

    # -- what is known -----------------------------------------------------------------------------

    def knows(self, host: ClockId) -> bool:
        return host in self._wall

    def met(self, host: Host, unix_minus_monotonic_ns: int) -> None:
        """A host, and what its wall clock says: the first guess."""
        self._wall.setdefault(clock_id(host), unix_minus_monotonic_ns)
        self._names.setdefault(clock_id(host), host.name)

    def message(self, sender: ClockId, receiver: ClockId, sent: int, received: int) -> None:
        """An engine's message to another: sent no earlier than ``sent``, received no later than ``received``."""
        if sender != receiver:
            self._talking.add((sender, receiver))
            self._prove(sender, receiver, sent, received - sent)

    def told(self, teller: ClockId, reader: ClockId, said: int, heard: int) -> None:
        """The same of what was only sent to a reader: an agent's readings, or the question for them."""
        self._prove(teller, reader, said, heard - said)

    def measured(self, host: ClockId, peer: ClockId, began: int, ended: int, offset: int) -> None:
        """``host`` measured its peer's clock minus its own by a round trip between two moments."""
        self._talking.add((host, peer))
        error = (ended - began) // 2 + math.ceil((ended - began) * DRIFT)
        self._prove(host, peer, ended, offset + error)
        self._prove(peer, host, ended + offset, error - offset)

    def _prove(self, a: ClockId, b: ClockId, t: int, most: int) -> None:
        if a != b:
            self._proven.setdefault((a, b), _OneWay()).add(t, most)

    # -- what follows ------------------------------------------------------------------------------

    def bounds(self, moment: Mapping[ClockId, int]) -> dict[Pair, Bound]:
        """The most that the second clock of a pair can be ahead of the first, at a moment.

        ``moment`` is what each of the clocks says then, roughly: bounds are aged by it.
        """
        hosts = sorted(moment)
        most: dict[Pair, Bound] = {}
        for a, b in combinations(hosts, 2):
            most[a, b], most[b, a] = self._enclosed(a, b, moment)
        if len(hosts) > 2:
            _chain(most, hosts)
        return most

    def _enclosed(self, a: ClockId, b: ClockId, moment: Mapping[ClockId, int]) -> tuple[Bound, Bound]:
        """The bounds of one pair, there and back; what contradicts nearer ones is left out."""
        nothing = _OneWay()
        there = self._proven.get((a, b), nothing).aged(moment[a])
        back = self._proven.get((b, a), nothing).aged(moment[b])
        ab = ba = math.inf
        for _, is_back, most in sorted(
            [*((age, False, m) for age, m in there), *((age, True, m) for age, m in back)]
        ):
            if is_back and most >= -ab:
                ba = min(ba, most)
            elif not is_back and most >= -ba:
                ab = min(ab, most)
        return ab, ba

    def shifts(
        self, fixed: Mapping[ClockId, int], most: Mapping[Pair, Bound], guess: Mapping[ClockId, int]
    ) -> dict[ClockId, int]:
        """What to add to each host's times so that all are in one clock, within all bounds, given those ``fixed``.

        The best known comes first, in the middle of its bounds; the others follow, within what that leaves. Where
        nothing encloses an offset it is the ``guess``, as far as the bounds allow.
        """
        shifts = dict(fixed)
        rest = sorted(guess.keys() - fixed.keys())
        while rest:
            ranges = {host: _range(host, shifts, most) for host in rest}
            host = min(rest, key=lambda h: ranges[h][1] - ranges[h][0])
            low, high = ranges[host]
            if math.isinf(low) or math.isinf(high):
                shifts[host] = int(max(low, min(high, guess[host])))
            else:
                shifts[host] = (int(low) + int(high)) // 2
            rest.remove(host)
        return shifts

    def by_wall_clock(self, here: ClockId, host: ClockId) -> int:
        """What to add to a host's times if both wall clocks are right."""
        return self._wall.get(host, 0) - self._wall.get(here, 0)

    def offsets(
        self, here: ClockId, shifts: Mapping[ClockId, int], most: Mapping[Pair, Bound]
    ) -> tuple[ClockOffset, ...]:
        """The offsets of hosts whose engines talk to each other; of a host that talks to none that of ``here``."""
        hosts = sorted(shifts)
        pairs = [(a, b) for a, b in combinations(hosts, 2) if self._talking & {(a, b), (b, a)}]
        talking = {host for pair in pairs for host in pair}
        pairs += [(here, host) for host in hosts if host not in talking and host != here]
        return tuple(self._offset(a, b, shifts, most) for a, b in pairs)

    def _offset(
        self, a: ClockId, b: ClockId, shifts: Mapping[ClockId, int], most: Mapping[Pair, Bound]
    ) -> ClockOffset:
        offset = shifts[a] - shifts[b]
        width = max(most[a, b] - offset, most[b, a] + offset)
        uncertainty = None if math.isinf(width) else max(0, int(width))
        return ClockOffset(self._names.get(a, a[0]), self._names.get(b, b[0]), offset, uncertainty)


def fits(shifts: Mapping[ClockId, int], most: Mapping[Pair, Bound]) -> bool:
    """Whether shifts keep all bounds."""
    return all(shifts[a] - shifts[b] <= bound for (a, b), bound in most.items())


def narrowest(most: Mapping[Pair, Bound]) -> Bound:
    """The width of the best known offset."""
    return min((bound + most[b, a] for (a, b), bound in most.items()), default=math.inf)


def _range(host: ClockId, fixed: Mapping[ClockId, int], most: Mapping[Pair, Bound]) -> tuple[Bound, Bound]:
    """Between which shifts a host's lies, given those of others."""
    high = min(shift + most[host, other] for other, shift in fixed.items())
    low = max(shift - most[other, host] for other, shift in fixed.items())
    return low, high


def _chain(most: dict[Pair, Bound], hosts: Iterable[ClockId]) -> None:
    """Tighten every bound by the chains over other hosts (Floyd and Warshall); never into a contradiction."""
    for over in hosts:
        for a, b in list(most):
            if over not in (a, b):
                chained = most[a, over] + most[over, b]
                if chained < most[a, b]:
                    most[a, b] = max(chained, -most[b, a])
