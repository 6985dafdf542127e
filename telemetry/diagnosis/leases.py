"""Causes in P's lease on its blocks: what outlives it, and what it outlives."""

from __future__ import annotations

from typing import Final

from pushscope.telemetry import events as ev
from pushscope.telemetry.diagnosis.case import Case, Rule, Severity, silence, span
from pushscope.telemetry.diagnosis.meeting import STAGED
from pushscope.telemetry.diagnosis.model import Diagnosis, Evidence
from pushscope.telemetry.transfer import Rank, Stage, rank_name

_LOST_S: Final = 5.0
"""A lease that begins so much shorter than it was meant has lost it on the way."""
_REAPED_WITHIN_NS: Final = 5_000_000_000
"""vLLM looks at its leases at every step."""


# -- it is over when D comes ----------------------------------------------------------------------------


def lease_over_first(case: Case) -> Diagnosis | None:
    """P let the blocks go before D registered: it will wait for them for ever."""
    if case.pull or case.delivered or not (case.d_waits or case.d_queued) or case.p.has(ev.Matched):
        return None
    staged, ended_ns = case.p.first(ev.BlocksStaged), _lease_end(case)
    asked, arrived = case.d.first(ev.RegistrationStaged), case.d.first(ev.RequestArrived)
    if staged is None or case.d.has(ev.NothingToReceive):
        return None
    came_ns = asked.t if asked else case.now_ns
    evidence = [case.p_saw(staged, f"blocks staged, lease {staged.lease_s:g} s")]
    evidence += [case.d_saw(arrived, "request arrived")] if arrived else []
    evidence += [case.d_saw(asked, STAGED)] if asked else []
    beats = _heartbeats(case)
    if ended_ns is not None and ended_ns < came_ns:
        if expired := case.p.first(ev.LeaseExpired):
            evidence.append(case.p_saw(expired, "lease ended, blocks released"))
        was_queued = arrived is None or arrived.t < ended_ns
        when = f"D registered {span(came_ns - ended_ns)} later" if asked else "D still has the request queued"
        words = f"P's lease on the blocks ended {span(ended_ns - staged.t)} after the prefill, {when}"
        hangs = "and waits for ever" if asked else "and will wait for ever once it registers"
        if was_queued and beats:
            sentence = f"{words} {hangs}: its heartbeats could not renew the lease, {beats}."
            return case.found("heartbeat_id_mismatch", sentence, ended_ns, *evidence)
        sentence = f"{words} {hangs}: P has nothing left to push."
        return case.found("lease_over_before_decode", sentence, ended_ns, *evidence)
    if asked or not beats or case.age_ns(staged.t) < case.thresholds.lease_share * staged.lease_s * 1e9:
        return None
    until_ns = case.transfer.lease_until_ns
    left = f", which ends in {span(until_ns - case.now_ns)}" if until_ns and until_ns > case.now_ns else ""
    sentence = (
        f"D has had the request queued for {case.since(arrived.t if arrived else staged.t)} and does not renew P's "
        f"lease{left}: {beats}."
    )
    return case.found("heartbeat_id_mismatch", sentence, staged.t, *evidence, severity=Severity.WARNING)


def over_before_d_came(case: Case) -> Diagnosis | None:
    """The same of a prefill that D could not name: P had one of this id, and has none any more."""
    asked = case.d.first(ev.RegistrationStaged)
    if not case.released_ns or asked is None or not case.lacks_prefill or case.p.has(ev.RequestArrived):
        return None
    if not case.is_late(asked.t):
        return None  # a prefill of its own may come yet
    sentence = (
        f"P's lease on its prefill of this id ended {span(asked.t - case.released_ns)} before D registered, and nobody "
        f"had claimed the blocks: P has nothing left to push, and D has waited {case.since(asked.t)}."
    )
    released = Evidence(case.released_ns, case.transfer.p_engine or "P", "lease ended, blocks released")
    return case.found(
        "lease_over_before_decode",
        sentence,
        case.released_ns,
        released,
        case.d_saw(asked, STAGED),
        severity=case.grown(asked.t),
    )


def _heartbeats(case: Case) -> str:
    """Why heartbeats don't reach the lease, in words; empty if they name P's id, or it isn't known what they name."""
    arrived = case.d.first(ev.RequestArrived)
    name, known = arrived.peer_request_id if arrived else "", case.transfer.p_request
    if not name or not known or name == known:
        return ""
    return f"since they name '{name}', as the router told D, and P knows the request as '{known}'"


