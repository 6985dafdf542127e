"""How many series a deployment makes: computed from the catalogue, with nothing left out that can be there at once.

What happens rarely is counted as if it had happened: every stage, every peer, every rank. Only a diagnosis that is
milder than its worst comes on top.
"""

from __future__ import annotations

from math import prod

import msgspec

from pushscope.telemetry.diagnosis.catalogue import CATALOGUE
from pushscope.telemetry.metrics import catalogue as m
from pushscope.telemetry.metrics.ended import stages_at
from pushscope.telemetry.metrics.family import PARTS, PUSH, Family, Label, Of
from pushscope.telemetry.transfer import Stage

_BY_THE_POSTER = frozenset(
    {m.NIXL_SECONDS.name, m.NIXL_BYTES.name, m.NIXL_DESCRIPTORS.name, m.RANK_BYTES.name, m.PEER_BYTES.name}
)
"""Only at the engine that posts NIXL transfers."""
_PUSH_ONLY = frozenset({m.RENDEZVOUS_WAIT_SECONDS.name, m.HIDDEN_SECONDS.name})
_WITH_SCHEDULER = frozenset({m.CONNECTOR_SECONDS.name, m.CONNECTOR_CALLS.name})
_OF_THE_SCHEDULER = frozenset({Stage.RELAY, Stage.ALLOCATION, Stage.WAKE})
"""Stages without a rank."""


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """Engines that one agent reads, whose every P has to do with every D."""

    p: int
    d: int
    tp: int = 1
    mode: str = PUSH
    peers: int | None = None
    """How many engines of the other side each has to do with, where others read most of these; None: those here."""


def series_of(family: Family, deployment: Deployment) -> int:
    """How many series a family has, at most."""
    if family.of in (Of.HOSTS, Of.AGENT):
        return 0
    engines = {"P": deployment.p, "D": deployment.d}
    peers = {"P": deployment.d, "D": deployment.p}
    if deployment.peers is not None:
        peers = dict.fromkeys(PARTS, deployment.peers)
    total = 0
    for part in PARTS:
        if part in family.parts:
            pairs = peers[part] if family.of is Of.PAIR else 1
            total += engines[part] * pairs * _label_sets(family, part, deployment)
    return total * family.lines


def series(deployment: Deployment) -> int:
    """How many series engines make, at most; the agent's own, some twenty, come on top."""
    return sum(series_of(family, deployment) for family in m.FAMILIES)


def _label_sets(family: Family, part: str, deployment: Deployment) -> int:
    mode, tp = deployment.mode, deployment.tp
    posts = part == ("P" if mode == PUSH else "D")
    if (family.name in _BY_THE_POSTER and not posts) or (family.name in _PUSH_ONLY and mode != PUSH):
        return 0
    if family is m.TABLE_ENTRIES:
        (_, table) = family.own
        return 1 + (len(table.all_values) - 1) * tp
    if family is m.STUCK:
        return len(CATALOGUE)
    if family is m.ENGINE_INFO:
        return 1
    stages = stages_at(part, mode)
    if family is m.RANK_STAGE_SECONDS:
        stages = stages - _OF_THE_SCHEDULER
    ranks = tp + (family.name in _WITH_SCHEDULER)

    def number(label: Label) -> int:
        if label is m.STAGE:
            return len(stages)
        return ranks if label is m.RANK else len(label.values(part, mode))

    return prod(map(number, family.own))
