"""What was named in snapshot after snapshot, counted."""

from __future__ import annotations

import sys
import time
from collections import Counter

from bench.memory import resident_mib

from pushscope.telemetry.diagnosis.model import Severity
from pushscope.telemetry.snapshot import Snapshot
from soak.result import Named, Part

_MAX_SENTENCES = 20
_TENTHS = 10


class Tally:
    """Takes snapshots; gives the part of the result."""

    def __init__(self, name: str, *, simulated: bool) -> None:
        self._name, self._simulated = name, simulated
        self._counts: Counter[tuple[str, Severity]] = Counter()
        self._standing: set[tuple[str, Severity, str, int]] = set()
        """What the last snapshot named; what it did not is counted anew if it comes again."""
        self._errors: list[str] = []
        self._resident: list[float] = []
        self._snapshots = self._first_ns = 0
        self._begun = time.monotonic()
        self.last = Snapshot(taken_ns=0, taken_unix_s=0.0)

    def take(self, snapshot: Snapshot, done: float) -> None:
        """One more snapshot, when ``done`` (0 to 1) of the part is done."""
        self.last = snapshot
        self._snapshots += 1
        self._first_ns = self._first_ns or snapshot.taken_ns
        standing = set()
        for d in snapshot.diagnoses:
            key = (d.code, d.severity, d.subject, d.attempt)
            standing.add(key)
            if key in self._standing:
                continue
            self._counts[d.code, d.severity] += 1
            if d.severity is Severity.ERROR and len(self._errors) < _MAX_SENTENCES:
                self._errors.append(f"{d.code} {d.subject}: {d.sentence}")
                print(
                    self._errors[-1], file=sys.stderr, flush=True
                )  # a run may be ended before its page is written
        self._standing = standing
        if min(1.0, done) * _TENTHS >= len(self._resident) + 1:
            self._resident.append(round(resident_mib(), 1))

    @property
    def error_count(self) -> int:
        return sum(count for (_, severity), count in self._counts.items() if severity is Severity.ERROR)

    def part(self, wrong: dict[str, int]) -> Part:
        """All of it; ``wrong``: what had truly gone wrong."""
        totals = self.last.totals
        return Part(
            name=self._name,
            simulated=self._simulated,
            transfers=sum(totals.outcomes.values()),
            outcomes=totals.outcomes,
            events=totals.events,
            events_lost=totals.events_lost,
            snapshots=self._snapshots,
            watched_s=round((self.last.taken_ns - self._first_ns) / 1e9, 1),
            wall_s=round(time.monotonic() - self._begun, 1),
            resident_mib=(*self._resident, round(resident_mib(), 1)),
            named=tuple(Named(*key, count) for key, count in sorted(self._counts.items())),
            errors=tuple(self._errors),
            wrong=wrong,
        )
