"""One request on its way through two engines."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pushscope.lab.simulator.decode import DecodeEngine
    from pushscope.lab.simulator.prefill import PrefillEngine


class Phase(Enum):
    """How far a leg is."""

    AWAY = auto()
    """It has not come to its engine."""
    QUEUED = auto()
    WORKING = auto()
    """P computes it; D has registered for it."""
    DONE = auto()
    """P holds its blocks for D; D has them."""
    ENDED = auto()


class Request:
    """A prompt, its two legs, and what the client does."""

    __slots__ = (
        "after_prefill",
        "base",
        "blocks",
        "d",
        "d_id",
        "d_phase",
        "expired_on",
        "full_hit",
        "left",
        "matched_on",
        "name",
        "p",
        "p_id",
        "p_phase",
        "received_on",
        "released_on",
        "surplus_on",
        "tokens",
        "told_id",
        "writes",
    )  # fmt: skip

    def __init__(
        self,
        p: PrefillEngine,
        d: DecodeEngine,
        name: str,
        suffixes: tuple[str, str],
        *,
        tokens: int,
        blocks: int,
        full_hit: bool = False,
    ):
        self.p, self.d = p, d
        self.name = name
        """The client's X-Request-Id."""
        self.base = f"cmpl-{name}-0"
        self.p_id, self.d_id = f"{self.base}-{suffixes[0]}", f"{self.base}-{suffixes[1]}"
        self.told_id = name
        """How the router calls P's request to D: what heartbeats name."""
        self.tokens, self.blocks, self.full_hit = tokens, blocks, full_hit
        self.p_phase = self.d_phase = Phase.AWAY
        self.left = False
        """The client has gone away."""
        self.after_prefill: Callable[[Request], None] | None = None
        """Serial order: what the router does with P's answer."""
        self.matched_on: set[int] = set()
        self.surplus_on: set[int] = set()
        self.expired_on: set[int] = set()
        """P ranks: on which it met its registration, on which another one came after that, on which the lease ended."""
        self.writes: dict[int, int] = {}
        """P rank -> WRITEs that are not seen done."""
        self.released_on = self.received_on = 0
        """How many P ranks have let the blocks go; how many D ranks have theirs."""
