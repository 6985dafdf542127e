"""Which transfers a table shows: those that match the filter, in the chosen order, and never too many."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.transfer import Transfer
from pushscope.telemetry.units import count
from pushscope.tui.tables import Sort, TableKind

ROW_LIMIT = 200
"""Rows of a table; what lies beyond is a number. It bounds the work of a frame."""


@dataclass(frozen=True)
class Selection:
    """The rows of one table at one moment."""

    rows: tuple[Transfer, ...] = ()
    matching: int = 0
    total: int = 0
    sort: str = ""

    @property
    def more(self) -> str:
        """The line below the last row, if some rows have no place."""
        hidden = self.matching - len(self.rows)
        return f"… and {count(hidden)} more, sorted by {self.sort}" if hidden > 0 else ""


def select(
    kind: TableKind, snapshot: Snapshot, sort: Sort, text: str = "", limit: int = ROW_LIMIT
) -> Selection:
    """The first ``limit`` transfers of a table with ``text`` in a request id or an engine's name or id."""
    everything = kind.rows(snapshot)
    rows = _matching(everything, snapshot, text) if text else everything
    key = sort.key
    first = rows[:limit] if key is None else heapq.nsmallest(limit, rows, key=lambda t: key(t, snapshot))
    return Selection(tuple(first), matching=len(rows), total=len(everything), sort=sort.name)


def _matching(transfers: tuple[Transfer, ...], snapshot: Snapshot, text: str) -> tuple[Transfer, ...]:
    wanted = text.lower()
    engines = {e.engine_id for e in snapshot.engines if wanted in e.name.lower()}
    return tuple(
        t
        for t in transfers
        if wanted in t.base_id.lower()
        or (t.d_request is not None and wanted in t.d_request.lower())
        or (t.p_request is not None and wanted in t.p_request.lower())
        or t.p_engine in engines
        or t.d_engine in engines
        # An engine id only from its start: a UUID contains nearly every pair of digits somewhere.
        or (t.p_engine is not None and t.p_engine.lower().startswith(wanted))
        or (t.d_engine is not None and t.d_engine.lower().startswith(wanted))
    )
