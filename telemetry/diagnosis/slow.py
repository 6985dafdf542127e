"""What was slow: of a transfer that was delivered, or is still on its way."""

from __future__ import annotations

from typing import Final

from pushscope.telemetry.diagnosis.case import Case, Rule, span
from pushscope.telemetry.diagnosis.model import Diagnosis
from pushscope.telemetry.transfer import Rank, Stage, StageTime
from pushscope.telemetry.units import byte_rate, count, share, size

MANY: Final = 10_000
"""So many descriptors take NIXL tens of milliseconds to post."""
_POSTING_NS: Final = 200_000_000
"""vLLM too calls a submission slow from here on."""
_OF_IT: Final = 0.2
_TRANSFER: Final = (Stage.DESCRIPTORS, Stage.SUBMIT, Stage.WIRE, Stage.NOTIFICATION)


def posting(case: Case) -> Diagnosis | None:
    """Building and posting tens of thousands of descriptors took long, and longer than writing them."""
    t = case.transfer
    if (t.descriptors or 0) < MANY:
        return None
    by_rank: dict[tuple[Rank | None, Rank | None], int] = {}
    for s in t.stages:
        if s.stage in (Stage.DESCRIPTORS, Stage.SUBMIT):
            key = (s.rank, s.peer_rank)
            by_rank[key] = by_rank.get(key, 0) + (s.end_ns or case.now_ns) - s.start_ns
    posting_ns = max(by_rank.values(), default=0)
    wire_ns = max((_length(case, s) for s in t.stages if s.stage is Stage.WIRE), default=0)
    if posting_ns < _POSTING_NS or posting_ns < wire_ns / 2:
        return None
    each = f" of {size((t.num_bytes or 0) / (t.descriptors or 1))}" if t.num_bytes else ""
    sentence = (
        f"{count(t.descriptors)} descriptors{each} took {span(posting_ns)} to build and post, before and beside "
        f"{span(wire_ns)} on the wire."
    )
    since_ns = min(s.start_ns for s in t.stages if s.stage is Stage.DESCRIPTORS)
    return case.found("many_descriptors", sentence, since_ns)


def link(case: Case) -> Diagnosis | None:
    """The wire took many times what it usually takes between these two."""
    t = case.transfer
    usual_ns = case.usual(t.p_engine, t.d_engine, Stage.WIRE)
    wires = [s for s in t.stages if s.stage is Stage.WIRE and s.end_ns is not None]
    if not case.delivered or usual_ns is None or not wires:
        return None
    slowest = max(wires, key=lambda s: _length(case, s))
    wire_ns = _length(case, slowest)
    if wire_ns < case.late_ns(Stage.WIRE):
        return None
    speed = f" ({byte_rate(t.num_bytes / (wire_ns / 1e9))})" if t.num_bytes else ""
    sentence = f"The blocks took {span(wire_ns)} on the wire{speed}, where {span(usual_ns)} is usual between these two."
    return case.found("slow_link", sentence, slowest.start_ns)


def handover(case: Case) -> Diagnosis | None:
    """The first token waited long, and the transfer was the least of it."""
    t = case.transfer
    if not case.delivered or not t.path or t.exposed_ns is None or t.exposed_ns < case.late_ns():
        return None
    moving_ns = sum(_length(case, s) for s in t.path if s.stage in _TRANSFER)
    if moving_ns > _OF_IT * t.exposed_ns:
        return None
    longest = max(t.path, key=lambda s: _length(case, s))
    waited = f", where {longest.waited}" if longest.waited else ""
    part = share(_length(case, longest) / t.exposed_ns)
    sentence = (
        f"Of {span(t.exposed_ns)} handover {span(moving_ns)} were transfer; {part} went by in the stage "
        f"{longest.stage.value}{waited}."
    )
    return case.found("handover_slow", sentence, t.path[0].start_ns)


def _length(case: Case, stage: StageTime) -> int:
    return (stage.end_ns or case.now_ns) - stage.start_ns


RULES: Final[tuple[Rule, ...]] = (posting, link, handover)
