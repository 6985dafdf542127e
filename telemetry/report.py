"""What a set of transfers amounts to: where their time went, per stage and per rank, and what was not seen.

``summarize`` is a pure fold of transfers into a frozen ``Report``, ``report_json`` writes it down; the tables
are in ``pushscope.tui.report_view``.

*Exposed* is what the first token waited for: the window from *blocks staged* at P to *decode scheduled* at D,
known only for a transfer that was observed on both sides up to its end. The part of a stage that lies in its
transfer's window is exposed, the rest hidden; a stage of a transfer without a window is neither
(``unsplit_s``). Ranks work side by side, so the exposed seconds of a stage are rank-seconds and may add up to
more than the window; the *critical path* is disjoint, and ``path_share`` says which part of all exposed time
went into a stage.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from pushscope.telemetry import units
from pushscope.telemetry.transfer import PULL_STAGES, Outcome, Rank, Stage, StageTime, Transfer

Window = tuple[int, int]
"""[blocks staged, decode scheduled], in nanoseconds."""

_PUSH_NEEDS: dict[Stage, str] = {
    Stage.REGISTRATION: "D",
    Stage.FLIGHT: "PD",
    Stage.HANDOFF: "P",
    Stage.RENDEZVOUS: "P",
    Stage.DESCRIPTORS: "P",
    Stage.SUBMIT: "P",
    Stage.WIRE: "PD",
    Stage.NOTIFICATION: "D",
    Stage.WAKE: "D",
}
_PULL_NEEDS: dict[Stage, str] = {**dict.fromkeys(PULL_STAGES, "D"), Stage.RELAY: "PD"}
"""Which sides must be observed to see a stage. A handshake is part of a transfer only at the first contact of two
engines, so it is never missed."""


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """How a set of times is spread: nearest-rank percentiles, in seconds; None if there are none."""

    count: int = 0
    p50_s: float | None = None
    p90_s: float | None = None
    p99_s: float | None = None
    max_s: float | None = None
    total_s: float = 0.0


class StageReport(msgspec.Struct, frozen=True, kw_only=True):
    """One stage over all transfers; each rank's interval counts by itself."""

    stage: Stage
    upper_bound: bool = False
    """The times are upper bounds (``wire`` seen by P alone) and are kept apart from the measured ones."""
    times: Spread
    exposed_s: float = 0.0
    hidden_s: float = 0.0
    exposed_share: float | None = None
    """``exposed_s`` as a part of ``exposed_s + hidden_s``."""
    unsplit_s: float = 0.0
    """Time of transfers whose window is not known (one side only, or not delivered)."""
    path_s: float = 0.0
    """Exposed seconds of this stage on the critical paths."""
    path_share: float | None = None
    """``path_s`` as a part of all exposed seconds."""


class RankReport(msgspec.Struct, frozen=True, kw_only=True):
    """The stages of one pair of ranks. A stage that only one side takes part in has no peer rank."""

    p_engine: str | None
    d_engine: str | None
    rank: Rank | None
    peer_rank: Rank | None
    stages: tuple[StageReport, ...]


class Unobserved(msgspec.Struct, frozen=True, kw_only=True):
    """A stage that ``transfers`` delivered transfers must have had, but that was not seen, and why."""

    stage: Stage
    transfers: int
    reason: str


