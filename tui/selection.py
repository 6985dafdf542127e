"""Which rows a table shows: those that match the filter, in the chosen order, and never too many."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Generic

from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.units import count
from pushscope.tui.columns import R
from pushscope.tui.tables import Sort, TableKind

ROW_LIMIT = 200
"""Rows of a table; what lies beyond is a number. It bounds the work of a frame."""


@dataclass(frozen=True)
class Selection(Generic[R]):
    """The rows of one table at one moment."""

    rows: tuple[R, ...] = ()
    matching: int = 0
    total: int = 0
    sort: str = ""

    @property
    def more(self) -> str:
        """The line below the last row, if some rows have no place."""
        hidden = self.matching - len(self.rows)
        return f"… and {count(hidden)} more, sorted by {self.sort}" if hidden > 0 else ""


def select(
    kind: TableKind[R], snapshot: Snapshot, sort: Sort[R], text: str = "", limit: int = ROW_LIMIT
) -> Selection[R]:
    """The first ``limit`` rows of a table with ``text`` in a request id or an engine's name or id."""
    everything = kind.rows(snapshot)
    rows = kind.matching(everything, snapshot, text.lower()) if text else everything
    key = sort.key
    first = rows[:limit] if key is None else heapq.nsmallest(limit, rows, key=lambda t: key(t, snapshot))
    return Selection(tuple(first), matching=len(rows), total=len(everything), sort=sort.name)
