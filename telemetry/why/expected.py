"""What a transfer should have done next and did not: on each rank the first step that is missing.

Pure functions of facts. Only what an observed engine would have recorded can be missed, and of a chain of steps
only the first: the others wait for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from pushscope.telemetry import events as ev
from pushscope.telemetry.half import Facts
from pushscope.telemetry.transfer import Rank


class Missing(msgspec.Struct, frozen=True):
    """A step that was to come and had not."""

    side: str
    """``P`` or ``D``: where it was to happen."""
    rank: Rank | None
    """None: the scheduler."""
    what: str
    since_ns: int
    """When the step before it was done."""


class Sides(NamedTuple):
    """What is known of the two engines of a transfer."""

    p: Facts
    d: Facts
    p_ranks: frozenset[Rank] = frozenset()
    """P's ranks that record; none if it isn't observed."""
    d_ranks: frozenset[Rank] = frozenset()
    pull: bool = False
    taken_by: int = 0
    """The attempt that got the blocks which were meant for this one."""


class _Step(NamedTuple):
    kind: type[ev.RequestEvent]
    what: str
    or_kinds: tuple[type[ev.RequestEvent], ...] = ()
    """Kinds that make up for it: the step failed, or isn't needed."""


def missing(sides: Sides) -> tuple[Missing, ...]:
    """Everything that was to come, the longest awaited first."""
    found = [*_prefill(sides), *_decode(sides)]
    if sides.pull:
        found += [*_writes(sides.d, "D", sides.d_ranks, "read")] if sides.d_ranks else []
    elif sides.p_ranks:
        found += [*_rendezvous(sides), *_writes(sides.p, "P", sides.p_ranks, "write")]
    if sides.d_ranks:
        found += [*_receive(sides)]
    return tuple(sorted(found, key=lambda m: (m.since_ns, m.side, m.rank or (-1, -1))))


# -- chains ------------------------------------------------------------------------------------------

_PREFILL: Final = (
    _Step(ev.PrefillScheduled, "the prefill begins", (ev.BlocksStaged,)),
    _Step(ev.BlocksStaged, "the prefill is done"),
)
_QUEUED: Final = (
    _Step(
        ev.RegistrationStaged, "blocks allocated, registration staged", (ev.NothingToReceive, ev.RequestEnded)
    ),
)
_QUEUED_PULL: Final = (
    _Step(ev.ReadStaged, "blocks allocated, read staged", (ev.NothingToReceive, ev.RequestEnded)),
)
_REGISTRATION: Final = (
    _Step(ev.RegistrationHandedOff, "the registration reaches the worker"),
    _Step(ev.RegistrationSent, "the registration is sent to P"),
)
_WRITE: Final = (
    _Step(ev.DescriptorsBuilt, "{verb} {number}: prepared", (ev.TransferFailed,)),
    _Step(ev.SubmitStarted, "{verb} {number}: given to NIXL", (ev.TransferFailed,)),
    _Step(ev.Submitted, "{verb} {number}: NIXL takes it (the call has not returned)", (ev.TransferFailed,)),
    _Step(ev.TransferDone, "{verb} {number}: done", (ev.TransferFailed,)),
)
_AFTER_RECEIVE: Final = (
    _Step(ev.ReceiveFinished, "the scheduler hears that all ranks have received", (ev.DecodeScheduled,)),
    _Step(ev.DecodeScheduled, "decode scheduled", (ev.RequestEnded,)),
)


def _first_missing(
    chain: Iterable[_Step], events: Sequence[ev.Event], since: int
) -> tuple[_Step, int] | None:
    """The first step of a chain that no event of these shows, and when the step before it was done."""
    for step in chain:
        kinds = (step.kind, *step.or_kinds)
        done = [e.t for e in events if isinstance(e, kinds)]
        if not done:
            return step, since
        if not any(isinstance(e, step.kind) for e in events):
            return None  # it failed, or isn't needed, and so are those behind it
        since = min(done)
    return None


def _events(facts: Facts, kinds: Iterable[type[ev.RequestEvent]], rank: Rank | None = None) -> list[ev.Event]:
    return [e for kind in kinds for r, e in facts.all(kind) if rank in (None, r)]


def _kinds(chain: Iterable[_Step]) -> set[type[ev.RequestEvent]]:
    return {kind for step in chain for kind in (step.kind, *step.or_kinds)}


# -- P's and D's leg ---------------------------------------------------------------------------------


