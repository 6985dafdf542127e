"""From facts to a transfer: how it stands, how it ended, how much of it moved. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from pushscope.telemetry import events as ev
from pushscope.telemetry.half import NO_FACTS, Facts, Half
from pushscope.telemetry.pairing import Pair, wanted_by
from pushscope.telemetry.stages import Agents, critical_path, is_pull, stages_of
from pushscope.telemetry.transfer import (
    NOTHING_MOVED,
    OPEN_OUTCOMES,
    Outcome,
    Rank,
    Stage,
    Transfer,
)
from pushscope.telemetry.waits import present_stage, who_waits

_GOOD_ENDS: Final = frozenset({"finished_stopped", "finished_length_capped"})
_D_WANTS: Final = (
    ev.RegistrationStaged,
    ev.RegistrationHandedOff,
    ev.ReadStaged,
    ev.ReadHandedOff,
    ev.RequestArrived,
)
"""D has the request, or has even asked for its blocks."""
_ORDER: Final = tuple(Stage)


class EngineFacts(msgspec.Struct, frozen=True):
    """What must be known of an engine to judge its transfers."""

    observed: bool = False
    """Some ring of it was read."""
    alive: bool = True
    tp_size: int = 1
    pp_size: int = 1
    mode: str = "push"
    last_t: int = 0
    """Of an engine that is gone: when it was heard last."""
    died_of: str = ""
    """Of an engine that is gone: what its connector raised."""
    host: str = ""
    block_size: int = 0
    """Tokens in a block; 0 if not known."""
    started_ns: int = 0
    """When the process that records now began to."""
    restarted: bool = False
    """Of an engine that is gone: another process has its id by now."""
    heard_ns: int = 0
    """When it was heard last; looked up only for a diagnosis."""
    stopped: bool = False
    """A process of it is stopped (SIGSTOP, a debugger), as far as that can be seen."""


UNKNOWN_ENGINE: Final = EngineFacts()
Engines = Callable[[str | None], EngineFacts]


def at_its_time(engine: EngineFacts, half: Half | None) -> EngineFacts:
    """The engine that had this half: one that was restarted since, under its old id, is gone for it."""
    if half is None or not half.events or not engine.alive or half.first_t >= engine.started_ns:
        return engine
    return msgspec.structs.replace(engine, alive=False, last_t=half.last_t, restarted=True)


def transfer_of(pair: Pair, engines: Engines, agents: Agents) -> Transfer | None:
    """The transfer of these two halves; None while it is no more than a prompt that is being computed."""
    p_half, d_half = pair.p, pair.d
    p = p_half.by_kind() if p_half else NO_FACTS
    d = d_half.by_kind() if d_half else NO_FACTS
    if not _is_transfer(p, d):
        return None
    # D names its P even where P is not observed.
    p_engine = p_half.engine if p_half else wanted_by(d_half)[0] if d_half else None
    d_engine = d_half.engine if d_half else None
    p_state, d_state = at_its_time(engines(p_engine), p_half), at_its_time(engines(d_engine), d_half)
    sides = (*(("P",) if p_state.observed else ()), *(("D",) if d_state.observed else ()))
    stages = stages_of(p, d, agents)
    outcome, ended_t, error = _outcome(p, d, p_state, d_state, d_was_over=pair.d_was_over)
    if gone := _gone(outcome, ended_t, p, d, p_state, d_state):
        error = f"{gone}; {error}" if error else gone
        outcome, ended_t = Outcome.LOST, ended_t or _last_t(p_half, d_half)
    stage, since = (None, ended_t) if ended_t else present_stage(stages) or (None, _last_t(p_half, d_half))
    staged, scheduled = p.first(ev.BlocksStaged), d.first(ev.DecodeScheduled)
    arrived = d.first(ev.RequestArrived)
    registered, wanted = d.first(ev.RegistrationStaged), d.first(ev.ReadStaged)
    pull = is_pull(d) or "pull" in (p_state.mode, d_state.mode)
    matched = p.first(ev.Matched)
    asked = registered or wanted
    seen = [half for half in (p_half, d_half) if half and half.events]
    moved = _NOTHING if outcome in NOTHING_MOVED else _moved(p, d, p_state, d_state, pull=pull)
    return Transfer(
        base_id=seen[0].base,
        attempt=pair.attempt,
        p_attempt=pair.p_attempt if p_half else None,
        pairing=pair.note,
        mode="pull" if pull else "push",
        d_engine=d_engine,
        d_request=d_half.request_id if d_half else None,
        p_engine=p_engine,
        p_request=p_half.request_id if p_half else None,
        tentative=pair.tentative,
        sides=sides,
        outcome=outcome,
        stage=stage,
        opened_ns=min(half.first_t for half in seen),
        since_ns=since,
        closed_ns=ended_t or None,
        waits="" if ended_t else who_waits(p, d, pull=pull, taken_by=pair.taken_by),
        late_decode=arrived.t > staged.t if arrived and staged else None,
        d_waits=_d_asks(d, d_state) and not d.has(ev.RequestEnded),
        recomputed=_recomputed(d),
        d_holds=_d_asks(d, d_state) and d.has(ev.RequestEnded),
        order="" if matched is None else "blocks first" if matched.blocks_first else "registration first",
        error=error,
        ranks_done=moved.ranks_done,
        ranks=moved.ranks,
        num_tokens=asked.num_tokens if asked else staged.num_tokens if staged else None,
        num_blocks=moved.num_blocks,
        num_bytes=moved.num_bytes,
        descriptors=moved.descriptors,
        descriptors_merged=moved.descriptors_merged,
        stages=tuple(sorted(stages, key=lambda s: (_ORDER.index(s.stage), s.rank or (), s.peer_rank or ()))),
        path=critical_path(p, d, stages),
        exposed_ns=scheduled.t - staged.t if scheduled and staged else None,
        hidden_ns=max(0, staged.t - registered.t) if registered and staged else None,
        lease_until_ns=None if ended_t else _lease_until(p),
    )


class _Moved(NamedTuple):
    """How much is to move, and how much of it did."""

    ranks_done: int
    ranks: int
    num_blocks: int | None
    num_bytes: int | None
    descriptors: int | None
    descriptors_merged: int | None


_NOTHING: Final = _Moved(0, 0, 0, 0, 0, 0)


def _moved(p: Facts, d: Facts, p_state: EngineFacts, d_state: EngineFacts, *, pull: bool) -> _Moved:
    poster = d if pull else p
    done = [e for _, e in poster.all(ev.TransferDone)]
    return _Moved(
        *(_reads if pull else _ranks)(p, d, p_state, d_state),
        num_blocks=_num_blocks(p, d),
        num_bytes=_known_sum([e.num_bytes for e in done]),
        descriptors=_known_sum([e.num_descriptors for _, e in poster.all(ev.DescriptorsBuilt)]),
        descriptors_merged=_known_sum([e.num_descriptors for e in done]),
    )


def _lease_until(p: Facts) -> int | None:
    """The first end of a lease among P's ranks; as the scheduler set it, where no worker has it yet."""
    leases: list[tuple[Rank, ev.LeaseSet | ev.LeaseExtended]]
    leases = [*p.all(ev.LeaseSet), *p.all(ev.LeaseExtended)]
    until: dict[Rank, int] = {}
    for rank, e in leases:
        until[rank] = max(until.get(rank, 0), e.t + int(e.lease_s * 1e9))
    if until:
        return min(until.values())
    staged = p.first(ev.BlocksStaged)
    return staged.t + int(staged.lease_s * 1e9) if staged else None


