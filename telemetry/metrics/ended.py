"""A transfer that has ended, counted at one of its sides."""

from __future__ import annotations

from typing import Final

from pushscope.telemetry.metrics import catalogue as m
from pushscope.telemetry.metrics.figures import EngineFigures, Seen, Series
from pushscope.telemetry.transfer import (
    NOTHING_MOVED,
    PULL_STAGES,
    PUSH_STAGES,
    Outcome,
    Stage,
    StageTime,
    Transfer,
    rank_name,
)

_OF_P: Final = frozenset({Stage.HANDOFF, Stage.RENDEZVOUS, Stage.HANDSHAKE, Stage.DESCRIPTORS, Stage.SUBMIT})
"""Push: the stages in which P is at work. All others, and in pull mode all, are D's."""
_WAITED: Final = {"P waited for D": ("P",), "D waited for P": ("D",)}
_NAMES: Final = {(0, tp): rank_name((0, tp)) for tp in range(64)}


def stages_at(part: str, mode: str) -> frozenset[Stage]:
    """The stages that belong to a side, where both sides are observed."""
    if mode == "pull":
        return frozenset(PULL_STAGES) if part == "D" else frozenset()
    return _OF_P if part == "P" else frozenset(PUSH_STAGES) - _OF_P


def part_of(stage: StageTime, mode: str) -> str:
    """The side that a stage belongs to: ``P`` or ``D``."""
    if mode == "pull":
        return "D"
    return "P" if stage.stage in _OF_P or stage.upper_bound else "D"


def count_ended(
    transfer: Transfer, part: str, figures: EngineFigures, unix_s: float, seen: Seen | None
) -> None:
    """Count it at one side: ``part`` is ``P`` or ``D``, and ``figures`` are that engine's."""
    mode, outcome, own = transfer.mode, transfer.outcome, figures.own
    peer = transfer.d_engine if part == "P" else transfer.p_engine
    pair = figures.peer(peer, unix_s) if peer else None
    own.add(m.TRANSFERS, (part, mode, m.OUTCOME_WORDS[outcome]))
    if pair is not None:
        _count_result(pair, part, outcome)
        if part == ("D" if mode == "pull" else "P"):
            pair.add(m.PEER_BYTES, (mode,), transfer.num_bytes or 0)
    if outcome is not Outcome.DELIVERED:
        return
    for stage in transfer.stages:
        if stage.end_ns is not None and part_of(stage, mode) == part:
            _count_stage(stage, part, mode, own, pair, seen)
    if part == "P":
        return
    if transfer.exposed_ns is not None and pair is not None:
        pair.observe(m.EXPOSED_SECONDS, (mode,), max(0, transfer.exposed_ns) / 1e9, seen)
    if transfer.hidden_ns is not None:
        own.observe(m.HIDDEN_SECONDS, (mode,), transfer.hidden_ns / 1e9)


def _count_result(pair: Series, part: str, outcome: Outcome) -> None:
    if m.PEER_TRANSFERS.name not in pair.counters:
        for labels in m.PEER_TRANSFERS.known((part,), ""):
            pair.add(m.PEER_TRANSFERS, labels, 0)
    if outcome is Outcome.DELIVERED:
        result = "delivered"
    else:
        result = "nothing_to_move" if outcome in NOTHING_MOVED else "failed"
    pair.add(m.PEER_TRANSFERS, (part, result))


def _count_stage(
    stage: StageTime,
    part: str,
    mode: str,
    own: Series,
    pair: Series | None,
    seen: Seen | None,
) -> None:
    seconds = max(0, (stage.end_ns or 0) - stage.start_ns) / 1e9
    name = stage.stage.value
    own.observe(m.STAGE_SECONDS, (part, mode, name), seconds, seen)
    rank = stage.rank if part == "P" else stage.peer_rank
    if rank is not None:
        own.sum(m.RANK_STAGE_SECONDS, (part, name, _NAMES.get(rank) or rank_name(rank)), seconds)
    if pair is not None:
        pair.sum(m.PEER_STAGE_SECONDS, (part, name), seconds)
    if stage.waited in _WAITED:
        own.sum(m.RENDEZVOUS_WAIT_SECONDS, _WAITED[stage.waited], seconds)
