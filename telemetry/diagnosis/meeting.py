"""Causes in the rendezvous: registration and finished blocks that don't come, or meet the wrong one."""

from __future__ import annotations

import re
from typing import Final

from pushscope.telemetry import events as ev
from pushscope.telemetry.diagnosis.case import Case, Rule, Severity, silence, span
from pushscope.telemetry.diagnosis.model import Diagnosis, Evidence
from pushscope.telemetry.pairing import DIFFERING
from pushscope.telemetry.transfer import Outcome, Rank, Transfer, rank_name

_CHOICE: Final = re.compile(r"^(\d+)_")
"""vLLM names the choices of a request with n > 1 ``0_<id>``, ``1_<id>`` ..."""
_STEP_NS: Final = 2_000_000_000
"""What P says so long after a registration was sent, it says after a step that drained it."""
_NAMED: Final = 3
_GOOD_ENDS: Final = frozenset({"finished_stopped", "finished_length_capped"})


# -- D waits, P's blocks don't come ---------------------------------------------------------------------


def without_prefill(case: Case) -> Diagnosis | None:
    """D registered; P has no such request, or gave it up."""
    if not case.lacks_prefill or case.strangers or case.released_ns:
        return None
    asked = _asked(case)
    dropped = case.p.first(ev.PrefillNotProcessed)
    drained = case.d.first(ev.RegistrationDrained)
    if dropped is not None:
        if dropped.status in _GOOD_ENDS or not case.is_late(max(dropped.t, asked.t)):
            return None
        sentence = (
            f"D has waited {case.since(asked.t)} for a prefill that P ended without blocks ({dropped.status}); push "
            "has no message that would tell D."
        )
        gave_up = case.p_saw(dropped, f"prefill ended: {dropped.status}")
        return case.found(
            "registration_without_prefill", sentence, dropped.t, case.d_saw(asked, STAGED), gave_up
        )
    if case.p.has(ev.RequestArrived):
        return None  # P is at it
    since_ns = drained.t if drained else _sent_ns(case)
    if since_ns is None or not case.is_late(since_ns) or (drained is None and _p_stepped(case, since_ns)):
        return None
    if drained:
        seen = f"P has had the registration for {case.since(drained.t)}"
        heard = case.p_saw(drained, "registration drained", _rank_of(case, drained))
    else:
        seen = f"P has had nothing to do since D registered {case.since(since_ns)} ago"
        heard = None
    sentence = (
        f"{seen}, and no prefill of this request has come to it: the prefill leg failed or was never sent, and D waits "
        f"on{silence(case) if drained else ''}."
    )
    return case.found(
        "registration_without_prefill",
        sentence,
        since_ns,
        case.d_saw(asked, STAGED),
        heard,
        severity=case.grown(since_ns),
        certain=case.certain and drained is not None,
    )


def ids_differ(case: Case) -> Diagnosis | None:
    """Registration and blocks are both at P, of as many tokens, under two ids.

    It is D that hangs; what P holds is told as a warning, and where it is not clear whose it is, as unclaimed.
    """
    if not case.strangers or case.released_ns:
        return None
    t, other = case.transfer, case.strangers[0]
    d_side = case.lacks_prefill
    mine, theirs = (t, other) if d_side else (other, t)
    since_ns = max(t.opened_ns, other.opened_ns)
    if not case.is_late(since_ns) or not (d_side or case.p.has(ev.BlocksStaged)):
        return None
    state = "waits for" if other.is_open and t.is_open else "waited for"
    clear = len(case.strangers) == 1 and not case.rivals
    sentence = (
        f"The two legs have different ids: D {state} '{mine.d_request or mine.base_id}', P for D's registration of "
        f"'{theirs.p_request or theirs.base_id}', both of {t.num_tokens} tokens and for {case.since(since_ns)}."
        if clear
        else _unclear(case, since_ns)
    )
    first = (
        case.d_saw(_asked(case), STAGED) if d_side else case.p_saw(_staged(case), "blocks staged, unclaimed")
    )
    whose = (other.p_engine if d_side else other.d_engine) or "?"
    second = Evidence(
        other.opened_ns, whose, f"{'' if clear else 'perhaps '}the other leg: '{other.base_id}'"
    )
    return case.found(
        "request_ids_differ",
        sentence,
        since_ns,
        first,
        second,
        severity=case.grown(since_ns) if d_side else Severity.WARNING,
        certain=case.certain and clear,
    )


