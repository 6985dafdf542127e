"""What a diagnosis is made of: a transfer, the events of both its sides, its engines, and what is usual."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from pushscope.telemetry import events as ev
from pushscope.telemetry.diagnosis.catalogue import CATALOGUE
from pushscope.telemetry.diagnosis.model import Diagnosis, Evidence, Severity
from pushscope.telemetry.diagnosis.thresholds import Thresholds
from pushscope.telemetry.half import Facts
from pushscope.telemetry.judge import EngineFacts
from pushscope.telemetry.transfer import Outcome, Rank, Stage, Transfer
from pushscope.telemetry.units import coarse_age, duration

Usual = Callable[[str | None, str | None, Stage], int | None]
"""(P engine, D engine, stage) -> its usual time (99th percentile of what was delivered), None if not known."""

_D_ASKED: Final = (
    ev.RegistrationStaged,
    ev.RegistrationHandedOff,
    ev.RegistrationSent,
    ev.ReadStaged,
    ev.ReadHandedOff,
)
_D_OVER: Final = (ev.ReceiveFinished, ev.ReceiveFailed, ev.DecodeScheduled, ev.RequestEnded)
_P_OVER: Final = (ev.SendFinished, ev.LeaseExpired, ev.PrefillNotProcessed)
SILENT_NS: Final = 3_000_000_000
"""An engine at work says something once a second."""
HUNG: Final = 10
"""An engine that makes no step for so many times the floor (as long as a lease, by default) is said to hang."""
GROWN: Final = 4
"""What may still come right by itself is no more than a warning until it is so many times late."""


class Case(NamedTuple):
    """One transfer to be diagnosed."""

    transfer: Transfer
    p: Facts
    """What P's side recorded."""
    d: Facts
    """What D's side recorded, and (``RegistrationDrained``) what P heard of it."""
    p_engine: EngineFacts
    d_engine: EngineFacts
    now_ns: int
    usual: Usual
    thresholds: Thresholds
    lost_events: bool = False
    """Events of these engines were lost: what was not seen may have happened."""
    taken_by: int = 0
    """The attempt whose registration met the blocks that were meant for this D request."""
    released_ns: int = 0
    """When P's lease on its last prefill of this id ended, which D came too late to claim; 0 if that wasn't so."""
    others: tuple[Transfer, ...] = ()
    """The other transfers of the same base id."""
    strangers: tuple[Transfer, ...] = ()
    """Transfers with another id, on the same P, of as many tokens, that lack just the side that this one has, the
    likeliest first. Of a P side only if it and that one have no other choice: at most one can be D's."""
    rivals: int = 0
    """Other D requests that the same prefills could be meant for."""

    # -- who is there, and who still waits -------------------------------------------------------------

    @property
    def unobserved(self) -> tuple[str, ...]:
        """The sides that have an engine whose recording is not read."""
        sides = (("P", self.transfer.p_engine, self.p_engine), ("D", self.transfer.d_engine, self.d_engine))
        return tuple(side for side, engine_id, engine in sides if engine_id and not engine.observed)

    @property
    def certain(self) -> bool:
        """Whether what was not seen did not happen."""
        return not self.unobserved and not self.lost_events

    @property
    def pull(self) -> bool:
        return self.transfer.mode == "pull"

    @property
    def d_asked(self) -> bool:
        """D is seen to have asked for blocks."""
        return self.d.has(*_D_ASKED)

    @property
    def d_waits(self) -> bool:
        """D is seen to have asked for blocks, and to have neither got them nor given up."""
        return self.d_engine.observed and self.d_engine.alive and self.d_asked and not self.d.has(*_D_OVER)

    @property
    def lacks_prefill(self) -> bool:
        """D has registered, and P, which is observed, has nothing for it."""
        return (
            self.d_waits
            and not self.pull
            and self.p_engine.observed
            and self.p_engine.alive
            and self.d.has(ev.RegistrationStaged, ev.RegistrationSent)
            and not self.taken_by
            and not self.p.has(ev.BlocksStaged, ev.BlocksHandedOff, ev.BlocksPickedUp, ev.Matched)
        )

    @property
    def d_queued(self) -> bool:
        """D is seen to have the request, and has not asked for its blocks yet."""
        return (
            self.d_engine.alive
            and self.d.has(ev.RequestArrived)
            and not self.d.has(*_D_ASKED, *_D_OVER, ev.NothingToReceive)
        )

    @property
    def p_holds(self) -> bool:
        """P is seen to hold the blocks."""
        return self.p_engine.alive and self.p.has(ev.BlocksStaged) and not self.p.has(*_P_OVER)

    @property
    def delivered(self) -> bool:
        return self.transfer.outcome is Outcome.DELIVERED

    @property
    def over_ns(self) -> int | None:
        """When the last side was done, or gave up; None while one waits or holds blocks."""
        if self.d_waits or self.d_queued or self.p_holds or self.transfer.is_open:
            return None
        ends = [e.t for kind in _D_OVER for _, e in self.d.all(kind)]
        ends += [e.t for kind in _P_OVER for _, e in self.p.all(kind)]
        return max(ends, default=self.transfer.closed_ns)

    # -- time ------------------------------------------------------------------------------------------

    def age_ns(self, since_ns: int) -> int:
        return self.now_ns - since_ns

    def late_ns(self, stage: Stage | None = None) -> int:
        """How long such a wait may last; by the usual time of ``stage``, if it is given."""
        usual = self.usual(self.transfer.p_engine, self.transfer.d_engine, stage) if stage else None
        return self.thresholds.late_after_ns(usual, one_sided=bool(self.unobserved))

    def is_late(self, since_ns: int, stage: Stage | None = None) -> bool:
        return self.age_ns(since_ns) >= self.late_ns(stage)

    def grown(self, since_ns: int, stage: Stage | None = None) -> Severity:
        """The severity of a wait that might still end by itself."""
        grown = self.age_ns(since_ns) >= GROWN * self.late_ns(stage)
        return Severity.ERROR if grown else Severity.WARNING

    def since(self, since_ns: int) -> str:
        """For how long something has been so, in words."""
        return span(self.age_ns(since_ns))

    # -- saying it -------------------------------------------------------------------------------------

    def p_saw(self, event: ev.Event, what: str, rank: Rank | None = None) -> Evidence:
        return Evidence(event.t, self.transfer.p_engine or "P", what, rank)

    def d_saw(self, event: ev.Event, what: str, rank: Rank | None = None) -> Evidence:
        return Evidence(event.t, self.transfer.d_engine or "D", what, rank)

    def found(
        self,
        code: str,
        sentence: str,
        since_ns: int,
        *evidence: Evidence | None,
        severity: Severity | None = None,
        certain: bool | None = None,
    ) -> Diagnosis:
        """The diagnosis, with what the catalogue says of it; what is not sure is said to be so.

        ``certain``: whether these facts are enough; None: as far as both sides were seen.
        """
        entry = CATALOGUE[code]
        sure = self.certain if certain is None else certain
        seen = sorted((e for e in evidence if e is not None), key=lambda e: (e.t_ns, e.what, e.rank or ()))
        return Diagnosis(
            code=code,
            severity=entry.severity if severity is None else severity,
            subject=self.transfer.base_id,
            attempt=self.transfer.attempt,
            sentence=sentence if sure else sentence + self._unsure,
            evidence=tuple(seen),
            since_ns=since_ns,
            certain=sure,
            remedy=entry.remedy,
        )

    @property
    def _unsure(self) -> str:
        """What makes it less than certain, as a sentence of its own."""
        words = ""
        if unobserved := self.unobserved:
            words += f" {' and '.join(unobserved)} is not observed: what it did is not known."
        if self.lost_events:
            words += " Events were lost: some of this may have been seen by nobody."
        return words


