"""Causes in the push itself (in pull mode the reads), and in the notifications that tell D of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from pushscope.telemetry import events as ev
from pushscope.telemetry.diagnosis.case import HUNG, SILENT_NS, Case, Rule, Severity, aftermath, silence, span
from pushscope.telemetry.diagnosis.model import Diagnosis
from pushscope.telemetry.half import Facts
from pushscope.telemetry.transfer import Rank, Stage, rank_name

NOT_POSTED: Final = frozenset({"transfer_setup_failed"})
UNSURE: Final = "transfer_exception"
"""The poll itself failed: the transfer may be as good as any."""
ON_ITS_WAY: Final = frozenset({"transfer_failed", UNSURE})
TELEMETRY: Final = "telemetry:"
"""How an error begins that was raised when NIXL was asked for its figures, after it was done."""
_GOOD_ENDS: Final = frozenset({"finished_stopped", "finished_length_capped"})
_STALLS: Final = 5
"""A link that lost packets tries again, ever more slowly, and may come right until this many times the floor."""


def _poster(case: Case) -> Facts:
    """The side that posts: P writes in push mode, D reads in pull mode."""
    return case.d if case.pull else case.p


def _who(case: Case) -> tuple[str, str]:
    """The side that posts, and what it posts."""
    return ("D", "READ") if case.pull else ("P", "WRITE")


def _failures(case: Case, kinds: Iterable[str]) -> list[tuple[Rank, ev.TransferFailed]]:
    found = [(r, e) for r, e in _poster(case).all(ev.TransferFailed) if e.error_type in kinds]
    return sorted(found, key=lambda f: (f[1].t, f[0], f[1].number))


def not_posted(case: Case) -> Diagnosis | None:
    """Preparing or posting raised: one rank's part is missing for good."""
    return _failed(case, "write_not_posted", NOT_POSTED, "could not be posted")


def failed_on_its_way(case: Case) -> Diagnosis | None:
    """NIXL reported an error for what was posted."""
    return _failed(case, "write_failed", ON_ITS_WAY, "failed on the way")


def _failed(case: Case, code: str, kinds: frozenset[str], words: str) -> Diagnosis | None:
    failures = [f for f in _failures(case, kinds) if not f[1].error.startswith(TELEMETRY)]
    if not failures or case.delivered or (case.d.has(ev.ReceiveDone, ev.ReceiveFinished) and not case.pull):
        return None
    unsure = not case.pull and all(e.error_type == UNSURE for _, e in failures)
    if unsure and not case.is_late(failures[0][1].t):
        return None  # D may have it yet
    side, what = _who(case)
    first = failures[0][1]
    begun = len(_poster(case).all(ev.DescriptorsStarted))
    ranks = ", ".join(sorted({rank_name(rank) for rank, _ in failures}))
    sentence = (
        f"{len(failures)} of {max(begun, len(failures))} {what}s of {side} {words} ({ranks}: {_text(first)}), "
        f"{aftermath(case, first.t)}."
    )
    saw = case.d_saw if case.pull else case.p_saw
    evidence = [saw(e, f"{what} {words}: {_text(e)}", rank) for rank, e in failures]
    return case.found(code, sentence, first.t, *evidence, certain=case.certain and not unsure)


def figures_missing(case: Case) -> Diagnosis | None:
    """The transfer was done; only NIXL's figures could not be had, and vLLM counts it as failed."""
    failures = [f for f in _failures(case, ON_ITS_WAY) if f[1].error.startswith(TELEMETRY)]
    if not failures:
        return None
    rank, first = failures[0]
    side, what = _who(case)
    saw = case.d_saw if case.pull else case.p_saw
    sentence = (
        f"{side}'s {what} was done, but NIXL has no figures of it ({_text(first)}), and vLLM counts it as failed: this "
        "is no fault of the network"
        + (
            ", but D gives up a receive that went well."
            if case.pull
            else "; P holds the blocks until the lease ends."
        )
    )
    return case.found(
        "telemetry_missing",
        sentence,
        first.t,
        saw(first, f"{what} done, figures missing", rank),
        severity=Severity.ERROR if case.pull and not case.delivered else Severity.WARNING,
    )