def _lease_end(case: Case) -> int | None:
    """When P's lease ended; None while it lasts."""
    if expired := case.p.first(ev.LeaseExpired):
        return expired.t
    until_ns = case.transfer.lease_until_ns
    return until_ns if until_ns and until_ns < case.now_ns and not case.p.has(ev.SendFinished) else None


# -- wrong data -----------------------------------------------------------------------------------------


def ended_during_write(case: Case) -> Diagnosis | None:
    """The blocks were P's own again while a WRITE read them, or before it began."""
    if case.pull:
        return None
    ended = dict(case.p.all(ev.LeaseExpired))
    harmed: list[tuple[Rank, ev.SubmitStarted, ev.LeaseExpired]] = []
    for rank, begun in case.p.all(ev.SubmitStarted):
        expired = ended.get(rank)
        if expired is not None and expired.t < _write_end(case, rank, begun):
            harmed.append((rank, begun, expired))
    if not harmed:
        return None
    rank, begun, expired = min(harmed, key=lambda h: (h[1].t, h[0]))
    end_ns = _write_end(case, rank, begun)
    after = begun.t > expired.t
    if after:
        words = (
            f"posted a WRITE {span(begun.t - expired.t)} after its lease had ended and the blocks were free"
        )
    elif end_ns == _NEVER:
        words = f"let the blocks go {span(expired.t - begun.t)} into a WRITE that is still under way"
    else:
        words = f"let the blocks go {span(end_ns - expired.t)} before the WRITE from them was done"
    sentence = f"P's {rank_name(rank)} {words}: D's blocks may hold the KV of another prompt" + (
        ", and D has decoded on them." if case.d.has(ev.DecodeScheduled) else f"{silence(case)}."
    )
    return case.found(
        "write_after_lease" if after else "lease_ended_during_write",
        sentence,
        max(begun.t, expired.t),
        case.p_saw(begun, "WRITE posted", rank),
        case.p_saw(expired, "lease ended, blocks released", rank),
        certain=True,
    )


_NEVER: Final = 2**63


def _write_end(case: Case, rank: Rank, begun: ev.SubmitStarted) -> int:
    """When a WRITE was over: when D had its notification, which comes before P's poll sees it done."""
    ends = [e.t for r, e in case.p.all(ev.TransferDone) if r == rank and e.number == begun.number]
    ends += [e.t for r, e in case.p.all(ev.TransferFailed) if r == rank and e.number == begun.number]
    ends += [
        s.end_ns
        for s in case.transfer.stages
        if s.rank == rank and s.start_ns == begun.t and s.end_ns is not None and s.stage is Stage.WIRE
    ]
    return min(ends, default=_NEVER)


def read_after_lease(case: Case) -> Diagnosis | None:
    """Pull: D read blocks that P had let go."""
    expired = case.p.first(ev.LeaseExpired)
    if not case.pull or expired is None:
        return None
    read = [(rank, e) for rank, e in case.d.all(ev.TransferDone) if e.t > expired.t]
    told = [
        (rank, e)
        for kind in (ev.NotificationUnrecognised, ev.NotificationDrained)
        for rank, e in case.p.all(kind)
        if e.t > expired.t
    ]
    if read:
        rank, last = max(read, key=lambda found: (found[1].t, found[0]))
        evidence = case.d_saw(last, "READ done", rank)
        words = f"D's {rank_name(rank)} was still reading {span(last.t - expired.t)} after that"
    elif told and not case.d_engine.observed:
        rank, first = min(told, key=lambda found: (found[1].t, found[0]))
        evidence = case.p_saw(first, "D told that it has read", rank)
        words = f"D told P {span(first.t - expired.t)} later that it has read them"
    else:
        return None
    sentence = f"P's lease ended and it let the blocks go; {words}: D may have the KV of another prompt."
    return case.found(
        "read_after_lease",
        sentence,
        expired.t,
        case.p_saw(expired, "lease ended, blocks released"),
        evidence,
        certain=bool(read),
    )


