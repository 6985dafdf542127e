"""docs/reference/dashboards.md, made from the boards: ``make references`` writes it anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pushscope.dashboards.boards import boards
from pushscope.dashboards.names import board_path
from pushscope.dashboards.panel import Board, Panel
from pushscope.telemetry.reference_page import write_page

PAGE: Final = Path("docs/reference/dashboards.md")
HEAD: Final = """\
<!-- Written by `make references`; what it says comes from dashboards/*.py. -->

# Panels of the dashboards

What each panel shows, what good looks like, and what to do when it isn't so, as its corner in Grafana says. How to get
them there: [dashboards](../dashboards.md); what the metrics mean: [metrics](metrics.md).
*Both sides*: told by D's engines, where their agent sees P too.
"""


def page() -> str:
    """The whole page."""
    return "\n".join((HEAD, *(line for board in boards() for line in _board(board))))


def _board(board: Board) -> Iterator[str]:
    yield f"## {board.title}\n"
    yield f"`{board_path(board.uid)}` · {board.description}\n"
    for row in board.rows:
        yield f"### {row.title}\n"
        yield "| panel | good | made of |"
        yield "|---|---|---|"
        for panel in row.panels:
            yield f"| {panel.title} | {panel.good} | {_made_of(panel)} |"
        yield ""


def _made_of(panel: Panel) -> str:
    names = " ".join(f"`{family.name}`" for family in panel.families)
    return f"{names} · both sides" if panel.joined else names


def main() -> None:
    """Write the page."""
    write_page(PAGE, page())


if __name__ == "__main__":
    main()
