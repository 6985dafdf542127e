"""What a load test amounts to: one phase over all of it, and one for each interval between marks.

A fold over transfers as they end, snapshots as they are taken, and marks; in bounded memory. The tables are in
``pushscope.tui.summary_view``. A transfer belongs to the phase in which it ended, though that may be told later.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Final

import msgspec

from pushscope.telemetry.diagnosis.model import WORST_FIRST, Severity
from pushscope.telemetry.marks import Mark
from pushscope.telemetry.pace import StageFold, StagePace, Times
from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.transfer import WENT_WRONG, Outcome, Transfer

MAX_PHASES: Final = 64
MAX_CAUSES: Final = 64
MAX_SUBJECTS: Final = 10_000
"""Of a cause so many subjects are counted."""


class StuckCause(msgspec.Struct, frozen=True, kw_only=True):
    """One cause for which something was stuck."""

    code: str
    severity: Severity
    subjects: int
    """How many transfers or engines; at most ten thousand are counted."""
    longest_s: float
    """From when it began to when it was last seen, of the one for which that was longest."""
    example: str
    """That one: a transfer's base id, or an engine id."""
    sentence: str


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """An interval of wall time, with the transfers that ended in it."""

    label: str = ""
    """Of the mark that it begins with; empty of all, and before the first mark."""
    begin_unix_s: float
    end_unix_s: float
    transfers: int = 0
    outcomes: dict[str, int] = {}
    delivered_per_s: float | None = None
    num_bytes: int = 0
    """Of delivered transfers, as far as their size is known (D alone doesn't know it)."""
    bytes_per_s: float | None = None
    exposed: dict[str, Times] = {}
    """By mode: blocks staged at P -> decode scheduled at D."""
    stages: tuple[StagePace, ...] = ()
    stuck: tuple[StuckCause, ...] = ()
    """Warnings and errors: the most severe first."""

    @property
    def bad(self) -> int:
        """Those that failed, expired or were lost."""
        return sum(self.outcomes.get(outcome.value, 0) for outcome in WENT_WRONG)


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """All that was seen. ``total`` is None if nothing was looked at."""

    total: Phase | None = None
    phases: tuple[Phase, ...] = ()
    """Between marks, the oldest first; none without marks."""
    phases_dropped: int = 0
    """Older phases that are in ``total`` only."""


def summary_json(summary: Summary) -> bytes:
    """The summary as JSON: the fields of ``Summary``, times in seconds, maps sorted by key."""
    return msgspec.json.encode(summary, order="deterministic")


# --- the fold ---------------------------------------------------------------------------------------------


class _Cause:
    """One cause, while it is followed."""

    __slots__ = ("_subjects", "_told")

    def __init__(self) -> None:
        self._subjects: set[tuple[str, int]] = set()
        self._told: StuckCause | None = None

    def see(self, told: StuckCause, attempt: int) -> None:
        if len(self._subjects) < MAX_SUBJECTS:
            self._subjects.add((told.example, attempt))
        if self._told is None:
            self._told = told
            return
        worst = min(told.severity, self._told.severity, key=WORST_FIRST.index)
        longest = max(self._told, told, key=lambda each: each.longest_s)
        self._told = msgspec.structs.replace(longest, severity=worst)

    def told(self) -> StuckCause | None:
        return self._told and msgspec.structs.replace(self._told, subjects=len(self._subjects))