def notified_unknown(case: Case) -> Diagnosis | None:
    """P's completion reached a D rank that had done with the request."""
    if case.pull:
        return None
    over = dict(case.d.all(ev.ReceiveDone))
    ended = case.d.first(ev.RequestEnded)
    for rank, e in sorted(case.d.all(ev.NotificationUnrecognised), key=lambda found: (found[1].t, found[0])):
        before = over.get(rank) or ended
        if before is None or before.t > e.t:
            continue
        sentence = (
            f"A WRITE of P landed on D's {rank_name(rank)} {span(e.t - before.t)} after D had done with the request: "
            "its blocks may belong to another one by now."
        )
        return case.found(
            "write_to_untracked_request",
            sentence,
            e.t,
            case.d_saw(before, "done with it"),
            case.d_saw(e, "notification not recognised", rank),
        )
    return None


def lost_on_arrival(case: Case) -> Diagnosis | None:
    """A P rank's lease began far shorter than the scheduler set it."""
    staged = case.p.first(ev.BlocksStaged)
    if staged is None:
        return None
    for rank, held in sorted(case.p.all(ev.LeaseSet), key=lambda found: found[0]):
        lost_s = staged.lease_s - held.lease_s - (held.t - staged.t) / 1e9
        if lost_s > max(_LOST_S, staged.lease_s / 4):
            sentence = (
                f"P's {rank_name(rank)} holds the blocks for {held.lease_s:.0f} s, where the scheduler set "
                f"{staged.lease_s:.0f} s: it frees them before D can have them."
            )
            return case.found(
                "lease_lost_on_arrival",
                sentence,
                held.t,
                case.p_saw(staged, f"blocks staged, lease {staged.lease_s:g} s"),
                case.p_saw(held, f"lease of {held.lease_s:.1f} s", rank),
            )
    return None


# -- memory ---------------------------------------------------------------------------------------------


def kept_by_heartbeats(case: Case) -> Diagnosis | None:
    """The push has failed, D doesn't know, and its heartbeats renew the lease again and again."""
    failed = case.p.first(ev.TransferFailed)
    extended = case.p.last(ev.LeaseExtended)
    if failed is None or extended is None or extended.t < failed.t or not case.p_holds or case.delivered:
        return None
    sentence = (
        f"D's heartbeats keep P's blocks of a push that failed {case.since(failed.t)} ago: they renewed the lease "
        f"{case.since(extended.t)} ago."
    )
    return case.found(
        "heartbeats_keep_failed_push",
        sentence,
        failed.t,
        case.p_saw(failed, f"push failed: {failed.error_type}"),
        case.p_saw(extended, "lease extended"),
    )


def not_reaped(case: Case) -> Diagnosis | None:
    """The lease is over, P makes steps, and still holds the blocks."""
    until_ns = case.transfer.lease_until_ns
    if until_ns is None or not case.p_holds or case.p_engine.heard_ns < until_ns + _REAPED_WITHIN_NS:
        return None
    staged = case.p.first(ev.BlocksStaged)
    sentence = f"P's lease ended {case.since(until_ns)} ago; P makes steps and has not let the blocks go."
    return case.found(
        "expired_lease_not_reaped",
        sentence,
        until_ns,
        case.p_saw(staged, f"blocks staged, lease {staged.lease_s:g} s") if staged else None,
    )


def held_though_done(case: Case) -> Diagnosis | None:
    """Every WRITE was done long before the lease ended, and P held the blocks until then."""
    expired = case.p.first(ev.LeaseExpired)
    begun = case.p.all(ev.SubmitStarted)
    done = {(rank, e.number): e for rank, e in case.p.all(ev.TransferDone)}
    ranks = {rank for rank, _ in case.p.all(ev.BlocksPickedUp)}
    if expired is None or not begun or case.p.has(ev.TransferFailed) or case.pull:
        return None
    if any((rank, e.number) not in done for rank, e in begun) or {rank for rank, _ in begun} < ranks:
        return None
    last = max(done.values(), key=lambda e: (e.t, e.number))
    if last.t > expired.t:
        return None
    sentence = (
        f"Every WRITE was done, the last {span(expired.t - last.t)} before P's lease ended, and P held the blocks "
        "until then and counted them as expired."
    )
    return case.found(
        "finished_write_held_until_lease",
        sentence,
        last.t,
        case.p_saw(last, "last WRITE done"),
        case.p_saw(expired, "lease ended"),
    )


CAUSES: Final[tuple[Rule, ...]] = (lease_over_first, over_before_d_came)
BESIDES: Final[tuple[Rule, ...]] = (
    ended_during_write,
    read_after_lease,
    notified_unknown,
    lost_on_arrival,
    kept_by_heartbeats,
    not_reaped,
    held_though_done,
)
