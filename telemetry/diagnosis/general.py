"""What is true of any transfer that waits too long, whatever the cause: an engine is gone; who waits for what."""

from __future__ import annotations

from typing import Final

from pushscope.telemetry import events as ev
from pushscope.telemetry.diagnosis.case import Case, Rule, Severity, silence
from pushscope.telemetry.diagnosis.model import Diagnosis, Evidence
from pushscope.telemetry.transfer import Outcome, Rank, Stage, rank_name

_NO_PROGRESS: Final[frozenset[type[ev.Event]]] = frozenset(
    {ev.LeaseExtended, ev.LeaseSet, ev.WatchdogFired, ev.RequestPreempted}
)
_PREFILL_TIMES: Final = 10
"""A prefill that P has in its queue, or computes, may take so many times longer than a step of a transfer."""


def engine_gone(case: Case) -> Diagnosis | None:
    """An engine took the transfer with it; or P was restarted since it heard of the request."""
    t = case.transfer
    if t.outcome is Outcome.LOST:
        if case.d_waits:
            words = f"{t.error}; D has waited {case.since(t.since_ns)} since and is told nothing"
        elif case.p_holds:
            words = f"{t.error}; P holds the blocks until its lease ends"
        else:
            words = f"{t.error}, and the transfer with it"
        severity = Severity.ERROR if case.d_waits else Severity.WARNING
        return case.found(
            "engine_gone", f"{words}.", t.since_ns, _last_seen(case), severity=severity, certain=True
        )
    drained, started_ns = case.d.last(ev.RegistrationDrained), case.p_engine.started_ns
    if drained is None or drained.t >= started_ns or not case.d_waits or t.p_request is not None:
        return None
    sentence = (
        f"P was restarted {case.since(started_ns)} ago, and what it knew of this request is gone with its old self; D "
        "waits on."
    )
    return case.found("engine_gone", sentence, started_ns, _last_seen(case), certain=True)


def watchdog(case: Case) -> Diagnosis | None:
    """D's own alarm went off."""
    fired = case.d.first(ev.WatchdogFired)
    if fired is None or not case.d_waits:
        return None
    asked = case.d.first(ev.RegistrationStaged)
    since_ns = asked.t if asked else fired.t
    sentence = (
        f"D's watchdog fired {case.since(fired.t)} ago and changed nothing: D has waited {case.since(since_ns)}. "
        f"{_what(case)}"
    )
    return case.found(
        "watchdog_fired", sentence.rstrip(), since_ns, case.d_saw(fired, "watchdog fired"), _last_seen(case)
    )


def waiting(case: Case) -> Diagnosis | None:
    """Nothing explains it, and it waits longer than usual."""
    t = case.transfer
    if not (t.is_open or case.d_waits):
        return None
    since_ns, moved = t.since_ns, _last_seen(case, but=_NO_PROGRESS)
    if case.age_ns(since_ns) < _patience_ns(case) or (moved and not case.is_late(moved.t_ns)):
        return None
    sentence = f"{_what(case)} It has been so for {case.since(since_ns)}{silence(case)}."
    last = _last_seen(case)
    if last is not None:
        where = f" on {rank_name(last.rank)}" if last.rank else ""
        sentence += f" Last seen, {case.since(last.t_ns)} ago: {last.what}{where}."
    return case.found("waiting", sentence, since_ns, last)


def _patience_ns(case: Case) -> int:
    """How long it may wait: P's computing takes its time, and blocks are held for a part of the lease."""
    t = case.transfer
    late_ns = case.late_ns(t.stage)
    staged = case.p.first(ev.BlocksStaged)
    if staged is not None and not case.p.has(ev.Matched) and not case.d_waits:
        return max(late_ns, int(case.thresholds.lease_share * staged.lease_s * 1e9))
    computing = case.p.has(ev.RequestArrived) and not case.p.has(ev.BlocksStaged, ev.PrefillNotProcessed)
    heard_ns = case.p_engine.heard_ns
    silent = bool(heard_ns) and case.age_ns(heard_ns) >= late_ns  # an engine at work is heard once a second
    return _PREFILL_TIMES * late_ns if computing and not silent else late_ns


def _what(case: Case) -> str:
    t = case.transfer
    if t.waits:
        return f"{t.waits[0].upper()}{t.waits[1:]}."
    if t.stage is Stage.WAKE:
        return "D has its blocks, and its scheduler has not run the request yet."
    if t.stage is not None:
        return f"It is in the stage {t.stage.value}."
    return "D waits for its blocks."


def _last_seen(case: Case, but: frozenset[type[ev.Event]] = frozenset()) -> Evidence | None:
    """The latest event of either side, of a kind that counts."""
    last: tuple[int, str, str, Rank] | None = None
    for engine, facts in ((case.transfer.p_engine or "P", case.p), (case.transfer.d_engine or "D", case.d)):
        for kind in facts.kinds() - but:
            # What P heard of D's request is P's word.
            whose = case.transfer.p_engine or "P" if kind is ev.RegistrationDrained else engine
            for rank, e in facts.all(kind):
                if last is None or (e.t, kind.__name__, whose, rank) > last:
                    last = (e.t, kind.__name__, whose, rank)
    if last is None:
        return None
    t, name, whose, rank = last
    return Evidence(t, whose, _words(name), rank)


def _words(name: str) -> str:
    """``RegistrationDrained`` as ``registration drained``."""
    return "".join(f" {c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(name))


UNEXPLAINED: Final[tuple[Rule, ...]] = (watchdog, waiting)
