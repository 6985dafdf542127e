"""Which engines have to do with each other: what moves between each P and each D, and how they know each other."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from heapq import nsmallest
from typing import Final

from pushscope.telemetry import units
from pushscope.telemetry.histogram import Histogram
from pushscope.telemetry.pace import PRECISE, times_of
from pushscope.telemetry.snapshot import Pair, Snapshot
from pushscope.telemetry.story import EngineStory, InstanceStory, PeerStory
from pushscope.telemetry.transfer import WENT_WRONG, Outcome, Transfer
from pushscope.telemetry.watch import Watcher

MAX_PAIRS: Final = 200
MAX_KNOWN: Final = 4_096
"""Of so many pairs counts are kept, those that had transfers last: 64 P and 64 D."""
_LOOK_NS: Final = 1_000_000_000
_ERROR_CELLS: Final = 60
_Ends = tuple[str, str]
"""(P engine, D engine)"""


class _Ended:
    """What has ended between two engines."""

    __slots__ = ("bad", "delivered", "exposed", "num_bytes")

    def __init__(self) -> None:
        self.delivered = self.bad = self.num_bytes = 0
        self.exposed = Histogram(PRECISE)


class _Open:
    """What is open between two engines now."""

    __slots__ = ("in_flight", "since_ns", "waiting")

    def __init__(self) -> None:
        self.in_flight = self.waiting = 0
        self.since_ns: int | None = None

    def add(self, transfer: Transfer) -> None:
        if transfer.outcome is Outcome.MOVING:
            self.in_flight += 1
        else:
            self.waiting += 1
        if self.since_ns is None or transfer.opened_ns < self.since_ns:
            self.since_ns = transfer.opened_ns


class PairsFold:
    """Counts what has ended by pair. How engines know each other it looks up at most once a second."""

    def __init__(self) -> None:
        self._ended: OrderedDict[_Ends, _Ended] = OrderedDict()
        self._looked_ns: int | None = None
        self._contacts: dict[_Ends, str] = {}
        self._heartbeats: dict[str, tuple[int, int]] = {}

    def ended(self, transfer: Transfer) -> None:
        """Count a transfer that has ended, if both of its engines are known."""
        if transfer.p_engine is None or transfer.d_engine is None:
            return
        ends = (transfer.p_engine, transfer.d_engine)
        if (known := self._ended.get(ends)) is None:
            known = self._ended[ends] = _Ended()
            if len(self._ended) > MAX_KNOWN:
                self._ended.popitem(last=False)
        self._ended.move_to_end(ends)
        known.bad += transfer.outcome in WENT_WRONG
        if transfer.outcome is Outcome.DELIVERED:
            known.delivered += 1
            known.num_bytes += transfer.num_bytes or 0
        if transfer.exposed_ns is not None:
            known.exposed.add(max(0, transfer.exposed_ns))

    def pairs(self, watcher: Watcher, snapshot: Snapshot) -> tuple[Pair, ...]:
        """Those with the most to do: the most open transfers, then the most that ended."""
        if self._looked_ns is None or not 0 <= snapshot.taken_ns - self._looked_ns < _LOOK_NS:
            self._looked_ns = snapshot.taken_ns
            stories = watcher.stories.all()
            self._contacts = _contacts(stories, snapshot)
            self._heartbeats = _heartbeats(stories)
        now = _open(snapshot)
        none, nothing = _Open(), _Ended()

        def least(ends: _Ends) -> tuple[int, int, _Ends]:
            is_open, ended = now.get(ends, none), self._ended.get(ends, nothing)
            return -(is_open.in_flight + is_open.waiting), -(ended.delivered + ended.bad), ends

        known = now.keys() | self._ended.keys() | self._contacts.keys()
        return tuple(
            self._pair(ends, now.get(ends, none), self._ended.get(ends, nothing), snapshot.taken_ns)
            for ends in nsmallest(MAX_PAIRS, known, key=least)
        )

    def _pair(self, ends: _Ends, is_open: _Open, ended: _Ended, now_ns: int) -> Pair:
        applied, ignored = self._heartbeats.get(ends[0], (0, 0))
        return Pair(
            p_engine=ends[0],
            d_engine=ends[1],
            in_flight=is_open.in_flight,
            waiting=is_open.waiting,
            oldest_s=None if is_open.since_ns is None else max(0, now_ns - is_open.since_ns) / 1e9,
            delivered=ended.delivered,
            bad=ended.bad,
            num_bytes=ended.num_bytes,
            exposed=times_of(ended.exposed),
            handshake=self._contacts.get(ends, ""),
            heartbeats_applied=applied,
            heartbeats_ignored=ignored,
        )


def _open(snapshot: Snapshot) -> dict[_Ends, _Open]:
    found: dict[_Ends, _Open] = {}
    for transfers in (snapshot.in_flight, snapshot.waiting):
        for transfer in transfers:
            if transfer.p_engine is not None and transfer.d_engine is not None:
                ends = (transfer.p_engine, transfer.d_engine)
                if (known := found.get(ends)) is None:
                    known = found[ends] = _Open()
                known.add(transfer)
    return found


def _heartbeats(stories: Iterable[EngineStory]) -> dict[str, tuple[int, int]]:
    """(applied, ignored) at each engine, over its ranks."""
    found = {}
    for story in stories:
        beats = [worker.heartbeats for worker in story.workers]
        found[story.engine_id] = (sum(b.applied for b in beats), sum(b.ignored for b in beats))
    return found


def _contacts(stories: Iterable[EngineStory], snapshot: Snapshot) -> dict[_Ends, str]:
    """How each pair stands, in words; of several ranks and directions the worst."""
    sides = {engine.engine_id: engine.side for engine in snapshot.engines}
    found: dict[_Ends, tuple[int, str]] = {}
    for story in stories:
        for instance in story.current:
            for peer in instance.peers().values():
                told = _stands(instance, peer, snapshot.taken_ns)
                for ends in _ends(story, peer.engine, sides):
                    found[ends] = max(told, found.get(ends, (0, "")))
    return {ends: words for ends, (_, words) in found.items() if words}


def _ends(story: EngineStory, peer: str, sides: dict[str, str]) -> list[_Ends]:
    """Which of two engines is P: by their roles; an engine that is both may be either."""
    own, other = story.side, sides.get(peer, "PD")
    ends = []
    if "P" in own and "D" in other:
        ends.append((story.engine_id, peer))
    if "D" in own and "P" in other:
        ends.append((peer, story.engine_id))
    return ends


def _stands(instance: InstanceStory, peer: PeerStory, now_ns: int) -> tuple[int, str]:
    """(how bad, in words)"""
    if peer.failures:
        last = peer.failures[-1]
        return 3, f"failed: {units.clean(last.error or last.error_type, _ERROR_CELLS)}"
    if peer.pending_ns is not None and instance.alive:
        return 2, f"pending {units.coarse_age(max(0, now_ns - peer.pending_ns) / 1e9)}"
    return (1, "done") if peer.ended else (0, "")
