"""Where panels stand: from left to right, in as many lines as it takes, never over each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from pushscope.dashboards.panel import Board, Panel, Row

COLUMNS: Final = 24
"""Grafana's grid."""


class Place(NamedTuple):
    """A rectangle of the grid."""

    x: int
    y: int
    width: int
    height: int

    def overlaps(self, other: Place) -> bool:
        """Whether they share a cell."""
        return (
            self.x < other.x + other.width
            and other.x < self.x + self.width
            and self.y < other.y + other.height
            and other.y < self.y + self.height
        )


def places(board: Board) -> Iterator[tuple[Row | Panel, Place]]:
    """Every row's heading and every panel, with its place, as they are read."""
    y = 0
    for row in board.rows:
        yield row, Place(0, y, COLUMNS, 1)
        y += 1
        x = line = 0
        for panel in row.panels:
            if x + panel.width > COLUMNS:
                x, y, line = 0, y + line, 0
            yield panel, Place(x, y, panel.width, panel.height)
            x += panel.width
            line = max(line, panel.height)
        y += line
