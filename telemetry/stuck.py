"""What is stuck, as a list: worst and oldest first, whom it is about, and whether one can tell at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from pushscope.telemetry.diagnosis.catalogue import CATALOGUE
from pushscope.telemetry.diagnosis.model import WORST_FIRST, Diagnosis, Severity
from pushscope.telemetry.recorder import SAY_AGAIN_NS
from pushscope.telemetry.snapshot import Engine, Snapshot
from pushscope.telemetry.transfer import Rank, Transfer
from pushscope.telemetry.units import count

LOSS_HEALS_NS: Final = 2 * SAY_AGAIN_NS
"""What is open is said again: so long after events were lost, what is stuck is known again."""
MAX_ALIKE: Final = 5
"""So many rows that differ in the request only are listed one by one: a dead D leaves hundreds."""


class Verdict(StrEnum):
    """Whether something is stuck."""

    NONE = "none"
    SOME = "some"
    UNKNOWN = "unknown"
    """Nothing was found, but something could be: see ``Stuck.unknown``."""


EXIT_STATUS: Final = {Verdict.NONE: 0, Verdict.SOME: 1, Verdict.UNKNOWN: 2}


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One diagnosis, with the transfer that it is about; an engine's has none."""

    diagnosis: Diagnosis
    transfer: Transfer | None = None
    """None too if the snapshot does not show the transfer any more."""

    @property
    def key(self) -> tuple[str, str, int]:
        """What stays the same as long as it lasts."""
        return self.diagnosis.code, self.diagnosis.subject, self.diagnosis.attempt


class Alike(msgspec.Struct, frozen=True):
    """Rows that differ in the request only: of one cause, equally bad, between the same engines."""

    rows: tuple[Row, ...]
    """The oldest first."""

    @property
    def num_blocks(self) -> int:
        """Of all their transfers, as far as they are known."""
        return sum(row.transfer.num_blocks or 0 for row in self.rows if row.transfer)

    @property
    def num_tokens(self) -> int:
        """Of all their prompts, as far as they are known."""
        return sum(row.transfer.num_tokens or 0 for row in self.rows if row.transfer)


class Stuck(msgspec.Struct, frozen=True, kw_only=True):
    """All that is stuck at one moment."""

    verdict: Verdict
    rows: tuple[Row, ...] = ()
    milder: int = 0
    """Diagnoses that are less severe than what was asked for."""
    unknown: tuple[str, ...] = ()
    """Why something may be stuck though it isn't seen."""


def stuck_in(snapshot: Snapshot, least: Severity = Severity.WARNING, *, live: bool = True) -> Stuck:
    """What is wrong in a snapshot, no milder than ``least``. ``live``: engines are looked at now, not recorded."""
    wanted = WORST_FIRST[: WORST_FIRST.index(least) + 1]
    all_rows = rows_of(snapshot)
    rows = tuple(row for row in all_rows if row.diagnosis.severity in wanted)
    unknown = tuple(_unknown(snapshot, live=live))
    verdict = Verdict.SOME if rows else Verdict.UNKNOWN if unknown else Verdict.NONE
    return Stuck(verdict=verdict, rows=rows, milder=len(all_rows) - len(rows), unknown=unknown)


def rows_of(snapshot: Snapshot) -> tuple[Row, ...]:
    """Every diagnosis of a snapshot with its transfer, worst and oldest first."""
    if not snapshot.diagnoses:
        return ()
    subjects = {d.subject for d in snapshot.diagnoses if d.attempt}
    transfers = {
        (t.base_id, t.attempt): t
        for shown in (snapshot.recent, snapshot.waiting, snapshot.in_flight)
        for t in shown
        if t.base_id in subjects
    }
    return tuple(
        Row(diagnosis=d, transfer=transfers.get((d.subject, d.attempt)))
        for d in worst_first(causes(snapshot.diagnoses))
    )