def _d_asks(d: Facts, d_state: EngineFacts) -> bool:
    """Whether blocks that D has asked for are still to come, as far as D is seen and there."""
    asked = d.has(ev.RegistrationStaged, ev.RegistrationHandedOff, ev.RegistrationSent, ev.ReadStaged)
    has = d.has(ev.ReceiveFinished, ev.ReceiveFailed, ev.ReceiveDone, ev.DecodeScheduled)
    return d_state.observed and d_state.alive and asked and not has


def _recomputed(d: Facts) -> bool:
    ended = d.first(ev.RequestEnded)
    return d.has(ev.ReceiveFailed) and ended is not None and ended.status in _GOOD_ENDS


def _is_transfer(p: Facts, d: Facts) -> bool:
    return p.has(
        ev.BlocksStaged,
        ev.BlocksHandedOff,
        ev.BlocksPickedUp,
        ev.Matched,
        ev.SubmitStarted,
        ev.TransferFailed,
    ) or d.has(
        ev.RegistrationStaged,
        ev.RegistrationHandedOff,
        ev.RegistrationSent,
        ev.RegistrationDrained,
        ev.NotificationDrained,
        ev.NothingToReceive,
        ev.ReadStaged,
        ev.ReadHandedOff,
        ev.SubmitStarted,
    )


