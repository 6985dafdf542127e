"""The last two minutes, second by second: what a sparkline draws."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from pushscope.telemetry.diagnosis.model import Severity
from pushscope.telemetry.transfer import WENT_WRONG, Outcome, Transfer

if TYPE_CHECKING:
    from pushscope.telemetry.snapshot import Snapshot

MAX_SECONDS: Final = 120


class Second(msgspec.Struct, frozen=True, array_like=True):
    """One second, as it was when it was over."""

    unix_s: int
    delivered: int = 0
    bad: int = 0
    """Ended otherwise than well: failed, expired, lost."""
    num_bytes: int = 0
    """Of WRITEs (pull: READs) seen done."""
    in_flight: int = 0
    waiting: int = 0
    stuck: int = 0
    """Diagnoses that are no mere information."""


class _Counts:
    """A second that is being counted."""

    __slots__ = ("bad", "delivered", "in_flight", "num_bytes", "stuck", "waiting")

    def __init__(self) -> None:
        self.delivered = self.bad = self.in_flight = self.waiting = self.stuck = 0
        self.num_bytes = 0.0

    def told(self, unix_s: int) -> Second:
        return Second(
            unix_s,
            delivered=self.delivered,
            bad=self.bad,
            num_bytes=round(self.num_bytes),
            in_flight=self.in_flight,
            waiting=self.waiting,
            stuck=self.stuck,
        )


class HistoryFold:
    """Counts by the clock of the snapshots, so that a recording has the same history at any speed.

    A transfer counts in the second in which it ended, also if that is told later. Between two snapshots that are
    seconds apart, bytes are spread evenly, and what was sampled is taken from the later one.
    """

    def __init__(self) -> None:
        self._seconds: dict[int, _Counts] = {}
        self._ended: list[tuple[int, bool]] = []
        """(when, whether it was delivered) of those that ended since the last snapshot."""
        self._last_unix_s: float | None = None
        self._last_bytes = 0

    def ended(self, transfer: Transfer) -> None:
        """Take in a transfer that has ended; it is counted at the next snapshot."""
        if transfer.outcome is Outcome.DELIVERED or transfer.outcome in WENT_WRONG:
            ended_ns = transfer.closed_ns or transfer.since_ns
            self._ended.append((ended_ns, transfer.outcome is Outcome.DELIVERED))

    def note(self, snapshot: Snapshot) -> None:
        """Take in how it stands. One older than the last clears all: the recording was moved back."""
        now_s, written = snapshot.taken_unix_s, snapshot.totals.write_bytes
        if self._last_unix_s is not None and (now_s < self._last_unix_s or written < self._last_bytes):
            self._seconds.clear()
            self._last_unix_s = None
        for second, num_bytes in self._since(now_s, written - self._last_bytes):
            counts = self._seconds.setdefault(second, _Counts())
            counts.num_bytes += num_bytes
            counts.in_flight = len(snapshot.in_flight)
            counts.waiting = len(snapshot.waiting)
            counts.stuck = sum(d.severity is not Severity.INFO for d in snapshot.diagnoses)
        for ended_ns, delivered in self._ended:
            if (known := self._seconds.get(int(snapshot.unix_s(ended_ns)))) is not None:
                known.delivered += delivered
                known.bad += not delivered
        self._ended.clear()
        self._last_unix_s, self._last_bytes = now_s, written
        for second in [second for second in self._seconds if second <= int(now_s) - MAX_SECONDS]:
            del self._seconds[second]

    def _since(self, now_s: float, num_bytes: int) -> Iterator[tuple[int, float]]:
        """The seconds since the last snapshot, as far as they are kept, each with its part of the bytes since then."""
        last_s = self._last_unix_s
        if last_s is None or now_s == last_s:
            yield int(now_s), 0 if last_s is None else num_bytes
            return
        for second in range(max(int(last_s), int(now_s) - MAX_SECONDS + 1), int(now_s) + 1):
            part = (min(now_s, second + 1) - max(last_s, second)) / (now_s - last_s)
            yield second, num_bytes * part

    def seconds(self) -> tuple[Second, ...]:
        """The last two minutes, the second that is not over yet included."""
        return tuple(self._seconds[second].told(second) for second in sorted(self._seconds))
