"""The halves of one base id, and the transfers made of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pushscope.telemetry.half import NO_FACTS, Facts, Half, Identity
from pushscope.telemetry.judge import EngineFacts
from pushscope.telemetry.pairing import NO_ATTEMPTS, NOTHING_BEFORE, Attempts, Before, Pair
from pushscope.telemetry.transfer import Transfer


class Sides(NamedTuple):
    """What a transfer was made of: the events of both sides, and their engines."""

    p: Facts
    d: Facts
    p_engine: EngineFacts
    d_engine: EngineFacts
    taken_by: int
    """The attempt whose registration met the blocks that were meant for this D request; 0 if none did."""
    released_ns: int
    """When P's lease on its last prefill of this id ended, which D came too late to claim; 0 if that wasn't so."""
    others: tuple[Transfer, ...]
    """The other transfers of the same base id."""


class Group:
    """The halves of one base id: every attempt to move that prompt."""

    __slots__ = (
        "aliases",
        "attempts",
        "base",
        "before",
        "halves",
        "last_t",
        "made_of",
        "pairs",
        "reopened",
        "transfers",
    )

    def __init__(self, base: str):
        self.base = base
        self.before: Mapping[str, Before] = NOTHING_BEFORE
        """Base id -> what became of its attempts that were closed before."""
        self.aliases: list[str] = []
        """Other base ids that turned out to be this one's."""
        self.halves: dict[Identity, Half] = {}
        self.pairs: dict[Identity, set[Identity]] = {}
        """P half -> the D halves that its ranks matched it with."""
        self.reopened: Attempts = NO_ATTEMPTS
        """The attempts of D halves that were closed before P's blocks met their registration."""
        self.last_t = 0
        self.attempts: Attempts = NO_ATTEMPTS
        self.transfers: tuple[Transfer, ...] | None = None
        """None: to be computed again, and ``attempts`` and ``made_of`` with them."""
        self.made_of: tuple[Pair, ...] = ()
        """What each of the transfers was made of."""

    def merge(self, other: Group) -> None:
        """Take in a group whose base id turned out to be this one's."""
        self.halves.update(other.halves)
        self.aliases += other.aliases
        self.last_t = max(self.last_t, other.last_t)
        self.before = {**self.before, **other.before}
        self.reopened = {**self.reopened, **other.reopened}
        for key, peers in other.pairs.items():
            self.pairs.setdefault(key, set()).update(peers)

    def sides_of(self, index: int) -> tuple[Facts, Facts]:
        """The events of both sides of the transfer that was made ``index``-th."""
        pair = self.made_of[index]
        return pair.p.by_kind() if pair.p else NO_FACTS, pair.d.by_kind() if pair.d else NO_FACTS
