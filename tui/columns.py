"""Columns of a table, and which of them fit: the less important ones go first when the terminal is narrow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from rich.cells import cell_len, set_cell_size

from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.units import clean

R = TypeVar("R")
"""What a row of a table is about: a transfer, a diagnosis."""
GAP = 2
"""Cells between two columns."""


@dataclass(frozen=True)
class Cell:
    """What stands in one place of a table. ``tone`` only repeats, in colour, what ``text`` says in words."""

    text: str
    tone: str = ""
    """``good``, ``bad``, ``warn``, ``dim``, a stage's name, or nothing."""
    runs: tuple[tuple[str, int], ...] = ()
    """Tones of its parts, each with so many cells, in place of the one tone; for a text of plain width."""


@dataclass(frozen=True)
class Column(Generic[R]):
    """One column: how it is titled, how much room it needs, and how a row's cell is made.

    ``cell`` gets the row, the snapshot it is part of, and the column's width in cells, so that an id can
    be shortened in its middle; what is still too long is cut at its end.
    """

    title: str
    cell: Callable[[R, Snapshot, int], Cell]
    width: int
    most: int = 0
    """The column may grow to this width; 0: it stays as it is."""
    widening: float = 0.0
    """Cells that the column asks for beyond ``width`` for each cell of a table wider than 80."""
    drop: int = 0
    """Columns with the highest number are left out first; 0 is never left out."""
    right: bool = False


@dataclass(frozen=True)
class Fitted(Generic[R]):
    """A column with the width it was given."""

    column: Column[R]
    width: int


def fit(columns: Sequence[Column[R]], width: int) -> tuple[Fitted[R], ...]:
    """The columns that have room in ``width`` cells, in their order; growing ones share what is left over."""
    wanted = {column: _wanted(column, width) for column in columns}
    kept = list(columns)
    while len(kept) > 1 and sum(wanted[c] for c in kept) + GAP * (len(kept) - 1) > width:
        last_to_matter = max(kept, key=lambda column: (column.drop, kept.index(column)))
        if last_to_matter.drop == 0:
            break
        kept.remove(last_to_matter)
    spare = width - sum(wanted[c] for c in kept) - GAP * (len(kept) - 1)
    fitted = []
    for column in kept:
        more = min(max(spare, 0), max(column.most - wanted[column], 0))
        spare -= more
        fitted.append(Fitted(column, wanted[column] + more))
    return tuple(fitted)


def put(text: str, width: int, *, right: bool = False) -> str:
    """``text`` in exactly ``width`` cells, cut with ``…`` if it is longer."""
    if len(text) <= width and text.isascii() and text.isprintable():  # nearly always: nothing to measure
        return text.rjust(width) if right else text.ljust(width)
    text = clean(text, width)
    if right:
        return " " * (width - cell_len(text)) + text
    return set_cell_size(text, width)


def _wanted(column: Column[R], width: int) -> int:
    return column.width + int(max(width - 80, 0) * column.widening)
