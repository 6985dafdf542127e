"""A recording, played: at a speed, held, moved to a moment, or stepped from event to event."""

from __future__ import annotations

import msgspec


class PlayState(msgspec.Struct, frozen=True, kw_only=True):
    """Where a recording stands."""

    position_s: float
    """From its beginning."""
    duration_s: float
    speed: float = 1.0
    playing: bool = True
    over: bool = False
    seeking: float | None = None
    """The share of the way to where it was sent that it has read, while it is on its way."""
    event: str = ""
    """The event that was stepped to, in words; empty after anything else."""
