"""A transfer that has ended, counted at one of its sides."""

from __future__ import annotations

from typing import Final

from pushscope.telemetry.metrics import catalogue as m
from pushscope.telemetry.metrics.family import PARTS, PULL, PUSH
from pushscope.telemetry.metrics.figures import EngineFigures, Seen, Series, add_up, observe
from pushscope.telemetry.transfer import (
    NOTHING_MOVED,
    P_STAGES,
    PULL_STAGES,
    PUSH_STAGES,
    Outcome,
    Stage,
    Transfer,
    rank_name,
)

_WAITED: Final = {"P waited for D": ("P",), "D waited for P": ("D",)}
_RANKS: Final = {(0, tp): rank_name((0, tp)) for tp in range(64)}
_WORDS: Final = {stage: stage.value for stage in Stage}


def stages_at(part: str, mode: str) -> frozenset[Stage]:
    """The stages that belong to a side, where both sides are observed."""
    if mode == PULL:
        return frozenset(PULL_STAGES) if part == "D" else frozenset()
    return P_STAGES if part == "P" else frozenset(PUSH_STAGES) - P_STAGES


_AT: Final = {(part, mode): stages_at(part, mode) for part in PARTS for mode in (PUSH, PULL)}


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
        if part == ("D" if mode == PULL else "P"):
            pair.add(m.PEER_BYTES, (mode,), transfer.num_bytes or 0)
        if part == "D":
            _count_completions(pair, transfer)
    if outcome is not Outcome.DELIVERED:
        return
    _count_stages(transfer, part, own, pair, seen)
    if part == "P":
        return
    if transfer.exposed_ns is not None and pair is not None:
        pair.observe(m.EXPOSED_SECONDS, (mode,), max(0, transfer.exposed_ns) / 1e9, seen)
    if transfer.hidden_ns is not None:
        own.observe(m.HIDDEN_SECONDS, (mode,), transfer.hidden_ns / 1e9)


def _count_result(pair: Series, part: str, outcome: Outcome) -> None:
    pair.zeros(m.PEER_TRANSFERS, (part,), "")
    if outcome is Outcome.DELIVERED:
        result = "delivered"
    else:
        result = "nothing_to_move" if outcome in NOTHING_MOVED else "failed"
    pair.add(m.PEER_TRANSFERS, (part, result))


def _count_completions(pair: Series, transfer: Transfer) -> None:
    """What D was due, and what of it came; nothing is due where nothing was to move."""
    if transfer.outcome is Outcome.UNSEEN or transfer.outcome in NOTHING_MOVED:
        return
    pair.add(m.PEER_COMPLETIONS, ("came",), transfer.ranks_done)
    pair.add(m.PEER_COMPLETIONS, ("missing",), max(0, transfer.ranks - transfer.ranks_done))


def _count_stages(transfer: Transfer, part: str, own: Series, pair: Series | None, seen: Seen | None) -> None:
    """Those that belong to this side: of P also a wire that ends when P's poll says so, which only P has seen."""
    mode, at_p = transfer.mode, part == "P"
    mine = _AT[part, mode]
    by_stage, by_rank = own.histograms_of(m.STAGE_SECONDS), own.summaries_of(m.RANK_STAGE_SECONDS)
    by_peer = pair.summaries_of(m.PEER_STAGE_SECONDS) if pair is not None else None
    for stage in transfer.stages:
        if stage.end_ns is None or not (at_p if stage.upper_bound else stage.stage in mine):
            continue
        seconds = max(0, stage.end_ns - stage.start_ns) / 1e9
        name = _WORDS[stage.stage]
        observe(by_stage, m.STAGE_SECONDS, (part, mode, name), seconds, seen)
        rank = stage.rank if at_p else stage.peer_rank
        if rank is not None:
            add_up(by_rank, (part, name, _RANKS.get(rank) or rank_name(rank)), seconds)
        if by_peer is not None:
            add_up(by_peer, (part, name), seconds)
        if stage.waited in _WAITED:
            own.sum(m.RENDEZVOUS_WAIT_SECONDS, _WAITED[stage.waited], seconds)
