"""What an open transfer is at, and who waits for whom. Pure functions of facts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pushscope.telemetry import events as ev
from pushscope.telemetry.half import Facts
from pushscope.telemetry.stages import is_pull
from pushscope.telemetry.transfer import Stage, StageTime, rank_name

_ORDER: Final = tuple(Stage)
_NEXT: Final = {
    Stage.RELAY: Stage.ALLOCATION,
    Stage.ALLOCATION: Stage.HANDOFF,
    Stage.REGISTRATION: Stage.FLIGHT,
    Stage.FLIGHT: Stage.RENDEZVOUS,
    Stage.HANDOFF: Stage.RENDEZVOUS,
    Stage.RENDEZVOUS: Stage.DESCRIPTORS,
    Stage.HANDSHAKE: Stage.DESCRIPTORS,
    Stage.DESCRIPTORS: Stage.SUBMIT,
    Stage.NOTIFICATION: Stage.WAKE,
}
"""Between two stages a transfer is on its way into the one that comes next."""


def present_stage(stages: Sequence[StageTime]) -> tuple[Stage, int] | None:
    """The stage an open transfer is in, and since when: the furthest that has begun and not ended."""
    began = [s for s in stages if s.end_ns is None]
    if began:
        furthest = max(began, key=lambda s: _ORDER.index(s.stage))
        return furthest.stage, furthest.start_ns
    ended = [s for s in stages if s.end_ns is not None]
    if not ended:
        return None
    latest = max(ended, key=lambda s: s.end_ns or 0)
    return _NEXT.get(latest.stage, latest.stage), latest.end_ns or latest.start_ns


def who_waits(p: Facts, d: Facts, *, pull: bool, taken_by: int = 0) -> str:
    """Who waits for what, if one half of the meeting is missing.

    ``taken_by``: the attempt whose registration met the blocks that were meant for this one.
    """
    if is_pull(d):
        handshake = d.has(ev.TransferDeferred) and not d.has(ev.TransferResumed)
        return "D waits for its handshake with P" if handshake else ""
    if p.has(ev.Matched):
        return _waits_for_a_rank(p, d)
    registered = d.has(ev.RegistrationStaged, ev.RegistrationSent, ev.RegistrationDrained)
    staged = p.has(ev.BlocksStaged, ev.BlocksHandedOff, ev.BlocksPickedUp)
    if registered and staged:
        if p.has(ev.LeaseExpired):
            return "D waits for blocks that P has released"
        if d.has(ev.RegistrationDrained):
            return "both are at P, its writer has yet to pair them"
        return "P waits for D's registration to arrive"
    if registered:
        return f"D waits for {_which_prefill(p, taken_by)}"
    if staged:
        waits = "P waits for D to read" if pull else "P waits for D's registration"
        if not d.has(ev.RequestArrived):
            return waits
        if p.has(ev.LeaseExpired):
            return "D has the request queued, P has released its blocks"
        return f"{waits}, D has the request queued"
    return ""


def _waits_for_a_rank(p: Facts, d: Facts) -> str:
    """Some P rank has matched: another may lack a handshake, or have D's registration and not matched it yet."""
    if p.has(ev.TransferDeferred) and not p.has(ev.TransferResumed):
        return "D waits for P's handshake"
    matched = {rank for rank, _ in p.all(ev.Matched)}
    late = sorted({rank for rank, e in d.all(ev.RegistrationDrained) if not e.surplus} - matched)
    return f"D waits for P's {', '.join(map(rank_name, late))} to pair it" if late else ""


def _which_prefill(p: Facts, taken_by: int) -> str:
    if taken_by:
        return f"blocks that P gave to attempt {taken_by}"
    if p.has(ev.PrefillNotProcessed):
        return "a prefill that P gave up"
    if p.has(ev.PrefillScheduled):
        return "P's prefill, which is running"
    if p.has(ev.RequestArrived):
        return "P's prefill, which is queued"
    return "P's prefill"
