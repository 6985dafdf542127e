"""From facts to stages: where a transfer's time went, on which rank, and what of it the first token waited for.

Pure functions. ``p`` and ``d`` are what the two engines recorded; ``agents`` names the rank that each NIXL
agent speaks for. In push mode P polls a write's state once per engine step while NIXL tells D by itself, so
*done seen* at P ends the wire only where D is not observed, and is then marked as an upper bound. In pull mode
D posts and polls: what it saw done is what it goes by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pushscope.telemetry import events as ev
from pushscope.telemetry.half import Facts
from pushscope.telemetry.transfer import Rank, Stage, StageTime

Agents = Mapping[str, Rank]
_CHAIN: Final = (
    Stage.RELAY,
    Stage.ALLOCATION,
    Stage.HANDOFF,
    Stage.RENDEZVOUS,
    Stage.HANDSHAKE,
    Stage.DESCRIPTORS,
    Stage.SUBMIT,
    Stage.WIRE,
    Stage.NOTIFICATION,
    Stage.WAKE,
)
"""The stages after blocks staged, in the order in which a request meets them."""


def is_pull(d: Facts) -> bool:
    """Whether D reads."""
    return d.has(ev.ReadStaged, ev.ReadHandedOff)


def stages_of(p: Facts, d: Facts, agents: Agents) -> list[StageTime]:
    """Every stage that was observed, open ones without an end."""
    if is_pull(d):
        return [*_asking(p, d), *_handshake(d, at_d=True), *_reads(d), *_wake(d, ev.ReceiveDone)]
    return [
        *_registration(d),
        *_flight(d, agents),
        *_handoff(p),
        *_rendezvous(p, d),
        *_handshake(p),
        *_writes(p, d, agents),
        *_notification(d, agents),
        *_wake(d, ev.NotificationCounted),
    ]


def _registration(d: Facts) -> list[StageTime]:
    staged = d.first(ev.RegistrationStaged)
    if staged is None:
        return []
    sent = _latest_by_rank(d.all(ev.RegistrationSent))
    if not sent:
        failed = d.last(ev.RegistrationFailed)
        return [StageTime(Stage.REGISTRATION, staged.t, failed.t if failed else None)]
    return [StageTime(Stage.REGISTRATION, staged.t, t, peer_rank=rank) for rank, t in sorted(sent.items())]


def _flight(d: Facts, agents: Agents) -> list[StageTime]:
    """From each D rank to each P rank that it registered with."""
    drained: dict[tuple[Rank, Rank | None], int] = {}
    by_p_rank: dict[Rank, int] = {}
    for p_rank, e in d.all(ev.RegistrationDrained):
        drained[(p_rank, agents.get(e.agent))] = e.t
        by_p_rank[p_rank] = min(e.t, by_p_rank.get(p_rank, e.t))
    found = []
    for d_rank, sent in d.all(ev.RegistrationSent):
        p_rank = (sent.peer_pp, sent.peer_tp)
        end = _not_before(sent.t, drained.get((p_rank, d_rank), by_p_rank.get(p_rank)))
        found.append(StageTime(Stage.FLIGHT, sent.t, end, rank=p_rank, peer_rank=d_rank))
    return found


def _not_before(sent: int, received: int | None) -> int | None:
    """When a message was received. Of hosts whose clocks are unsure it may seem to be before it was sent."""
    return None if received is None else max(sent, received)


def _handoff(p: Facts) -> list[StageTime]:
    staged = p.first(ev.BlocksStaged)
    if staged is None:
        return []
    picked = p.all(ev.BlocksPickedUp)
    if not picked:
        return [StageTime(Stage.HANDOFF, staged.t)]
    return [StageTime(Stage.HANDOFF, staged.t, e.t, rank=rank) for rank, e in picked]


def _rendezvous(p: Facts, d: Facts) -> list[StageTime]:
    picked = _earliest_by_rank(p.all(ev.BlocksPickedUp))
    drained = _earliest_by_rank(d.all(ev.RegistrationDrained))
    matched = dict(p.all(ev.Matched))
    found = []
    for rank in sorted(picked.keys() | drained.keys()):
        start = min(times[rank] for times in (picked, drained) if rank in times)
        match = matched.get(rank)
        if match is not None:
            waited = "P waited for D" if match.blocks_first else "D waited for P"
        else:
            waited = "P waits for D" if rank in picked else "D waits for P"
        found.append(StageTime(Stage.RENDEZVOUS, start, match.t if match else None, rank=rank, waited=waited))
    return found


def _handshake(waiting: Facts, *, at_d: bool = False) -> list[StageTime]:
    """Of the side that posts the transfer: P in push mode, D in pull mode."""
    resumed = sorted((rank, e.t) for rank, e in waiting.all(ev.TransferResumed))
    found = []
    for rank, deferred in waiting.all(ev.TransferDeferred):
        end = next((t for r, t in resumed if r == rank and t >= deferred.t), None)
        if end is None:
            failed = [
                e.t
                for r, e in waiting.all(ev.TransferFailed)
                if r == rank and e.error_type in ("push_handshake_failed", "handshake_failed")
            ]
            end = min(failed, default=None)
        p_rank, d_rank = (None, rank) if at_d else (rank, None)
        found.append(StageTime(Stage.HANDSHAKE, deferred.t, end, rank=p_rank, peer_rank=d_rank))
    return found


class _Posted:
    """Times of the NIXL transfers of the side that posts them, by (rank, number)."""

    def __init__(self, side: Facts):
        def times(kind: type[ev.TransferEvent]) -> dict[tuple[Rank, int], int]:
            return {(rank, e.number): e.t for rank, e in side.all(kind)}

        self.built = times(ev.DescriptorsBuilt)
        self.begun = times(ev.SubmitStarted)
        self.ended = times(ev.Submitted)
        self.done = times(ev.TransferDone)
        self.failed = times(ev.TransferFailed)

    def stages(self, key: tuple[Rank, int], started: int, p_rank: Rank, d_rank: Rank) -> list[StageTime]:
        """Descriptors and submit."""
        failed = self.failed.get(key)
        built = self.built.get(key, failed)
        found = [StageTime(Stage.DESCRIPTORS, started, built, rank=p_rank, peer_rank=d_rank)]
        if (begun := self.begun.get(key)) is not None:
            submitted = self.ended.get(key, failed)
            found.append(StageTime(Stage.SUBMIT, begun, submitted, rank=p_rank, peer_rank=d_rank))
        return found


def _writes(p: Facts, d: Facts, agents: Agents) -> list[StageTime]:
    """Descriptors, submit and wire of each WRITE."""
    posted = _Posted(p)
    arrived = {(agents.get(e.agent), d_rank): e.t for d_rank, e in d.all(ev.NotificationDrained)}
    d_is_seen = d.has(ev.RegistrationStaged, ev.RegistrationHandedOff, ev.NotificationDrained)
    found = []
    for rank, started in p.all(ev.DescriptorsStarted):
        key, peer = (rank, started.number), (0, started.peer_tp)
        found += posted.stages(key, started.t, rank, peer)
        if (begun := posted.begun.get(key)) is None:
            continue
        failed, bound = posted.failed.get(key), False
        end = _not_before(begun, arrived.get((rank, peer), failed))
        if end is None and not d_is_seen:
            end, bound = posted.done.get(key), True
        found.append(StageTime(Stage.WIRE, begun, end, rank=rank, peer_rank=peer, upper_bound=bound))
    return found


def _reads(d: Facts) -> list[StageTime]:
    """Pull: descriptors, submit and wire of each READ."""
    posted = _Posted(d)
    found = []
    for rank, started in d.all(ev.DescriptorsStarted):
        key, peer = (rank, started.number), (0, started.peer_tp)
        found += posted.stages(key, started.t, peer, rank)
        if (begun := posted.begun.get(key)) is not None:
            end = posted.done.get(key, posted.failed.get(key))
            found.append(StageTime(Stage.WIRE, begun, end, rank=peer, peer_rank=rank))
    return found


def _asking(p: Facts, d: Facts) -> list[StageTime]:
    """Pull: how D comes to read: relay, allocation, handoff."""
    staged, arrived, wanted = p.first(ev.BlocksStaged), d.first(ev.RequestArrived), d.first(ev.ReadStaged)
    found = []
    if staged and arrived:
        found.append(StageTime(Stage.RELAY, staged.t, max(staged.t, arrived.t)))
    if arrived:
        found.append(StageTime(Stage.ALLOCATION, arrived.t, wanted.t if wanted else None))
    if wanted:
        handed = d.all(ev.ReadHandedOff)
        found += [StageTime(Stage.HANDOFF, wanted.t, e.t, peer_rank=rank) for rank, e in handed]
        if not handed:
            found.append(StageTime(Stage.HANDOFF, wanted.t))
    return found


def _notification(d: Facts, agents: Agents) -> list[StageTime]:
    """Drained -> counted: the n-th counted on a rank is the n-th drained there."""
    counted: dict[Rank, list[int]] = {}
    for rank, count in sorted(d.all(ev.NotificationCounted), key=lambda found: found[1].n):
        counted.setdefault(rank, []).append(count.t)
    found = []
    for rank, e in sorted(d.all(ev.NotificationDrained), key=lambda found: found[1].t):
        times = counted.get(rank)
        end = times.pop(0) if times else None
        found.append(StageTime(Stage.NOTIFICATION, e.t, end, rank=agents.get(e.agent), peer_rank=rank))
    return found


def _wake(d: Facts, arrived: type[ev.RequestEvent]) -> list[StageTime]:
    last, scheduled = d.last(arrived), d.first(ev.DecodeScheduled)
    if last is None or (scheduled is None and not d.has(ev.ReceiveDone)):
        return []
    return [StageTime(Stage.WAKE, last.t, scheduled.t if scheduled else None)]


def critical_path(p: Facts, d: Facts, stages: Sequence[StageTime]) -> tuple[StageTime, ...]:
    """The chain through the last rank, from blocks staged to decode scheduled, in disjoint pieces.

    The last rank is the one whose notification was counted (pull: whose read was seen done) last. Empty unless
    both ends were seen.
    """
    staged, scheduled = p.first(ev.BlocksStaged), d.first(ev.DecodeScheduled)
    arrival = Stage.WIRE if is_pull(d) else Stage.NOTIFICATION
    last = max(
        (s for s in stages if s.stage is arrival and s.end_ns is not None),
        key=lambda s: s.end_ns or 0,
        default=None,
    )
    if staged is None or scheduled is None or last is None:
        return ()
    links = [s for s in stages if s.stage in _CHAIN and _on_the_way(s, last)]
    path: list[StageTime] = []
    cursor = staged.t
    for s in sorted(links, key=lambda s: _CHAIN.index(s.stage)):
        if s.end_ns is None:
            continue
        start, end = max(s.start_ns, cursor), min(s.end_ns, scheduled.t)
        if end > start:
            path.append(StageTime(s.stage, start, end, rank=s.rank, peer_rank=s.peer_rank, waited=s.waited))
            cursor = end
    return tuple(path)


def _on_the_way(s: StageTime, last: StageTime) -> bool:
    """Whether a stage lies on the way through the ranks of the last notification."""
    same_p = s.rank is None or last.rank is None or s.rank == last.rank
    same_d = s.peer_rank is None or s.peer_rank == last.peer_rank
    return same_p and same_d


def _earliest_by_rank(found: Sequence[tuple[Rank, ev.Event]]) -> dict[Rank, int]:
    times: dict[Rank, int] = {}
    for rank, e in found:
        times[rank] = min(e.t, times.get(rank, e.t))
    return times


def _latest_by_rank(found: Sequence[tuple[Rank, ev.Event]]) -> dict[Rank, int]:
    times: dict[Rank, int] = {}
    for rank, e in found:
        times[rank] = max(e.t, times.get(rank, e.t))
    return times
