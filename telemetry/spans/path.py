"""The critical path with its gaps: what the first token waited for, piece by piece, without a hole."""

from __future__ import annotations

from typing import NamedTuple

from pushscope.telemetry import events as ev
from pushscope.telemetry.group import Sides
from pushscope.telemetry.transfer import Transfer

DECODE = "decode"


class Piece(NamedTuple):
    """A part of the time from blocks staged to decode scheduled."""

    name: str
    """A stage, or ``before submit``: a gap, in which no stage was seen, by what came next."""
    start_ns: int
    end_ns: int


def pieces(transfer: Transfer, sides: Sides) -> tuple[Piece, ...]:
    """Disjoint pieces in order: the first begins at blocks staged, each where the one before ends, the last ends at
    decode scheduled. Empty unless both ends were seen (``transfer.path``).
    """
    staged, scheduled = sides.p.first(ev.BlocksStaged), sides.d.first(ev.DecodeScheduled)
    if not transfer.path or staged is None or scheduled is None:
        return ()
    cursor = staged.t
    found = []
    for s in transfer.path:
        if s.start_ns > cursor:
            found.append(Piece(_gap(s.stage.value), cursor, s.start_ns))
        end_ns = s.end_ns or s.start_ns
        found.append(Piece(s.stage.value, s.start_ns, end_ns))
        cursor = end_ns
    if cursor < scheduled.t:
        found.append(Piece(_gap(DECODE), cursor, scheduled.t))
    return tuple(found)


def _gap(name: str) -> str:
    return f"before {name}"