class _Counted:
    """A phase that is being counted."""

    def __init__(self, label: str, begin_unix_s: float):
        self.label, self.begin_unix_s = label, begin_unix_s
        self._outcomes: Counter[str] = Counter()
        self._num_bytes = 0
        self._pace = StageFold()
        self._causes: dict[str, _Cause] = {}

    def ended(self, transfer: Transfer) -> None:
        self._outcomes[transfer.outcome.value] += 1
        if transfer.outcome is Outcome.DELIVERED:
            self._num_bytes += transfer.num_bytes or 0
        self._pace.add(transfer)

    def see(self, told: StuckCause, attempt: int) -> None:
        if told.code not in self._causes and len(self._causes) < MAX_CAUSES:
            self._causes[told.code] = _Cause()
        if told.code in self._causes:
            self._causes[told.code].see(told, attempt)

    def phase(self, end_unix_s: float) -> Phase:
        seconds = end_unix_s - self.begin_unix_s
        delivered = self._outcomes[Outcome.DELIVERED.value]
        causes = [told for cause in self._causes.values() if (told := cause.told())]
        return Phase(
            label=self.label,
            begin_unix_s=self.begin_unix_s,
            end_unix_s=end_unix_s,
            transfers=self._pace.transfers,
            outcomes=dict(self._outcomes.most_common()),
            delivered_per_s=delivered / seconds if seconds > 0 else None,
            num_bytes=self._num_bytes,
            bytes_per_s=self._num_bytes / seconds if seconds > 0 else None,
            exposed=self._pace.exposed(),
            stages=self._pace.stages(),
            stuck=tuple(sorted(causes, key=_worst_first)),
        )


def _worst_first(cause: StuckCause) -> tuple[int, int, str]:
    return WORST_FIRST.index(cause.severity), -cause.subjects, cause.code


class SummaryFold:
    """Feed it what ends, then the snapshot that was taken after that, and marks as they come to be known.

    A mark begins a phase at its own time, if none began later. What ended before the first snapshot counts too.
    """

    def __init__(self) -> None:
        self._total: _Counted | None = None
        self._phases: deque[_Counted] = deque()
        self._marked = False
        self._dropped = 0
        self._end_unix_s = 0.0
        self._ended: list[Transfer] = []
        """Since the last snapshot, by whose clock their time is known."""

    def ended(self, transfer: Transfer) -> None:
        """Take in a transfer that has ended; it is counted at the next snapshot."""
        self._ended.append(transfer)

    def mark(self, mark: Mark) -> None:
        """A new phase begins."""
        self._marked = True
        begins_s = max(mark.unix_s, self._phases[-1].begin_unix_s if self._phases else mark.unix_s)
        self._phases.append(_Counted(mark.label, begins_s))
        self._end_unix_s = max(self._end_unix_s, begins_s)
        if len(self._phases) > MAX_PHASES:
            self._phases.popleft()
            self._dropped += 1

    def note(self, snapshot: Snapshot) -> None:
        """Take in how it stands: what is stuck, and what has ended since the last snapshot."""
        now_s = snapshot.taken_unix_s
        if self._total is None:
            ended_s = (snapshot.unix_s(_ended_ns(transfer)) for transfer in self._ended)
            self._total = _Counted("", min((now_s, *ended_s)))
            if not self._phases or self._phases[0].begin_unix_s > self._total.begin_unix_s:
                self._phases.appendleft(_Counted("", self._total.begin_unix_s))
        self._end_unix_s = max(self._end_unix_s, now_s)
        for transfer in self._ended:
            for counted in self._at(snapshot.unix_s(_ended_ns(transfer))):
                counted.ended(transfer)
        self._ended.clear()
        for d in snapshot.diagnoses:
            if d.severity is not Severity.INFO:
                told = StuckCause(
                    code=d.code,
                    severity=d.severity,
                    subjects=1,
                    longest_s=max(0, snapshot.taken_ns - d.since_ns) / 1e9,
                    example=d.subject,
                    sentence=d.sentence,
                )
                for counted in self._at(now_s):
                    counted.see(told, d.attempt)

    def _at(self, unix_s: float) -> list[_Counted]:
        """Where something counts that was at this time; what is older than the phases that are kept, in all only."""
        phase = next((phase for phase in reversed(self._phases) if phase.begin_unix_s <= unix_s), None)
        return [counted for counted in (self._total, phase) if counted is not None]

    def summary(self) -> Summary:
        """All of it, up to the last snapshot."""
        if self._total is None:
            return Summary()
        begins = [phase.begin_unix_s for phase in self._phases]
        phases = [
            phase.phase(end_s)
            for phase, end_s in zip(self._phases, [*begins[1:], self._end_unix_s], strict=True)
        ]
        return Summary(
            total=self._total.phase(self._end_unix_s),
            phases=tuple(phases) if self._marked else (),
            phases_dropped=self._dropped,
        )


def _ended_ns(transfer: Transfer) -> int:
    return transfer.closed_ns or transfer.since_ns