Rule = Callable[[Case], Diagnosis | None]
"""One cause: its diagnosis if it holds, None if it doesn't."""


def span(ns: int) -> str:
    """A time in words: whole seconds, and below one what a stopwatch would show."""
    return coarse_age(ns / 1e9) if ns >= 1e9 else duration(max(0, ns) / 1e9)


def aftermath(case: Case, since_ns: int) -> str:
    """What it means for D, since something failed that D is not told of by itself."""
    if not case.d_engine.observed:
        return "and D is told nothing"
    if not case.d_engine.alive:
        return "and D is gone"
    if case.d_waits:
        asked = case.d.first(ev.RegistrationStaged) or case.d.first(ev.ReadStaged)
        return f"and D has waited {case.since(asked.t if asked else since_ns)} for it"
    if failed := case.d.first(ev.ReceiveFailed):
        return f"and D's worker gave the receive up {_after(failed.t, since_ns)}"
    if ended := case.d.first(ev.RequestEnded):
        return f"and D's request ended ({ended.status}) {_after(ended.t, since_ns)}"
    return "and D does not wait for it"


def silence(case: Case) -> str:
    """Which engine has been silent since, if one has: it is stopped, or else may hang, or have nothing to do."""
    words = ""
    for name, engine in (("P", case.p_engine), ("D", case.d_engine)):
        if engine.observed and engine.heard_ns and case.age_ns(engine.heard_ns) >= SILENT_NS:
            stopped = "is stopped and " if engine.stopped else ""
            words += f"; {name} {stopped}was last heard {case.since(engine.heard_ns)} ago"
    return words


def _after(t: int, since_ns: int) -> str:
    return f"{span(t - since_ns)} later" if t >= since_ns else f"{span(since_ns - t)} before"


__all__ = ["Case", "Diagnosis", "Evidence", "Rule", "Severity", "Usual", "aftermath", "silence", "span"]