def _unclear(case: Case, since_ns: int) -> str:
    """D waits, and P has prefills of as many tokens: which, if any, is meant for it, their lengths don't tell."""
    count, t = len(case.strangers), case.transfer
    named = ", ".join(f"'{s.p_request or s.base_id}'" for s in case.strangers[:_NAMED])
    more = f" and {count - _NAMED} more" if count > _NAMED else ""
    prefills = f"{count} unclaimed prefills" if count > 1 else "an unclaimed prefill"
    others = f"{case.rivals} other request{'s' if case.rivals > 1 else ''} of D"
    rivals = f", for which {others} could wait as well" if case.rivals else ""
    return (
        f"D has waited {case.since(since_ns)} for '{t.d_request or t.base_id}', of which P has no prefill, but "
        f"{prefills} of as many tokens ({t.num_tokens}) under other ids: {named}{more}{rivals}. The two legs may have "
        "different ids, or the prefill leg was lost."
    )


def again_after_preemption(case: Case) -> Diagnosis | None:
    """D had the whole prompt, was preempted, and registers now with a P that has let the blocks go."""
    had, asked = case.d.first(ev.NothingToReceive), case.d.first(ev.RegistrationStaged)
    if had is None or asked is None or asked.t < had.t or not case.d_waits or case.p_holds:
        return None
    if case.p.has(ev.Matched) or not (case.p.has(*_P_GAVE_UP) or case.is_late(asked.t)):
        return None
    preempted = case.d.last(ev.RequestPreempted)
    released = case.p.first(ev.LeaseExpired) or case.p.first(ev.SendFinished)
    when = f" P released the blocks {case.since(released.t)} ago." if released else " P has no blocks for it."
    sentence = (
        f"D had needed nothing from P, was preempted, and has registered for the prompt {case.since(asked.t)} ago: it "
        f"waits for ever.{when}"
    )
    return case.found(
        "registered_again_after_preemption",
        sentence,
        asked.t,
        case.d_saw(had, "nothing to receive"),
        case.d_saw(preempted, "preempted") if preempted else None,
        case.d_saw(asked, STAGED),
        case.p_saw(released, "blocks released") if released else None,
    )


# -- the registration doesn't come to P -----------------------------------------------------------------


def registration_lost(case: Case) -> Diagnosis | None:
    """It could not be sent to some P ranks or all; or it was sent, and P has stepped since and not drained it."""
    if case.pull or not case.d_waits:
        return None
    asked = case.d.first(ev.RegistrationStaged)
    sent: dict[Rank, int] = {}
    for _, e in case.d.all(ev.RegistrationSent):
        sent[(e.peer_pp, e.peer_tp)] = min(e.t, sent.get((e.peer_pp, e.peer_tp), e.t))
    drained = {rank for rank, _ in case.d.all(ev.RegistrationDrained)}
    failed = {(e.peer_pp, e.peer_tp): (rank, e) for rank, e in case.d.all(ev.RegistrationFailed) if e.to_rank}
    if not sent and not drained and (raised := case.d.first(ev.WriterException)):
        sentence = (
            f"D's push writer failed on the registration ({raised.error}) and went on without it: P has never heard of "
            f"it, and D has waited {case.since(asked.t if asked else raised.t)}."
        )
        return case.found(
            "registration_lost", sentence, raised.t, case.d_saw(raised, f"{raised.where} raised")
        )
    unsent = {rank: f for rank, f in failed.items() if rank not in sent and rank not in drained}
    if unsent:
        since_ns = min(e.t for _, e in unsent.values())
        if not case.is_late(since_ns):
            return None
        error = next(iter(sorted(f"{e.error_type}: {e.error}" for _, e in unsent.values())))
        code = "registration_lost_to_rank" if sent or drained else "registration_lost"
        ranks = ", ".join(rank_name(rank) for rank in sorted(unsent))
        sentence = (
            f"D's registration could not be sent to P's {ranks} ({error}): nothing will be written from there, and D "
            f"has waited {case.since(asked.t if asked else since_ns)}."
        )
        evidence = [
            case.d_saw(e, f"could not be sent to P's {rank_name(to)}", rank)
            for to, (rank, e) in unsent.items()
        ]
        return case.found(code, sentence, since_ns, *evidence)
    undrained = {rank: t for rank, t in sent.items() if rank not in drained}
    if not undrained or not case.p_engine.observed:
        return None
    since_ns = min(undrained.values())
    if not case.is_late(since_ns) or not _p_stepped(case, since_ns):
        return None
    ranks = ", ".join(rank_name(rank) for rank in sorted(undrained))
    restarted = case.p_engine.started_ns > since_ns
    why = (
        "P was restarted since, and what was sent to its old self is lost"
        if restarted
        else "P has made steps since and has not seen it: it is lost, or P's push writer hangs"
    )
    sentence = f"D sent its registration to P's {ranks} {case.since(since_ns)} ago; it has not come out there: {why}."
    evidence = [
        case.d_saw(e, f"registration sent to P's {rank_name((e.peer_pp, e.peer_tp))}", rank)
        for rank, e in case.d.all(ev.RegistrationSent)
        if (e.peer_pp, e.peer_tp) in undrained
    ]
    return case.found(
        "registration_lost_to_rank" if drained else "registration_lost",
        sentence,
        since_ns,
        *evidence,
        severity=case.grown(since_ns),
        certain=case.certain and restarted,
    )


