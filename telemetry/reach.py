"""Which engines cannot be heard by now, since whoever reads them is out of reach or behind."""

from __future__ import annotations

from collections.abc import Iterable

from pushscope.telemetry.source import UNHEARD_NS, RingState
from pushscope.telemetry.transfer import Transfer


class Reach:
    """Until when each engine was heard. What it did since is not known, and may still be told."""

    def __init__(self) -> None:
        self._heard_until: dict[str, int] = {}
        """Of the engines that are out of reach."""

    def note(self, states: Iterable[RingState], now_ns: int) -> None:
        """How the rings stand, after all that was known at ``now_ns``."""
        unheard = {state.origin.engine_id for state in states if state.unheard}
        until_ns = now_ns - UNHEARD_NS
        self._heard_until = {engine: self._heard_until.get(engine, until_ns) for engine in unheard}

    def known_until(self, transfer: Transfer, now_ns: int) -> int:
        """Until when all is known of both engines of a transfer: now, or when the first of them was heard last."""
        engines = (transfer.p_engine or "", transfer.d_engine or "")
        return min(now_ns, *(self._heard_until.get(engine, now_ns) for engine in engines))