def never_finished(case: Case) -> Diagnosis | None:
    """Posted, and neither done nor failed nor noticed by D for far too long."""
    if case.delivered or case.d.has(ev.ReceiveDone, ev.ReceiveFinished):
        return None
    side, what = _who(case)
    poster = _poster(case)
    ended = {(r, e.number) for kind in (ev.TransferDone, ev.TransferFailed) for r, e in poster.all(kind)}
    begun = {e.t: (r, e) for r, e in poster.all(ev.SubmitStarted) if (r, e.number) not in ended}
    late = [
        s
        for s in case.transfer.stages
        if s.stage is Stage.WIRE
        and s.end_ns is None
        and s.start_ns in begun
        and case.is_late(s.start_ns, Stage.WIRE)
    ]
    if not late:
        return None
    since_ns = min(s.start_ns for s in late)
    rank, first = begun[since_ns]
    usual = case.usual(case.transfer.p_engine, case.transfer.d_engine, Stage.WIRE)
    if any((r, e.number) == (rank, first.number) for r, e in poster.all(ev.Submitted)):
        state = f"it has been in progress for {case.since(since_ns)}"
        state += f", where {span(usual)} is usual" if usual else ""
    else:
        state = f"NIXL's transfer() has not returned for {case.since(since_ns)}"
    ranks = ", ".join(f"P's {_rank(s.rank)} and D's {_rank(s.peer_rank)}" for s in late)
    sentence = (
        f"{side} posted a {what} between {ranks} that neither ends nor fails: {state}. NIXL has no deadline: one of "
        f"the two engines, or the link, has stopped{silence(case)}."
    )
    severity = _grown(case, since_ns)
    saw = case.d_saw if case.pull else case.p_saw
    evidence = [saw(begun[s.start_ns][1], f"{what} posted", begun[s.start_ns][0]) for s in late]
    return case.found("write_never_finished", sentence, since_ns, *evidence, severity=severity)


def nothing_to_write(case: Case) -> Diagnosis | None:
    """P had nothing for D, and push has no message for that."""
    if case.delivered or case.d.has(ev.ReceiveFinished, ev.DecodeScheduled) or case.pull:
        return None
    empty = case.p.first(ev.NothingToPush)
    if empty is not None and not case.p.has(ev.TransferFailed, ev.WriterException):
        rank = next(r for r, e in case.p.all(ev.NothingToPush) if e is empty)
        sentence = f"P had no blocks left to write for this request, {aftermath(case, empty.t)}."
        return case.found("nothing_to_push", sentence, empty.t, case.p_saw(empty, "nothing to push", rank))
    dropped = case.p.first(ev.PrefillNotProcessed)
    if dropped is None or dropped.status not in _GOOD_ENDS or not case.d_waits:
        return None
    sentence = (
        f"P's prefill ended well ({dropped.status}) and left no blocks for D, {aftermath(case, dropped.t)}."
    )
    return case.found(
        "nothing_to_push", sentence, dropped.t, case.p_saw(dropped, "prefill ended, no blocks held")
    )


def abandoned(case: Case) -> Diagnosis | None:
    """An exception reached the writer's loop while it worked on this push: it goes on without it."""
    raised = case.p.first(ev.WriterException)
    if raised is None or case.delivered or case.d.has(ev.ReceiveFinished):
        return None
    rank = next(r for r, e in case.p.all(ev.WriterException) if e is raised)
    posted = [e for r, e in case.p.all(ev.Submitted) if r == rank and e.state != "ERR" and e.t <= raised.t]
    done = {e.number for r, e in case.p.all(ev.TransferDone) if r == rank}
    untracked = [e for e in posted if e.number not in done]
    evidence = [case.p_saw(raised, f"{raised.where} raised {raised.error}", rank)]
    if untracked:
        sentence = (
            f"{len(untracked)} WRITEs of P's {rank_name(rank)} are under way and tracked by nobody: "
            f"{raised.where} raised {raised.error} before the rest was posted, {aftermath(case, raised.t)}."
        )
        evidence += [case.p_saw(e, f"WRITE {e.number} posted", rank) for e in untracked]
        return case.found("partial_post_untracked", sentence, raised.t, *evidence)
    sentence = (
        f"P's push writer failed on this push ({raised.where} on {rank_name(rank)} raised {raised.error}) and went on "
        f"without it, {aftermath(case, raised.t)}."
    )
    return case.found("push_abandoned", sentence, raised.t, *evidence)


def dropped_early(case: Case) -> Diagnosis | None:
    """A completion came before that D rank had the request, and D threw it away."""
    if case.pull or not case.d_waits:
        return None
    handed = {rank: e.t for rank, e in case.d.all(ev.RegistrationHandedOff)}
    done = {rank for rank, _ in case.d.all(ev.ReceiveDone)}
    early = [
        (rank, e)
        for rank, e in case.d.all(ev.NotificationUnrecognised)
        if rank not in done and (rank not in handed or e.t < handed[rank])
    ]
    if not early:
        return None
    rank, first = min(early, key=lambda found: (found[1].t, found[0]))
    sentence = (
        f"D's {rank_name(rank)} threw away P's completion because it came before that rank had the request, and it "
        f"will not come again: D has waited {case.since(first.t)} since. vLLM logs it as an expiry, which it is not."
    )
    late = next((e for r, e in case.d.all(ev.RegistrationHandedOff) if r == rank), None)
    return case.found(
        "early_notification_dropped",
        sentence,
        first.t,
        case.d_saw(first, "notification not recognised", rank),
        case.d_saw(late, "this rank has the request", rank) if late else None,
    )