def folded(rows: Sequence[Row], at_most: int = MAX_ALIKE) -> tuple[Row | Alike, ...]:
    """The rows in their order, but more than ``at_most`` that differ in the request only as one, where the first is."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(_kind(row), []).append(row)
    return tuple(
        row if len(group := groups[_kind(row)]) <= at_most else Alike(tuple(group))
        for row in rows
        if len(groups[_kind(row)]) <= at_most or groups[_kind(row)][0] is row
    )


def _kind(row: Row) -> tuple[object, ...]:
    between = (row.transfer.p_engine, row.transfer.d_engine) if row.transfer else ()
    about = "" if row.diagnosis.attempt else row.diagnosis.subject
    return row.diagnosis.code, row.diagnosis.severity, about, between


def causes(diagnoses: Sequence[Diagnosis]) -> list[Diagnosis]:
    """Without those of transfers that an engine's diagnosis, no milder, counts among its victims.

    What may have put wrong data into a request is always said of that request.
    """
    of_engines = [d for d in diagnoses if not d.attempt]
    worst: dict[tuple[str, int], int] = {}
    for d in of_engines:
        for victim in d.costs:
            worst[victim] = min(WORST_FIRST.index(d.severity), worst.get(victim, len(WORST_FIRST)))

    def is_told(d: Diagnosis) -> bool:
        entry = CATALOGUE.get(d.code)
        wrong_data = entry is not None and any(row.startswith("C") for row in entry.rows)
        return not wrong_data and worst.get((d.subject, d.attempt), len(WORST_FIRST)) <= WORST_FIRST.index(
            d.severity
        )

    return [d for d in diagnoses if not (d.attempt and is_told(d))]


def worst_first(diagnoses: Iterable[Diagnosis]) -> list[Diagnosis]:
    """The order of every list of diagnoses: the worst, and of equally bad ones the oldest."""
    return sorted(
        diagnoses, key=lambda d: (WORST_FIRST.index(d.severity), d.since_ns, d.code, d.subject, d.attempt)
    )


class Change(msgspec.Struct, frozen=True):
    """A diagnosis that was not there before, or is no longer."""

    begins: bool
    row: Row


def changes(before: Sequence[Row], after: Sequence[Row]) -> tuple[Change, ...]:
    """What became different: first what is over, then what is new."""
    was, now = {row.key for row in before}, {row.key for row in after}
    over = (Change(False, row) for row in before if row.key not in now)
    new = (Change(True, row) for row in after if row.key not in was)
    return (*over, *new)


def tally(diagnoses: Iterable[Diagnosis]) -> str:
    """``2 errors, 1 warning``; empty if there are none."""
    numbers = Counter(diagnosis.severity for diagnosis in diagnoses)
    words = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "to know"}
    return ", ".join(
        f"{count(n)} {words[level]}{'s' if n > 1 and level is not Severity.INFO else ''}"
        for level in WORST_FIRST
        if (n := numbers[level])
    )


# -- as JSON -----------------------------------------------------------------------------------------


class _Evidence(msgspec.Struct, frozen=True):
    unix_s: float
    engine: str
    rank: Rank | None
    what: str


class _Told(msgspec.Struct, frozen=True, kw_only=True):
    """A diagnosis for a program: public times are seconds, engines are ids."""

    severity: Severity
    code: str
    subject: str
    attempt: int
    p_engine: str | None
    p_request: str | None
    d_engine: str | None
    d_request: str | None
    since_unix_s: float
    since_s: float
    certain: bool
    sentence: str
    evidence: tuple[_Evidence, ...]
    remedy: str
    costs: tuple[tuple[str, int], ...]
    runbook: str


class _Document(msgspec.Struct, frozen=True, kw_only=True):
    taken_unix_s: float
    source: str
    verdict: Verdict
    diagnoses: tuple[_Told, ...]
    milder: int
    unknown: tuple[str, ...]
    notices: tuple[str, ...]


class _ChangeLine(msgspec.Struct, frozen=True, kw_only=True):
    taken_unix_s: float
    change: str
    diagnosis: _Told


def stuck_json(stuck: Stuck, snapshot: Snapshot) -> bytes:
    """All of it as one line of JSON. Ids stand in it as they were recorded."""
    return msgspec.json.encode(
        _Document(
            taken_unix_s=snapshot.taken_unix_s,
            source=snapshot.source,
            verdict=stuck.verdict,
            diagnoses=tuple(_told(row, snapshot) for row in stuck.rows),
            milder=stuck.milder,
            unknown=stuck.unknown,
            notices=snapshot.notices,
        )
    )


def change_json(change: Change, snapshot: Snapshot) -> bytes:
    """A change as one line of JSON: ``begins`` or ``clears``, and the diagnosis."""
    words = "begins" if change.begins else "clears"
    told = _told(change.row, snapshot)
    return msgspec.json.encode(_ChangeLine(taken_unix_s=snapshot.taken_unix_s, change=words, diagnosis=told))


def _told(row: Row, snapshot: Snapshot) -> _Told:
    diagnosis, transfer = row.diagnosis, row.transfer
    return _Told(
        severity=diagnosis.severity,
        code=diagnosis.code,
        subject=diagnosis.subject,
        attempt=diagnosis.attempt,
        p_engine=transfer.p_engine if transfer else None,
        p_request=transfer.p_request if transfer else None,
        d_engine=transfer.d_engine if transfer else None,
        d_request=transfer.d_request if transfer else None,
        since_unix_s=snapshot.unix_s(diagnosis.since_ns),
        since_s=max(0, snapshot.taken_ns - diagnosis.since_ns) / 1e9,
        certain=diagnosis.certain,
        sentence=diagnosis.sentence,
        evidence=tuple(
            _Evidence(snapshot.unix_s(e.t_ns), e.engine, e.rank, e.what) for e in diagnosis.evidence
        ),
        remedy=diagnosis.remedy,
        costs=diagnosis.costs,
        runbook=diagnosis.runbook,
    )


# -- whether one can tell ----------------------------------------------------------------------------


def _unknown(snapshot: Snapshot, *, live: bool) -> Iterator[str]:
    yield from snapshot.unread
    if not snapshot.engines:
        yield f"no engine records in {snapshot.source}"
    elif live and not any(process.alive for engine in snapshot.engines for process in engine.processes):
        yield f"no engine that records in {snapshot.source} is alive"
    for engine in snapshot.engines:
        if not all(p.recording for p in engine.processes if not p.replaced):
            yield f"{engine.name}: recording is switched off, what happens now is not seen"
        if (lost_ns := _lost_ns(engine)) is not None and snapshot.taken_ns - lost_ns < LOSS_HEALS_NS:
            yield f"{engine.name}: events were lost in the last {LOSS_HEALS_NS / 1e9:.0f} s; look again after that"


def _lost_ns(engine: Engine) -> int | None:
    return max((p.lost_ns for p in engine.processes if p.lost_ns is not None), default=None)
