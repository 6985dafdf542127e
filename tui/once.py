"""``pushscope top --once``: one snapshot as plain text, for a pipe or a log, or as JSON for a script."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from rich.console import Console
from rich.text import Text

from pushscope.telemetry import units
from pushscope.telemetry.snapshot import Snapshot
from pushscope.tui import header, pages
from pushscope.tui.columns import GAP, Cell, fit, put
from pushscope.tui.selection import select
from pushscope.tui.stuck_table import KINDS
from pushscope.tui.table_kind import TableKind
from pushscope.tui.tones import COLOURED

ROW_LIMIT = 50
"""Rows of each table; what lies beyond is a number."""


def render_snapshot(snapshot: Snapshot, console: Console, limit: int = ROW_LIMIT) -> None:
    """Print the snapshot as wide as the console is; nothing wraps, and nothing is said by colour alone."""
    for line in _lines(snapshot, console.width, limit):
        console.print(line, soft_wrap=True, highlight=False, markup=False, emoji=False)


def snapshot_json(snapshot: Snapshot) -> bytes:
    """The snapshot as one line of JSON: the fields of ``Snapshot`` in their order, maps sorted by key.

    Ids stand in it as they were recorded: it is data for a program, not for a terminal (JSON escapes C0
    control characters, so also the escape character, and no others).
    """
    return msgspec.json.encode(snapshot, order="deterministic")


def _lines(snapshot: Snapshot, width: int, limit: int) -> Iterator[Text]:
    for notice in snapshot.notices:
        yield Text(units.clean(f"! {notice}"), COLOURED["warn"])
    if pages.is_empty(snapshot):
        yield pages.no_engines(snapshot.source)
        return
    yield header.flow(
        [Cell(snapshot.source), *header.totals_pieces(snapshot.totals, snapshot.diagnoses)], width
    )
    engines = header.engine_pieces(snapshot.engines, snapshot.taken_ns)
    engines += header.clock_pieces(snapshot.clocks)
    yield header.flow(engines or [Cell("no engines observed", "warn")], width)
    for kind in KINDS:
        if not kind.only_if_any or kind.rows(snapshot):
            yield Text()
            yield from _table(kind, snapshot, width, limit)


def _table(kind: TableKind[Any], snapshot: Snapshot, width: int, limit: int) -> Iterator[Text]:
    selection = select(kind, snapshot, kind.sorts[0], limit=limit)
    yield Text(f"{kind.title} {units.count(selection.total)}, by {selection.sort}", "bold")
    if not selection.rows:
        yield Text(f"  {kind.empty}")
        return
    fitted = fit(kind.columns, width)
    gap = " " * GAP
    yield Text(gap.join(put(f.column.title, f.width, right=f.column.right) for f in fitted), "dim")
    for shown in selection.rows:
        row = Text()
        for position, f in enumerate(fitted):
            cell = f.column.cell(shown, snapshot, f.width)
            if position:
                row.append(gap)
            row.append(put(cell.text, f.width, right=f.column.right), COLOURED[cell.tone])
        yield row
    if selection.more:
        yield Text(selection.more)
