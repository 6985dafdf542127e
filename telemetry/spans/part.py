"""A side's part of a transfer: from when to when it was at it, on which ranks. Pure functions of facts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pushscope.telemetry import events as ev
from pushscope.telemetry.group import Sides
from pushscope.telemetry.half import Facts, heard_of_d
from pushscope.telemetry.transfer import Rank, Stage, Transfer

_DONE_WITH: Final = (
    ev.TransferDone,
    ev.TransferFailed,
    ev.NothingToPush,
    ev.LeaseExpired,
    ev.NotificationCounted,
)
"""What ends a P rank's part."""
_WRITE_OVER: Final[tuple[type[ev.TransferEvent], ...]] = (ev.TransferDone, ev.TransferFailed)
_DROPPED: Final = (ev.SendFinished, ev.PrefillNotProcessed)
_D_OVER: Final = (ev.DecodeScheduled, ev.ReceiveFailed, ev.RequestEnded, ev.NothingToReceive)
"""What ends D's part: the first kind that was seen, in this order."""


def engines_done(transfer: Transfer, sides: Sides) -> frozenset[str]:
    """The engines whose part is over, whatever the other still waits for: their spans can be made.

    A D that waits for ever keeps a transfer open; P's part ends with its lease all the same.
    """
    d_done = _d_is_over(sides)
    p_done = _p_is_over(sides) or (transfer.p_request is None and d_done)
    engines = ((transfer.d_engine, d_done), (transfer.p_engine, p_done))
    return frozenset(engine for engine, done in engines if engine and done)


def _d_is_over(sides: Sides) -> bool:
    """Whether D has its blocks, or has given up; or is gone."""
    return sides.d.has(*_D_OVER) or not sides.d_engine.alive


def _p_is_over(sides: Sides) -> bool:
    """Whether P has let the blocks go, or is gone."""
    return sides.p.has(*_DROPPED, ev.LeaseExpired) or not sides.p_engine.alive


def d_times(sides: Sides, until_ns: int) -> tuple[int, int] | None:
    """From when to when D was at it; ``until_ns`` if it still is. None if D said nothing of it."""
    d = sides.d
    own = [e.t for kind in d.kinds() for _, e in d.all(kind) if not heard_of_d(e)]
    if not own:
        return None
    staged = d.first(ev.RegistrationStaged)
    start = staged.t if staged else min(own)
    ends = [e.t for _, e in _first_seen(d, _D_OVER)]
    if not ends and not _d_is_over(sides):
        ends = [until_ns]
    return start, max(start, min(ends) if ends else max(own))


def p_ranks(transfer: Transfer, sides: Sides) -> list[Rank | None]:
    """The P ranks that had a part in it; ``[None]`` if only the scheduler was heard, ``[]`` if P was not."""
    of_stages = {s.rank for s in transfer.stages if s.stage in (Stage.RENDEZVOUS, Stage.DESCRIPTORS)}
    said = {rank for kind in (*_DONE_WITH, ev.NotificationDrained) for rank, _ in sides.p.all(kind)}
    ranks = {rank for rank in said | (of_stages if transfer.mode == "push" else set()) if rank is not None}
    if not ranks:
        ranks = {rank for kind in (ev.BlocksPickedUp, ev.LeaseSet) for rank, _ in sides.p.all(kind)}
    staged = sides.p.has(ev.BlocksStaged, ev.PrefillNotProcessed)
    return [*sorted(ranks)] if ranks else [None] if staged else []


def p_times(transfer: Transfer, sides: Sides, rank: Rank | None, until_ns: int) -> tuple[int, int]:
    """From when to when a P rank was at it; ``until_ns`` if it still is."""
    p = sides.p
    staged = p.first(ev.BlocksStaged) or p.first(ev.PrefillNotProcessed)
    begun = [s.start_ns for s in transfer.stages if s.stage is Stage.RENDEZVOUS and s.rank == rank]
    begun += [staged.t] if staged else []
    own = [e.t for kind in p.kinds() for r, e in p.all(kind)]
    start = min(begun or own or [until_ns])
    if ends := _done(p, rank) or [e.t for kind in _DROPPED for _, e in p.all(kind)]:
        end = max(ends)
    elif not sides.p_engine.alive:
        end = max(own, default=start)
    elif transfer.p_request is None and transfer.closed_ns:
        end = transfer.closed_ns  # no prefill came for D's registration
    else:
        end = until_ns
    return start, max(start, end)


def _done(p: Facts, rank: Rank | None) -> list[int]:
    """When a P rank's writes were done, or it gave the blocks up; empty while a write is on its way."""
    posted = {e.number for r, e in p.all(ev.DescriptorsStarted) if r == rank}
    over = {e.number for kind in _WRITE_OVER for r, e in p.all(kind) if r == rank}
    if posted - over and not p.has(ev.LeaseExpired):
        return []
    return [e.t for kind in _DONE_WITH for r, e in p.all(kind) if r == rank]


def _first_seen(side: Facts, kinds: Iterable[type[ev.Event]]) -> list[tuple[Rank, ev.Event]]:
    """All events of the first of these kinds that was seen."""
    return next((found for kind in kinds if (found := side.all(kind))), [])