def _prefill(sides: Sides) -> Iterator[Missing]:
    """From the prefill leg to finished blocks at every rank's writer."""
    p, d = sides.p, sides.d
    if not sides.p_ranks:
        return
    asked = d.first(ev.RegistrationStaged) or d.first(ev.RegistrationDrained) or d.first(ev.RequestArrived)
    if asked is not None and sides.taken_by:
        yield Missing("P", None, f"its blocks (P gave them to attempt {sides.taken_by})", asked.t)
        return
    arrived = p.first(ev.RequestArrived)
    begun = p.has(ev.PrefillScheduled, ev.BlocksStaged, ev.BlocksPickedUp, ev.Matched)
    if arrived is None and not begun:
        if asked is not None:
            yield Missing("P", None, "the prefill leg arrives", asked.t)
        return
    if dropped := p.first(ev.PrefillNotProcessed):
        yield Missing("P", None, f"blocks for D (P ended the prefill leg: {dropped.status})", dropped.t)
        return
    since = arrived.t if arrived else 0
    if late := _first_missing(_PREFILL, _events(p, _kinds(_PREFILL)), since):
        yield Missing("P", None, late[0].what, late[1] or since)
        return
    staged = p.first(ev.BlocksStaged)
    if staged is not None and not sides.pull and not p.has(ev.LeaseExpired):
        picked = {rank for rank, _ in (*p.all(ev.BlocksPickedUp), *p.all(ev.Matched))}
        for rank in sorted(sides.p_ranks):
            if rank not in picked:
                yield Missing("P", rank, "the writer thread picks up the blocks", staged.t)


def _decode(sides: Sides) -> Iterator[Missing]:
    """From the decode leg to a registration at every P rank (pull: a read at every D rank)."""
    p, d = sides.p, sides.d
    if not sides.d_ranks:
        staged = p.first(ev.BlocksStaged)
        if staged is not None and not _asked(d) and sides.p_ranks:
            yield Missing("D", None, "the decode leg (no observed engine has it)", staged.t)
        return
    arrived = d.first(ev.RequestArrived)
    if arrived is not None:
        queued = _QUEUED_PULL if sides.pull else _QUEUED
        if late := _first_missing(queued, _events(d, _kinds(queued)), arrived.t):
            yield Missing("D", None, late[0].what, late[1])
            return
    if sides.pull:
        yield from _handed_off(
            sides, (_Step(ev.ReadHandedOff, "the read reaches the worker"),), ev.ReadStaged
        )
        for rank, handed_off in d.all(ev.ReadHandedOff):
            if not d.has(ev.ReceiveDone, ev.NotificationSent):
                yield from _beginning(d, "D", rank, "read", handed_off.t)
        return
    yield from _handed_off(sides, _REGISTRATION, ev.RegistrationStaged)
    drained = {rank for rank, _ in d.all(ev.RegistrationDrained)}
    if sides.p_ranks:
        sent: dict[Rank, int] = {}
        for _, e in d.all(ev.RegistrationSent):
            rank = (e.peer_pp, e.peer_tp)
            sent[rank] = min(e.t, sent.get(rank, e.t))
        for rank in sorted(sent.keys() - drained):
            yield Missing("P", rank, "D's registration arrives (an idle P reads none)", sent[rank])


def _handed_off(sides: Sides, chain: tuple[_Step, ...], begins: type[ev.RequestEvent]) -> Iterator[Missing]:
    staged = sides.d.first(begins)
    if staged is None:
        return
    for rank in sorted(sides.d_ranks):
        if late := _first_missing(chain, _events(sides.d, _kinds(chain), rank), staged.t):
            yield Missing("D", rank, late[0].what, late[1])


# -- where the two meet ------------------------------------------------------------------------------


def _rendezvous(sides: Sides) -> Iterator[Missing]:
    """On each P rank that has both halves: that it pairs them, and begins to write."""
    p, d = sides.p, sides.d
    if p.has(ev.NothingToPush):
        yield Missing("P", None, "a write (no blocks are left to write)", _first_t(p, ev.NothingToPush))
        return
    for rank in sorted(sides.p_ranks):
        picked, drained = _at(p, ev.BlocksPickedUp, rank), _at(d, ev.RegistrationDrained, rank)
        matched = _at(p, ev.Matched, rank)
        if matched is not None:
            yield from _beginning(p, "P", rank, "write", matched)
        elif picked is not None and drained is not None:
            yield Missing("P", rank, "blocks and registration are matched", max(picked, drained))