def notifications_missing(case: Case) -> Diagnosis | None:
    """D has fewer completions than it waits for, and nothing that was seen says why."""
    t = case.transfer
    if case.pull or not case.d_waits or t.ranks_done >= t.ranks:
        return None
    counted = case.d.all(ev.NotificationCounted)
    done = case.p.all(ev.TransferDone)
    since_ns = max((e.t for _, e in (*counted, *done)), default=None)
    if since_ns is None or not case.is_late(since_ns, Stage.WIRE):
        return None
    told = {s.rank for s in t.stages if s.stage is Stage.NOTIFICATION and s.rank}
    missing = ", ".join(rank_name(rank) for rank in sorted(_p_ranks(case) - told))
    got = Counter(rank for rank, _ in counted)
    each = t.ranks // case.d_engine.tp_size
    short = ", ".join(
        f"D's {rank_name((0, tp))} has {got[0, tp]} of {each}"
        for tp in range(case.d_engine.tp_size)
        if got[0, tp] < each
    )
    sentence = f"D waits for {t.ranks - t.ranks_done} of {t.ranks} completions: {short}"
    sentence += f", none from P's {missing}" if missing else ""
    sentence += f"; the last sign of it is {case.since(since_ns)} old{silence(case)}."
    evidence = [case.d_saw(e, f"notification {e.n} counted", rank) for rank, e in counted]
    evidence += [case.p_saw(e, "WRITE done", rank) for rank, e in done]
    severity = _grown(case, since_ns)
    return case.found("notifications_missing", sentence, since_ns, *evidence, severity=severity)


def _grown(case: Case, since_ns: int) -> Severity:
    """How bad it is that a link has been silent since then. As long as D is silent itself, that may be all."""
    d_is_silent = 0 < case.d_engine.heard_ns <= since_ns + SILENT_NS
    stalls = case.age_ns(since_ns) < (HUNG if d_is_silent else _STALLS) * case.late_ns()
    return Severity.WARNING if stalls else case.grown(since_ns, Stage.WIRE)


def _p_ranks(case: Case) -> set[Rank]:
    """P's ranks, as D was told of them."""
    asked = case.d.first(ev.RegistrationStaged)
    pp, tp = (asked.peer_pp, asked.peer_tp) if asked else (case.p_engine.pp_size, case.p_engine.tp_size)
    return {(stage, rank) for stage in range(pp) for rank in range(tp)}


def served_though_failed(case: Case) -> Diagnosis | None:
    """Pull: a read failed, and D's worker reported the receive as good all the same."""
    failures = _failures(case, NOT_POSTED | {"transfer_failed"})
    if not case.pull or not failures or case.d.has(ev.ReceiveFailed):
        return None
    rank, first = failures[0]
    done = next((e for r, e in case.d.all(ev.ReceiveDone) if r == rank), None)
    scheduled = case.d.first(ev.DecodeScheduled)
    if done is None or scheduled is None:
        return None
    sentence = (
        f"D's READ on {rank_name(rank)} failed ({_text(first)}), that rank reported the blocks as received, and D "
        "decoded on them."
    )
    return case.found(
        "failed_receive_served",
        sentence,
        first.t,
        case.d_saw(first, f"READ failed: {_text(first)}", rank),
        case.d_saw(done, "received", rank),
        case.d_saw(scheduled, "decode scheduled"),
    )


def computed_by_d(case: Case) -> Diagnosis | None:
    """The receive failed and D computes the prompt itself (``kv_load_failure_policy``: recompute)."""
    failed = case.d.first(ev.ReceiveFailed)
    ended = case.d.first(ev.RequestEnded)
    if failed is None or (ended.status not in _GOOD_ENDS if ended else not case.is_late(failed.t)):
        return None
    why = f" ({case.transfer.error})" if case.transfer.error else ""
    sentence = (
        f"The receive failed{why} and D went on: it computes the prompt itself, and the client sees no error."
    )
    return case.found("computed_by_d", sentence, failed.t, case.d_saw(failed, "receive failed"))


def _rank(rank: Rank | None) -> str:
    return "?" if rank is None else rank_name(rank)


def _text(failed: ev.TransferFailed) -> str:
    return f"{failed.error_type}: {failed.error}" if failed.error else failed.error_type


CAUSES: Final[tuple[Rule, ...]] = (
    abandoned,
    not_posted,
    failed_on_its_way,
    figures_missing,
    nothing_to_write,
    dropped_early,
    never_finished,
)
UNEXPLAINED: Final[tuple[Rule, ...]] = (notifications_missing,)
WHAT_CAME_OF_IT: Final[tuple[Rule, ...]] = (served_though_failed,)