def _outcome(
    p: Facts, d: Facts, p_state: EngineFacts, d_state: EngineFacts, *, d_was_over: bool
) -> tuple[Outcome, int, str]:
    """Outcome, when it ended (0 if open), and the error in words."""
    ended = _arrived(p, d) or _failed(p, d) or _given_up(p, d, d_state, d_was_over=d_was_over)
    if ended:
        return ended
    met = d.has(ev.SubmitStarted) or (
        p.has(ev.Matched) if p_state.observed else d.has(ev.NotificationDrained)
    )
    return Outcome.MOVING if met else Outcome.WAITING, 0, _error(p, d)


def _arrived(p: Facts, d: Facts) -> tuple[Outcome, int, str] | None:
    """D said how it went."""
    if failed := d.last(ev.ReceiveFailed):
        return Outcome.FAILED, failed.t, _error(p, d) or "D's worker reported the receive as failed"
    if scheduled := d.first(ev.DecodeScheduled):
        return Outcome.DELIVERED, scheduled.t, ""
    nothing = d.first(ev.NothingToReceive)
    if nothing and nothing.reason != "not_scheduled" and not d.has(ev.RegistrationStaged, ev.ReadStaged):
        return Outcome.NOTHING_TO_RECEIVE, nothing.t, ""
    if (ended := d.first(ev.RequestEnded)) and ended.status in _GOOD_ENDS:
        return Outcome.DELIVERED, ended.t, ""
    return None


def _failed(p: Facts, d: Facts) -> tuple[Outcome, int, str] | None:
    """Something went wrong, whatever came of it: that D's client gave up later is only its consequence."""
    if failed := p.last(ev.TransferFailed) or d.last(ev.TransferFailed):
        return Outcome.FAILED, failed.t, _error(p, d)
    if nothing := p.first(ev.NothingToPush):
        return Outcome.NOTHING_TO_PUSH, nothing.t, "P had no blocks to write; D is not told"
    return None


def _given_up(
    p: Facts, d: Facts, d_state: EngineFacts, *, d_was_over: bool
) -> tuple[Outcome, int, str] | None:
    """A side stopped waiting."""
    ended = d.first(ev.RequestEnded)
    d_waits_on = d_state.observed and d.has(*_D_WANTS) and not d_was_over
    expired = p.first(ev.LeaseExpired)
    if expired and (not d_waits_on or (ended and expired.t < ended.t)):
        return Outcome.EXPIRED, expired.t, "P's lease ran out before the blocks were taken"
    if ended:
        error = _error(p, d)
        why = f"D ended the request: {ended.status}"
        return Outcome.ABORTED, ended.t, f"{why}, after {error}" if error else why
    if d_waits_on:
        return None  # whatever became of P's side
    if dropped := p.first(ev.PrefillNotProcessed):
        if dropped.status in _GOOD_ENDS:
            return Outcome.NOTHING_TO_PUSH, dropped.t, ""
        return Outcome.ABORTED, dropped.t, f"P ended the prefill leg: {dropped.status}"
    if sent := p.first(ev.SendFinished):
        if d_was_over:
            return Outcome.ABORTED, sent.t, "D did not wait for these blocks"
        return Outcome.DELIVERED, sent.t, ""
    return None


def _error(p: Facts, d: Facts) -> str:
    for event in (p.last(ev.TransferFailed), d.last(ev.TransferFailed), d.last(ev.RegistrationFailed)):
        if event is not None:
            return f"{event.error_type}: {event.error}" if event.error else event.error_type
    return ""


