"""Which rows a table shows: those that match the filter, in the chosen order, and never too many."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic

from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.units import count
from pushscope.tui.columns import R
from pushscope.tui.lookup import Lookup
from pushscope.tui.query import EVERYTHING, Query
from pushscope.tui.table_kind import Sort, TableKind

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
    kind: TableKind[R],
    snapshot: Snapshot,
    sort: Sort[R],
    query: Query = EVERYTHING,
    limit: int = ROW_LIMIT,
    *,
    backwards: bool = False,
) -> Selection[R]:
    """The first ``limit`` rows of a table that fit a filter, in an order or the other way round."""
    everything = kind.rows(snapshot)
    rows: Sequence[R] = everything
    if query:
        lookup = Lookup(snapshot)
        rows = [row for row in everything if query.fits(row, kind.fields, lookup)]
    key, name = sort.key, sort.name + (", backwards" if backwards else "")
    if key is None:
        first = list(rows[: -limit - 1 : -1] if backwards else rows[:limit])
    else:
        choose = heapq.nlargest if backwards else heapq.nsmallest
        first = choose(limit, rows, key=lambda t: key(t, snapshot))
    return Selection(tuple(first), matching=len(rows), total=len(everything), sort=name)