# -- the wrong ones meet --------------------------------------------------------------------------------


def taken_by_older(case: Case) -> Diagnosis | None:
    """The blocks of this attempt went to an older registration of the same base id."""
    if not case.taken_by or not case.d_waits:
        return None
    asked, older = _asked(case), _attempt(case, case.taken_by)
    registered = f", registered {span(asked.t - older.opened_ns)} before" if older else ""
    sentence = (
        f"P pushed the blocks of attempt {case.transfer.attempt} to attempt {case.taken_by} of its id{registered}: "
        f"this one has waited {case.since(asked.t)} and gets none."
    )
    other = Evidence(older.opened_ns, older.d_engine or "D", f"attempt {older.attempt}") if older else None
    return case.found("retry_met_older_registration", sentence, asked.t, case.d_saw(asked, STAGED), other)


def paired_differently(case: Case) -> Diagnosis | None:
    """P's ranks gave one prefill to different D requests: each gets a part."""
    if DIFFERING not in case.transfer.pairing or not case.d_waits:
        return None
    matched = case.p.all(ev.Matched)
    since_ns = min((e.t for _, e in matched), default=case.transfer.since_ns)
    how = case.transfer.pairing.partition(DIFFERING)[2].lstrip(": ")
    sentence = (
        f"P's ranks pushed one prefill to different requests of this id (rank, P's attempt→D's: {how}): D has "
        f"{case.transfer.ranks_done} of {case.transfer.ranks} parts and waits for the rest."
    )
    evidence = [case.p_saw(e, f"matched with '{e.peer_request_id}'", rank) for rank, e in matched]
    return case.found("ranks_paired_differently", sentence, since_ns, *evidence)


def share_an_id(case: Case) -> Diagnosis | None:
    """Two requests of one base id at once: P pairs them by age, whatever their prompts."""
    t = case.transfer
    if t.d_request is None or not (t.is_open or t.pairing):
        return None
    at_once = [o for o in case.others if o.d_request and o.p_request and o.is_open and o.attempt != t.attempt]
    if not at_once or t.p_request is None:
        return None
    swapped = t.attempt != t.p_attempt
    other = at_once[0]
    sentence = (
        f"Requests '{t.d_request}' and '{other.d_request}' are under way at once and are one to P's matcher"
        + (f": {t.pairing}." if swapped else "; so far they were paired in order.")
    )
    since_ns = max(t.opened_ns, other.opened_ns)
    severity = Severity.ERROR if swapped else Severity.WARNING
    second = Evidence(other.opened_ns, other.d_engine or "D", f"attempt {other.attempt} began")
    return case.found("concurrent_requests_share_id", sentence, since_ns, second, severity=severity)


# -- P waits, nobody claims -----------------------------------------------------------------------------


