"""What is slow, or looks failed and is not, between two engines: F1, F5, F6, E8."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

from pushscope.telemetry import events as ev
from pushscope.telemetry import units
from pushscope.telemetry.assembler import MAX_RECENT
from pushscope.telemetry.diagnosis.model import Diagnosis, Severity
from pushscope.telemetry.diagnosis.scene import Scene, counted, evidence, found, shown
from pushscope.telemetry.transfer import Outcome, Rank, Stage, Transfer, rank_name

MANY: Final = 10
"""No judgement on fewer transfers."""
LATEST: Final = 20
"""What is usual now is what the latest of a pair show."""
WORTH_NS: Final = 2_000_000
"""A prefill that waits less for its registration loses nothing by a router that sends one leg after the other."""
WINDOW_NS: Final = 10_000_000_000
LARGE_BYTES: Final = 1 << 20
LONG_NS: Final = 500_000_000
"""A wire stage so long is little else than the wire: D sees what has arrived at its next step."""
_OF_THE_WRITER: Final = (Stage.DESCRIPTORS, Stage.SUBMIT)

Pair = tuple[str, str]
"""(P engine, D engine)."""


def _by_pair(scene: Scene, transfers: Iterable[Transfer]) -> dict[Pair, list[Transfer]]:
    """The latest of each pair of engines of which one at least is observed, the newest first."""
    pairs: dict[Pair, list[Transfer]] = {}
    for t in sorted(transfers, key=lambda t: t.opened_ns, reverse=True):
        if t.p_engine is None or t.d_engine is None or t.mode != "push":
            continue
        of_pair = pairs.setdefault((t.p_engine, t.d_engine), [])
        if len(of_pair) < LATEST:
            of_pair.append(t)
    return {pair: found for pair, found in pairs.items() if scene.stories.keys() & set(pair)}


def _longest(transfer: Transfer, stage: Stage) -> int:
    """How long a stage took on its slowest rank, in nanoseconds; 0 if it was not seen."""
    return max((s.end_ns - s.start_ns for s in transfer.stages if s.stage is stage and s.end_ns), default=0)


def _median(values: Iterable[int]) -> int:
    return int(units.percentile(values, 50) or 0)


# -- the router -----------------------------------------------------------------------------------------


def serial_routers(scene: Scene) -> Iterator[Diagnosis]:
    """F1: D has the request only when P is done with it, so that push overlaps nothing.

    That the registration comes late is not enough: D may have had the request in time, and been busy.
    """
    matched = (t for t in chain(scene.followed, scene.closed) if t.order)
    for (p, d), latest in _by_pair(scene, matched).items():
        late = [t for t in latest if t.order == "blocks first" and t.late_decode is not False]
        waits = [_longest(t, Stage.RENDEZVOUS) for t in late]
        if (
            len(latest) < MANY
            or len(late) < scene.thresholds.serial_share * len(latest)
            or _median(waits) < WORTH_NS
            or not scene.stands(latest[0].opened_ns)
        ):
            continue
        seen = all(t.late_decode for t in late)
        of_d, wait = scene.name(d), units.duration(_median(waits) / 1e9)
        if seen:
            why = f"{of_d} had the request only then: the router sends the decode leg when the prefill leg is done"
        else:
            why = (
                f"either the router waits for the prefill leg, or {of_d}, which is not observed, admits late"
            )
        yield found(
            "serial_router",
            p,
            f"{of_d}'s registration came after {scene.name(p)}'s finished prefill in {len(late)} of the last "
            f"{len(latest)} transfers, by {wait} (median); {why}. Push overlaps nothing then.",
            severity=Severity.WARNING if seen else Severity.INFO,
            since_ns=latest[-1].opened_ns,
            certain=seen,
        )


# -- the writer -----------------------------------------------------------------------------------------


def busy_writers(scene: Scene) -> Iterator[Diagnosis]:
    """F5: one thread of a P rank does registrations, matching and posting for all requests."""
    begin_ns = scene.now_ns - WINDOW_NS
    if len(scene.closed) >= MAX_RECENT:  # what ended earlier is not remembered
        begin_ns = max(begin_ns, min(t.closed_ns or 0 for t in scene.closed))
    if scene.now_ns - begin_ns < WINDOW_NS // 10:
        return
    work: dict[tuple[str, Rank], list[tuple[int, int]]] = {}
    handoffs: dict[str, list[int]] = {}
    for t in chain(scene.followed, scene.closed):
        if t.mode != "push" or t.p_engine is None or not _was_at_work(t, begin_ns):
            continue
        for s in t.stages:
            if s.stage in _OF_THE_WRITER and s.rank is not None:
                span = (
                    max(begin_ns, s.start_ns),
                    scene.now_ns if s.end_ns is None and t.is_open else s.end_ns or 0,
                )
                work.setdefault((t.p_engine, s.rank), []).append(span)
            elif s.stage is Stage.HANDOFF and s.end_ns:
                handoffs.setdefault(t.p_engine, []).append(s.end_ns - s.start_ns)
    for (engine, rank), spans in work.items():
        share = _covered(spans) / (scene.now_ns - begin_ns)
        if share < scene.thresholds.busy_share or engine not in scene.stories:
            continue
        wait = units.duration(_median(handoffs.get(engine, [0])) / 1e9)
        yield found(
            "writer_busy",
            engine,
            f"{scene.name(engine)}'s push writer ({rank_name(rank)}) was busy for {units.share(share)} of the last "
            f"{scene.lasts(begin_ns)} with descriptors and posting; a finished prefill waits {wait} (median) until it "
            f"turns to it.",
            since_ns=begin_ns,
        )


def _was_at_work(transfer: Transfer, begin_ns: int) -> bool:
    """Whether a writer can have worked on it since then: a quick look, as there may be many."""
    return transfer.outcome is Outcome.MOVING or (transfer.closed_ns or 0) >= begin_ns


def _covered(spans: list[tuple[int, int]]) -> int:
    """How much of the time lies in one of the spans at least."""
    covered, reached = 0, 0
    for begin, end in sorted(spans):
        covered += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return covered


# -- the link -------------------------------------------------------------------------------------------


def slow_links(scene: Scene) -> Iterator[Diagnosis]:
    """F6: large transfers between two engines take long, by any measure or by that of the same P's others."""
    delivered = (
        t
        for t in chain(scene.followed, scene.closed)
        if t.outcome is Outcome.DELIVERED and (t.num_bytes or 0) >= LARGE_BYTES and _longest(t, Stage.WIRE)
    )
    pairs = {pair: latest for pair, latest in _by_pair(scene, delivered).items() if len(latest) >= MANY // 2}
    rates = {pair: _rate(latest) for pair, latest in pairs.items()}
    for (p, d), latest in pairs.items():
        rate, wire_ns = rates[p, d], _median(_longest(t, Stage.WIRE) for t in latest)
        best = max((r for (p_too, other), r in rates.items() if p_too == p and other != d), default=0)
        slow, slower = rate < scene.thresholds.slow_bytes_per_s, rate * scene.thresholds.times_usual < best
        if wire_ns < LONG_NS or not (slow or slower) or not scene.stands(latest[0].closed_ns or 0):
            continue
        beside = f", {units.byte_rate(best)} to another D" if slower else ""
        yield found(
            "slow_link",
            p,
            f"From {scene.name(p)} to {scene.name(d)} blocks move at {units.byte_rate(rate)}{beside}: the last "
            f"{len(latest)} large transfers were on the wire for {units.duration(wire_ns / 1e9)} (median).",
            since_ns=latest[-1].opened_ns,
        )


def _rate(transfers: Sequence[Transfer]) -> int:
    """The median of bytes per second."""
    return _median(int((t.num_bytes or 0) * 1e9 / _longest(t, Stage.WIRE)) for t in transfers)


# -- NIXL -----------------------------------------------------------------------------------------------


def missing_telemetry(scene: Scene) -> Iterator[Diagnosis]:
    """E8: NIXL moves the data and has no figures for it; vLLM counts the transfer as failed."""
    for story, instance in scene.alive:
        failed = instance.all(ev.TransferFailed)
        if not failed or not scene.stands(failed[-1].t):
            continue
        pull = story.origin.mode == "pull"
        result = "vLLM fails their requests" if pull else "it counts them as failed, and the blocks have come"
        yield found(
            "telemetry_missing",
            story.engine_id,
            f"{scene.name(story.engine_id)}'s NIXL has no telemetry. {counted(len(failed), 'transfer')} of late, the "
            f"last {scene.ago(failed[-1].t)}, could not be measured: {result} ({shown(failed[-1].error)}).",
            severity=Severity.ERROR if pull else Severity.WARNING,
            since_ns=failed[0].t,
            seen=[evidence(story, instance, e.t, f"{e.request_id}: {shown(e.error)}") for e in failed[-3:]],
        )