def _beginning(poster: Facts, side: str, rank: Rank, verb: str, ready_t: int) -> Iterator[Missing]:
    """That a rank which has all it needs begins to write or read."""
    deferred, resumed = (_last_at(poster, kind, rank) for kind in (ev.TransferDeferred, ev.TransferResumed))
    if deferred is not None and (resumed or 0) < deferred:
        yield Missing(side, rank, f"the handshake with {'D' if side == 'P' else 'P'} is done", deferred)
    elif not any(
        r == rank for kind in (ev.DescriptorsStarted, ev.TransferFailed) for r, _ in poster.all(kind)
    ):
        yield Missing(side, rank, f"a {verb} begins", max(ready_t, resumed or 0))


def _writes(poster: Facts, side: str, ranks: Iterable[Rank], verb: str) -> Iterator[Missing]:
    """Each transfer that was begun: that it is prepared, posted and done."""
    for rank in sorted(ranks):
        for r, begun in poster.all(ev.DescriptorsStarted):
            if r != rank:
                continue
            events = [
                e
                for e in _events(poster, _kinds(_WRITE), rank)
                if isinstance(e, ev.TransferEvent) and e.number == begun.number
            ]
            if late := _first_missing(_WRITE, events, begun.t):
                what = late[0].what.format(verb=verb, number=begun.number)
                yield Missing(side, rank, what, late[1])


def _receive(sides: Sides) -> Iterator[Missing]:
    """At D: notifications on every rank (pull: its reads done), then the decode."""
    p, d = sides.p, sides.d
    if not _asked(d) or d.has(ev.ReceiveFailed, ev.DecodeScheduled):
        return
    done = {rank for rank, _ in d.all(ev.ReceiveDone)}
    last = 0
    for rank in sorted(sides.d_ranks):
        if rank in done:
            last = max(last, _at(d, ev.ReceiveDone, rank) or 0)
            continue
        if not sides.pull:
            counted, needed = _counted(d, rank), _needed(sides)
            since = max((e.t for e in (*_posted(p, rank), *counted)), default=0)
            if since and len(counted) < needed:
                more = f"{needed - len(counted)} of {needed} notifications of completion"
                yield Missing("D", rank, more, since)
            elif since:
                yield Missing("D", rank, "the blocks are reported as received", since)
    if done >= sides.d_ranks and (
        late := _first_missing(_AFTER_RECEIVE, _events(d, _kinds(_AFTER_RECEIVE)), last)
    ):
        yield Missing("D", None, late[0].what, late[1])


def _posted(p: Facts, d_rank: Rank) -> list[ev.SubmitStarted]:
    """The writes to one D rank that were given to NIXL."""
    to = {(r, e.number) for r, e in p.all(ev.DescriptorsStarted) if e.peer_tp == d_rank[1]}
    return [e for r, e in p.all(ev.SubmitStarted) if (r, e.number) in to]


def _counted(d: Facts, rank: Rank) -> list[ev.NotificationCounted]:
    return [e for r, e in d.all(ev.NotificationCounted) if r == rank]


def _needed(sides: Sides) -> int:
    """How many notifications each D rank waits for (``push_worker._get_new_notifs``)."""
    registered = sides.d.first(ev.RegistrationStaged)
    tp = registered.peer_tp if registered else _width(sides.p_ranks)
    pp = registered.peer_pp if registered else len({rank[0] for rank in sides.p_ranks})
    return max(1, pp) * max(1, tp // max(1, _width(sides.d_ranks)))


def _width(ranks: Iterable[Rank]) -> int:
    return len({tp for _, tp in ranks})


def _asked(d: Facts) -> bool:
    return d.has(ev.RegistrationStaged, ev.RegistrationSent, ev.RegistrationDrained, ev.ReadStaged)


def _at(facts: Facts, kind: type[ev.RequestEvent], rank: Rank) -> int | None:
    return min((e.t for r, e in facts.all(kind) if r == rank), default=None)


def _last_at(facts: Facts, kind: type[ev.RequestEvent], rank: Rank) -> int | None:
    return max((e.t for r, e in facts.all(kind) if r == rank), default=None)


def _first_t(facts: Facts, kind: type[ev.RequestEvent]) -> int:
    first = facts.first(kind)
    return first.t if first else 0