def _gone(
    outcome: Outcome, ended_t: int, p: Facts, d: Facts, p_state: EngineFacts, d_state: EngineFacts
) -> str:
    """Which engines took the transfer with them; empty if none did.

    A D request that was ended when P was silent for good, and had not finished its part, was ended for that. What
    failed at P when D was silent for good, and had not finished its part, failed for that.
    """
    p_was_at_it = p.has(ev.RequestArrived, ev.BlocksStaged) and not p.has(
        ev.SendFinished, ev.PrefillNotProcessed, ev.LeaseExpired
    )
    p_took_it = outcome is Outcome.ABORTED and p_was_at_it and not p_state.alive and ended_t >= p_state.last_t
    d_was_at_it = not d.has(ev.ReceiveFailed, ev.ReceiveFinished, ev.RequestEnded)
    d_silent_ns = d_state.started_ns if d_state.restarted else d_state.last_t
    d_took_it = outcome is Outcome.FAILED and d_was_at_it and not d_state.alive and ended_t >= d_silent_ns
    if outcome not in OPEN_OUTCOMES and not p_took_it and not d_took_it:
        return ""
    sides = {"P": p_state, "D": d_state}
    lost = {side: state for side, state in sides.items() if state.observed and not state.alive}
    gone = [side for side, state in lost.items() if not state.restarted]
    restarted = [side for side, state in lost.items() if state.restarted]
    causes = "; ".join(f"{side}'s {state.died_of}" for side, state in lost.items() if state.died_of)
    words = [f"{' and '.join(gone)} {'is' if len(gone) == 1 else 'are'} gone"] if gone else []
    words += (
        [f"{' and '.join(restarted)} {'was' if len(restarted) == 1 else 'were'} restarted"]
        if restarted
        else []
    )
    told = ", ".join(words)
    return f"{told}: {causes}" if causes else told


def _last_t(*halves: Half | None) -> int:
    return max(half.last_t for half in halves if half)


def _ranks(p: Facts, d: Facts, p_state: EngineFacts, d_state: EngineFacts) -> tuple[int, int]:
    """Notifications counted and expected over all D ranks; with P alone, writes done and begun."""
    if not d_state.observed:
        return len(p.all(ev.TransferDone)), max(
            len(p.all(ev.DescriptorsStarted)), int(p.has(ev.BlocksStaged))
        )
    counted = d.all(ev.NotificationCounted)
    registered = d.first(ev.RegistrationStaged)
    if counted:
        p_tp, p_pp = counted[0][1].peer_tp_size, counted[0][1].peer_pp_size
    elif registered:
        p_tp, p_pp = registered.peer_tp, registered.peer_pp
    else:
        p_tp, p_pp = p_state.tp_size, p_state.pp_size
    per_rank = p_pp * max(1, p_tp // d_state.tp_size)
    return len(counted), per_rank * d_state.tp_size


def _reads(p: Facts, d: Facts, p_state: EngineFacts, d_state: EngineFacts) -> tuple[int, int]:
    """Pull: READs seen done and expected over all D ranks; with P alone, notifications counted and expected."""
    if not d_state.observed:
        counted = p.all(ev.NotificationCounted)
        return len(counted), counted[0][1].peer_tp_size * p_state.tp_size if counted else 1
    wanted = d.first(ev.ReadStaged)
    p_tp = wanted.peer_tp if wanted else p_state.tp_size
    expected = max(1, p_tp // d_state.tp_size) * d_state.tp_size
    return len(d.all(ev.TransferDone)), max(expected, len(d.all(ev.DescriptorsStarted)))


def _num_blocks(p: Facts, d: Facts) -> int | None:
    asked = d.first(ev.RegistrationStaged) or d.first(ev.ReadStaged)
    for event in (asked, d.first(ev.RegistrationDrained), p.first(ev.BlocksStaged)):
        if event is not None:
            return event.num_blocks
    return None


def _known_sum(values: Sequence[int]) -> int | None:
    """The sum, None if nothing was seen or a part of it is not known (-1)."""
    return sum(values) if values and min(values) >= 0 else None