def unclaimed(case: Case) -> Diagnosis | None:
    """P holds, or held for a whole lease, blocks that no decode has asked for."""
    staged = case.p.first(ev.BlocksStaged)
    if staged is None or case.strangers or case.p.has(ev.Matched):
        return None
    never_asked = case.transfer.outcome is Outcome.ABORTED and not case.d_asked
    if case.transfer.d_request is not None and not never_asked:
        return None
    expired = case.p.first(ev.LeaseExpired)
    if not expired and (
        not case.p_holds or case.age_ns(staged.t) < case.thresholds.lease_share * staged.lease_s * 1e9
    ):
        return None
    held = (
        f"held {staged.num_blocks} blocks ({staged.num_tokens} tokens) for {span(expired.t - staged.t)}, until its "
        "lease ended"
        if expired
        else f"has held {staged.num_blocks} blocks ({staged.num_tokens} tokens) for {case.since(staged.t)}"
    )
    choice = _CHOICE.match(case.transfer.base_id)
    which = f", choice {choice[1]} of a request with n > 1" if choice else ""
    why = ": D's request was ended before it asked for them" if never_asked else ""
    sentence = f"P {held}{which}, and no decode has claimed them{why}."
    return case.found(
        "siblings_unclaimed" if choice else "prefill_unclaimed",
        sentence,
        staged.t,
        case.p_saw(staged, "blocks staged"),
        case.p_saw(expired, "lease ended, blocks released") if expired else None,
    )


def full_hit(case: Case) -> Diagnosis | None:
    """D needed nothing and P does not know: it holds the blocks for the lease. Not a fault."""
    if case.transfer.outcome is not Outcome.NOTHING_TO_RECEIVE or case.pull:
        return None
    nothing, staged = case.d.first(ev.NothingToReceive), case.p.first(ev.BlocksStaged)
    if nothing is None or staged is None:
        return None
    expired = case.p.first(ev.LeaseExpired)
    state = (
        f"held them until its lease ended, {span(expired.t - staged.t)}"
        if expired
        else f"has held them for {case.since(staged.t)}"
    )
    sentence = f"D needed none of P's {staged.num_blocks} blocks; P, which push doesn't tell, {state}."
    return case.found(
        "full_hit_held_until_lease",
        sentence,
        nothing.t,
        case.d_saw(nothing, "nothing to receive"),
        case.p_saw(expired, "lease ended") if expired else None,
    )


# -- what the rules ask ---------------------------------------------------------------------------------

STAGED: Final = "registration staged"
_P_GAVE_UP: Final = (ev.LeaseExpired, ev.SendFinished, ev.PrefillNotProcessed)


def waits_for_a_prefill(t: Transfer) -> bool:
    """Of a transfer alone: D is in it, P is not."""
    return t.is_open and t.d_request is not None and t.p_request is None and t.mode == "push"


def is_unclaimed(t: Transfer) -> bool:
    """Of a transfer alone: P has, or had, blocks for it, and D is not in it."""
    return t.p_request is not None and t.d_request is None and t.outcome in (Outcome.WAITING, Outcome.EXPIRED)


def _asked(case: Case) -> ev.Event:
    """D's registration, of which some part has been seen."""
    for kind in (ev.RegistrationStaged, ev.RegistrationHandedOff, ev.RegistrationSent):
        if asked := case.d.first(kind):
            return asked
    raise LookupError("D has not registered")


def _staged(case: Case) -> ev.BlocksStaged:
    staged = case.p.first(ev.BlocksStaged)
    assert staged is not None
    return staged


def _sent_ns(case: Case) -> int | None:
    sent = case.d.first(ev.RegistrationSent)
    return sent.t if sent else None


def _p_stepped(case: Case, since_ns: int) -> bool:
    """Whether P has said something so long after that it has stepped, and so drained, since."""
    return case.p_engine.heard_ns >= since_ns + _STEP_NS


def _rank_of(case: Case, drained: ev.RegistrationDrained) -> Rank:
    return next(rank for rank, e in case.d.all(ev.RegistrationDrained) if e is drained)


def _attempt(case: Case, number: int) -> Transfer | None:
    return next((t for t in case.others if t.attempt == number), None)


CAUSES: Final[tuple[Rule, ...]] = (
    registration_lost,
    paired_differently,
    taken_by_older,
    again_after_preemption,
    ids_differ,
    without_prefill,
    unclaimed,
)
BESIDES: Final[tuple[Rule, ...]] = (share_an_id, full_hit)