class AttemptReport(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt at a request that was sent more than once."""

    attempt: int
    p_attempt: int | None
    outcome: Outcome
    pairing: str = ""


class Retried(msgspec.Struct, frozen=True, kw_only=True):
    """A request that was sent more than once."""

    base_id: str
    attempts: tuple[AttemptReport, ...]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that ``pushscope report`` says."""

    transfers: int = 0
    open: int = 0
    """Of those, not ended yet; their open stages are not counted."""
    retries: int = 0
    """Second and later attempts."""
    retried: tuple[Retried, ...] = ()
    """The requests that have them, in the order of their first attempt."""
    mispaired: int = 0
    """Transfers that P paired otherwise than their legs were sent: across attempts, or not alike on all ranks."""
    tentative: int = 0
    """Paired by their base id only."""
    outcomes: dict[str, int] = {}
    orders: dict[str, int] = {}
    """Matched transfers by rendezvous order: ``registration first``, ``blocks first``."""
    sides: dict[str, int] = {}
    """Transfers by the sides that were observed: ``P and D``, ``P only``, ``D only``, ``none``."""
    exposed: Spread = Spread()
    hidden: Spread = Spread()
    num_bytes: int = 0
    """Of delivered transfers, as far as their size is known (D alone doesn't know it)."""
    descriptors: int = 0
    """Before NIXL merged neighbours, over the transfers for which both numbers are known."""
    descriptors_merged: int = 0
    duration_s: float | None = None
    """From the first transfer opened to the last thing seen of any; None without transfers."""
    delivered_per_s: float | None = None
    bytes_per_s: float | None = None
    stages: tuple[StageReport, ...] = ()
    ranks: tuple[RankReport, ...] = ()
    unobserved: tuple[Unobserved, ...] = ()
    notices: tuple[str, ...] = ()
    """What the reader of this report must know: an engine gone, one side only, a recording damaged ..."""


def summarize(transfers: Iterable[Transfer]) -> Report:
    """Fold transfers, ended and open, into a report."""
    everything = tuple(transfers)
    if not everything:
        return Report()
    delivered = [transfer for transfer in everything if transfer.outcome is Outcome.DELIVERED]
    num_bytes = sum(transfer.num_bytes or 0 for transfer in delivered)
    merged = [
        (t.descriptors, t.descriptors_merged)
        for t in everything
        if t.descriptors is not None and t.descriptors_merged is not None
    ]
    first_ns = min(transfer.opened_ns for transfer in everything)
    duration_s = (max(_last_seen_ns(transfer) for transfer in everything) - first_ns) / 1e9
    exposed = [t.exposed_ns / 1e9 for t in everything if t.exposed_ns is not None]
    return Report(
        transfers=len(everything),
        open=sum(transfer.is_open for transfer in everything),
        retries=sum(transfer.attempt > 1 for transfer in everything),
        retried=_retried(everything),
        mispaired=sum(bool(transfer.pairing) for transfer in everything),
        tentative=sum(transfer.tentative for transfer in everything),
        outcomes=_tally(transfer.outcome.value for transfer in everything),
        orders=_tally(transfer.order for transfer in everything if transfer.order),
        sides=_tally(_sides(transfer) for transfer in everything),
        exposed=spread_of(exposed),
        hidden=spread_of([t.hidden_ns / 1e9 for t in everything if t.hidden_ns is not None]),
        num_bytes=num_bytes,
        descriptors=sum(before for before, _ in merged),
        descriptors_merged=sum(after for _, after in merged),
        duration_s=duration_s,
        delivered_per_s=len(delivered) / duration_s if duration_s > 0 else None,
        bytes_per_s=num_bytes / duration_s if duration_s > 0 else None,
        stages=_stage_reports(everything, sum(exposed)),
        ranks=_rank_reports(everything),
        unobserved=_unobserved(delivered),
    )


def _retried(transfers: Sequence[Transfer]) -> tuple[Retried, ...]:
    """The requests that were tried more than once, with all of their attempts that were seen."""
    again = {t.base_id for t in transfers if max(t.attempt, t.p_attempt or 0) > 1}
    attempts: dict[str, list[AttemptReport]] = {}
    for t in sorted(transfers, key=lambda t: (t.opened_ns, t.attempt)):
        if t.base_id in again:
            seen = AttemptReport(
                attempt=t.attempt, p_attempt=t.p_attempt, outcome=t.outcome, pairing=t.pairing
            )
            attempts.setdefault(t.base_id, []).append(seen)
    return tuple(Retried(base_id=base, attempts=tuple(seen)) for base, seen in attempts.items())


def exposed_window(transfer: Transfer) -> Window | None:
    """[blocks staged, decode scheduled] of a transfer, or None if it is not known."""
    if transfer.exposed_ns is None:
        return None
    ends = [s.end_ns for s in transfer.stages if s.stage is Stage.WAKE and s.end_ns is not None]
    if not ends:
        return None
    return max(ends) - transfer.exposed_ns, max(ends)


def split(stage_time: StageTime, window: Window) -> tuple[int, int]:
    """The (exposed, hidden) nanoseconds of an ended stage."""
    if stage_time.end_ns is None:
        raise ValueError(f"stage {stage_time.stage} is still open: it cannot be split yet")
    overlap = min(stage_time.end_ns, window[1]) - max(stage_time.start_ns, window[0])
    exposed = max(0, overlap)
    return exposed, stage_time.end_ns - stage_time.start_ns - exposed


def report_json(report: Report) -> bytes:
    """The report as JSON: the fields of ``Report``, times in seconds, maps sorted by key."""
    return msgspec.json.encode(report, order="deterministic")


# --- the fold ---------------------------------------------------------------------------------------------


class _StageSum:
    """Collects the intervals of one stage."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.exposed_ns = self.hidden_ns = self.unsplit_ns = self.path_ns = 0

    def add(self, stage_time: StageTime, window: Window | None) -> None:
        if stage_time.end_ns is None:
            return
        self.seconds.append((stage_time.end_ns - stage_time.start_ns) / 1e9)
        if window is None:
            self.unsplit_ns += stage_time.end_ns - stage_time.start_ns
            return
        exposed, hidden = split(stage_time, window)
        self.exposed_ns += exposed
        self.hidden_ns += hidden

    def report(self, key: _StageKey, exposed_total_s: float | None) -> StageReport:
        known_ns = self.exposed_ns + self.hidden_ns
        path_s = self.path_ns / 1e9
        return StageReport(
            stage=key[0],
            upper_bound=key[1],
            times=spread_of(self.seconds),
            exposed_s=self.exposed_ns / 1e9,
            hidden_s=self.hidden_ns / 1e9,
            exposed_share=self.exposed_ns / known_ns if known_ns else None,
            unsplit_s=self.unsplit_ns / 1e9,
            path_s=path_s,
            path_share=path_s / exposed_total_s if exposed_total_s else None,
        )


_StageKey = tuple[Stage, bool]
_StageSums = defaultdict[_StageKey, _StageSum]
_STAGE_ORDER = {stage: position for position, stage in enumerate(Stage)}


def _in_order(sums: _StageSums, exposed_total_s: float | None) -> tuple[StageReport, ...]:
    keys = sorted(sums, key=lambda key: (_STAGE_ORDER[key[0]], key[1]))
    return tuple(sums[key].report(key, exposed_total_s) for key in keys if sums[key].seconds)


def _stage_reports(transfers: Sequence[Transfer], exposed_total_s: float) -> tuple[StageReport, ...]:
    sums: _StageSums = defaultdict(_StageSum)
    for transfer in transfers:
        window = exposed_window(transfer)
        for stage_time in transfer.stages:
            sums[stage_time.stage, stage_time.upper_bound].add(stage_time, window)
        if window is not None:
            for piece in transfer.path:
                if piece.end_ns is not None:
                    sums[piece.stage, piece.upper_bound].path_ns += split(piece, window)[0]
    return _in_order(sums, exposed_total_s)


def _rank_reports(transfers: Sequence[Transfer]) -> tuple[RankReport, ...]:
    ranks: dict[tuple[str, str, Rank, Rank], _StageSums] = {}
    nobody: Rank = (-1, -1)  # sorts before every rank
    for transfer in transfers:
        window = exposed_window(transfer)
        for stage_time in transfer.stages:
            if stage_time.rank is None and stage_time.peer_rank is None:
                continue
            key = (
                transfer.p_engine or "",
                transfer.d_engine or "",
                stage_time.rank or nobody,
                stage_time.peer_rank or nobody,
            )
            sums = ranks.setdefault(key, defaultdict(_StageSum))
            sums[stage_time.stage, stage_time.upper_bound].add(stage_time, window)
    return tuple(
        RankReport(
            p_engine=p_engine or None,
            d_engine=d_engine or None,
            rank=None if rank == nobody else rank,
            peer_rank=None if peer == nobody else peer,
            stages=stages,
        )
        for (p_engine, d_engine, rank, peer), sums in sorted(ranks.items())
        if (stages := _in_order(sums, None))
    )


def _unobserved(transfers: Sequence[Transfer]) -> tuple[Unobserved, ...]:
    missing: Counter[tuple[Stage, str]] = Counter()
    for transfer in transfers:
        missing.update(_missing(transfer))
    ordered = sorted(missing, key=lambda key: (_STAGE_ORDER[key[0]], key[1]))
    return tuple(Unobserved(stage=s, reason=r, transfers=missing[s, r]) for s, r in ordered)


def _missing(transfer: Transfer) -> Iterator[tuple[Stage, str]]:
    seen = {stage_time.stage for stage_time in transfer.stages}
    needs = _PULL_NEEDS if transfer.mode == "pull" else _PUSH_NEEDS
    for stage in needs.keys() - seen - {Stage.HANDSHAKE}:
        absent = sorted(set(needs[stage]) - set(transfer.sides))
        if absent:
            yield stage, f"{' and '.join(absent)} not observed"
        else:
            yield stage, "observed, but not seen: events lost, or the seam is off"


def _last_seen_ns(transfer: Transfer) -> int:
    ends = [s.end_ns if s.end_ns is not None else s.start_ns for s in transfer.stages]
    return max(transfer.opened_ns, transfer.since_ns, transfer.closed_ns or 0, *ends)


def _sides(transfer: Transfer) -> str:
    sides = sorted(transfer.sides, reverse=True)
    return " and ".join(sides) if len(sides) > 1 else f"{sides[0]} only" if sides else "none"


def spread_of(values: Iterable[float]) -> Spread:
    """How some times, in seconds, are spread."""
    seconds = sorted(values)
    return Spread(
        count=len(seconds),
        p50_s=units.percentile(seconds, 50),
        p90_s=units.percentile(seconds, 90),
        p99_s=units.percentile(seconds, 99),
        max_s=units.percentile(seconds, 100),
        total_s=sum(seconds),
    )


def _tally(words: Iterable[str]) -> dict[str, int]:
    return dict(Counter(words).most_common())
