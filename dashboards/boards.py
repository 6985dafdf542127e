"""All boards, from the question whether anything is wrong down to one pair of engines."""

from __future__ import annotations

from pushscope.dashboards.modes import MODES
from pushscope.dashboards.overview import OVERVIEW
from pushscope.dashboards.pair import PAIR_BOARD
from pushscope.dashboards.panel import Board
from pushscope.dashboards.stages import STAGES


def boards() -> tuple[Board, ...]:
    """In the order in which one reads them."""
    return (OVERVIEW, STAGES, MODES, PAIR_BOARD)
