"""What is wrong now, with every transfer that is followed: each diagnosed when it may be late, and again when due.

With ten thousand transfers open most are not late. What was found for those that are stands for a second, and where
there are very many for longer: those wait their turn.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import nsmallest
from operator import itemgetter
from typing import Final, NamedTuple

from pushscope.telemetry.assembler import Assembler
from pushscope.telemetry.diagnosis.case import Case, Usual
from pushscope.telemetry.diagnosis.hindsight import before_its_end
from pushscope.telemetry.diagnosis.meeting import is_unclaimed, waits_for_a_prefill
from pushscope.telemetry.diagnosis.model import WORST_FIRST, Diagnosis, Severity
from pushscope.telemetry.diagnosis.slow import MANY
from pushscope.telemetry.diagnosis.thresholds import Thresholds
from pushscope.telemetry.diagnosis.transfers import diagnose
from pushscope.telemetry.transfer import Outcome, Transfer

SHOWN_NS: Final = 30_000_000_000
"""What was wrong with a transfer that is over is told for so long."""
MAX_ENDED: Final = 1_000
_AGAIN_NS: Final = 1_000_000_000
MAX_NEW: Final = 1_000
MAX_AGAIN: Final = 200
"""In one look so many transfers are diagnosed for the first time, and again: a look is short, whatever happens."""
_NEAR_NS: Final = 120_000_000_000
"""Two legs of one request begin within this time."""

LastLoss = Callable[[str | None], int]
"""Engine -> when events of it were lost last; 0 if none were."""
_Place = tuple[str | None, int | None]
"""(P engine, tokens of the prompt): where two legs that miss each other would have met."""


class _Strangers(NamedTuple):
    """Those that a transfer may belong to, though their ids differ, and how many others may as well."""

    likeliest: tuple[Transfer, ...] = ()
    rivals: int = 0


class _Known(NamedTuple):
    """What was found for a transfer."""

    transfer: Transfer
    due_ns: int
    strangers: _Strangers
    found: tuple[Diagnosis, ...]


class Diagnoses:
    """What is wrong with the transfers of an assembler."""

    def __init__(self, assembler: Assembler, usual: Usual, thresholds: Thresholds, last_loss: LastLoss):
        self._assembler = assembler
        self._usual = usual
        self._thresholds = thresholds
        self._last_loss = last_loss
        self._known: dict[tuple[object, ...], _Known] = {}
        self._looked_before = False
        """Somebody who looks only once is told everything."""
        self._ended: deque[tuple[int, tuple[Diagnosis, ...]]] = deque(maxlen=MAX_ENDED)
        """(until when it is told, what was wrong) of transfers that were closed."""

    def closed(self, transfer: Transfer, now_ns: int) -> None:
        """A transfer is about to be followed no longer: what was wrong with it is told for a while."""
        if self._was_healthy(transfer):
            return
        known = self._known.pop(transfer.identity, None)
        found = self._look(transfer, now_ns, known.strangers if known else _Strangers())
        if lasting := tuple(d for d in found if d.severity is not Severity.INFO):
            self._ended.append((now_ns + SHOWN_NS, lasting))

    def of(self, transfer: Transfer, now_ns: int) -> tuple[Diagnosis, ...]:
        """What is wrong with one transfer that is followed, or about to be followed no longer, however long ago.

        If it was given up, and nothing that was seen explains why: what was wrong right before.
        """
        known = self._known.get(transfer.identity)
        case = self._case(transfer, now_ns, known.strangers if known else _Strangers())
        if case is None:
            return ()
        before = before_its_end(case)
        return diagnose(case) or (diagnose(before) if before else ())

    def now(self, followed: Sequence[Transfer], now_ns: int) -> tuple[Diagnosis, ...]:
        """Everything that is wrong now, the most severe first, then the oldest."""
        while self._ended and self._ended[0][0] < now_ns:
            self._ended.popleft()
        floor_ns = int(self._thresholds.floor_s * 1e9)
        alone = _Alone(followed, self._assembler.recent)
        known: dict[tuple[object, ...], _Known] = {}
        new: list[Transfer] = []
        due: list[tuple[int, int, Transfer]] = []
        for t in followed:
            if t.is_open and not _may_be_late(t, now_ns, floor_ns):
                continue
            identity = t.identity
            before = self._known.get(identity)
            if t.outcome is Outcome.DELIVERED and not (before and before.found):
                continue  # if it was slow, its closing tells
            if before is None:
                new.append(t)
                continue
            known[identity] = before
            if before.transfer is not t:
                due.append((0, len(due), t))  # something has happened to it
            elif before.due_ns <= now_ns:
                due.append((before.due_ns, len(due), t))
        for t in new[:MAX_NEW] if self._looked_before else new:
            known[t.identity] = self._again(t, now_ns, alone, None)
        for _, _, t in nsmallest(MAX_AGAIN, due):
            known[t.identity] = self._again(t, now_ns, alone, known[t.identity])
        self._known, self._looked_before = known, True
        return _worst_first(
            [*(entry.found for entry in known.values()), *(found for _, found in self._ended)]
        )

    def _again(self, t: Transfer, now_ns: int, alone: _Alone, before: _Known | None) -> _Known:
        strangers = alone.strangers_of(t)
        if not strangers.likeliest and before is not None and t.is_open:
            # P's leg may have been closed by now, long after its lease.
            expired = tuple(s for s in before.strangers.likeliest if s.outcome is Outcome.EXPIRED)
            strangers = _Strangers(expired, before.strangers.rivals)
        return _Known(t, now_ns + _AGAIN_NS, strangers, self._look(t, now_ns, strangers))

    def _look(self, t: Transfer, now_ns: int, strangers: _Strangers) -> tuple[Diagnosis, ...]:
        case = self._case(t, now_ns, strangers)
        if case is None:
            return ()
        over_ns = case.over_ns
        return diagnose(case) if over_ns is None or now_ns - over_ns <= SHOWN_NS else ()

    def _case(self, t: Transfer, now_ns: int, strangers: _Strangers) -> Case | None:
        sides = self._assembler.sides_of(t)
        if sides is None:
            return None
        now_ns = self._assembler.reach.known_until(t, now_ns)  # what could not be heard since is not missing
        loss_ns = max(self._last_loss(t.p_engine), self._last_loss(t.d_engine))
        return Case(
            t,
            sides.p,
            sides.d,
            sides.p_engine,
            sides.d_engine,
            now_ns,
            self._usual,
            self._thresholds,
            lost_events=loss_ns > t.opened_ns,
            taken_by=sides.taken_by,
            released_ns=sides.released_ns,
            others=sides.others,
            strangers=strangers.likeliest,
            rivals=strangers.rivals,
        )

    def _was_healthy(self, t: Transfer) -> bool:
        """Whether it was delivered, and nothing in it suggests that somebody had to wait, or that P failed."""
        return (
            t.outcome is Outcome.DELIVERED
            and not t.pairing
            and (t.exposed_ns or 0) < self._thresholds.floor_s * 1e9
            and (t.num_bytes is not None or len(t.sides) < 2)
            and (t.descriptors or 0) < MANY
            and not self._assembler.fell_short_at_p(t)
        )


class _Alone:
    """The transfers that lack one side, by where they would have met the other."""

    def __init__(self, followed: Iterable[Transfer], recent: Iterable[Transfer]):
        self._waiting: defaultdict[_Place, list[Transfer]] = defaultdict(list)
        self._unclaimed: defaultdict[_Place, list[Transfer]] = defaultdict(list)
        for t in followed:
            if waits_for_a_prefill(t):
                self._waiting[t.p_engine, t.num_tokens].append(t)
            elif is_unclaimed(t):
                self._unclaimed[t.p_engine, t.num_tokens].append(t)
        for t in recent:
            if t.outcome is Outcome.EXPIRED and is_unclaimed(t):
                self._unclaimed[t.p_engine, t.num_tokens].append(t)

    def strangers_of(self, t: Transfer) -> _Strangers:
        """The prefills that D may wait for, though their ids differ; or the D that a prefill must be meant for.

        None if the size is not known. A prefill that is one of several, or that several may wait for, is none's.
        """
        if t.num_tokens is None:
            return _Strangers()
        if waits_for_a_prefill(t):
            prefills = _near(t, self._unclaimed)
            return (
                _Strangers(prefills, len(_near(prefills[0], self._waiting)) - 1) if prefills else _Strangers()
            )
        if is_unclaimed(t):
            waiting = _near(t, self._waiting)
            if len(waiting) == 1 and len(_near(waiting[0], self._unclaimed)) == 1:
                return _Strangers(waiting)
        return _Strangers()


def _near(t: Transfer, others: Mapping[_Place, Sequence[Transfer]]) -> tuple[Transfer, ...]:
    """Those with another id that began at about the same time, where it would have met them; the nearest first."""
    near = [
        other
        for other in others.get((t.p_engine, t.num_tokens), ())
        if other.base_id != t.base_id and abs(other.opened_ns - t.opened_ns) < _NEAR_NS
    ]
    return tuple(sorted(near, key=lambda other: abs(other.opened_ns - t.opened_ns)))


def _may_be_late(t: Transfer, now_ns: int, floor_ns: int) -> bool:
    lease_is_over = t.lease_until_ns is not None and t.lease_until_ns <= now_ns
    return now_ns - t.since_ns >= floor_ns or lease_is_over or bool(t.error)


def _worst_first(of_each: Iterable[tuple[Diagnosis, ...]]) -> tuple[Diagnosis, ...]:
    """By severity, then by the age of the transfer's cause; of one transfer the cause stays first."""
    ranked = [
        ((WORST_FIRST.index(d.severity), found[0].since_ns, d.subject, d.attempt, place), d)
        for found in of_each
        for place, d in enumerate(found)
    ]
    return tuple(d for _, d in sorted(ranked, key=itemgetter(0)))
