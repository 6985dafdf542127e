"""Figures as characters: where a transfer's time went, a line of the last seconds, the shape of a distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pushscope.telemetry.transfer import Stage, Transfer
from pushscope.tui.columns import Cell

LETTERS: Final = {
    Stage.RELAY: "y",
    Stage.ALLOCATION: "a",
    Stage.REGISTRATION: "g",
    Stage.FLIGHT: "f",
    Stage.HANDOFF: "o",
    Stage.RENDEZVOUS: "R",
    Stage.HANDSHAKE: "H",
    Stage.DESCRIPTORS: "d",
    Stage.SUBMIT: "s",
    Stage.WIRE: "W",
    Stage.NOTIFICATION: "n",
    Stage.WAKE: "k",
}
"""One letter for each stage, so that a bar can be read without its colours."""

_HEIGHTS: Final = "▁▂▃▄▅▆▇█"
_ORDER: Final = tuple(Stage)


def stage_bar(transfer: Transfer, now_ns: int, width: int) -> Cell:
    """How the life of a transfer so far divides into its stages, on their slowest ranks, as a bar of ``width`` cells.

    Each stage that took time has a cell at least; where stages overlap, each has its own part.
    """
    spent = _spent(transfer, now_ns)
    if not spent or width < 1:
        return Cell("")
    cells = _shares([ns for _, ns in spent], width)
    runs = tuple((stage.value, n) for (stage, _), n in zip(spent, cells, strict=True) if n)
    text = "".join(LETTERS[Stage(stage)] * n for stage, n in runs)
    return Cell(text, runs=runs)


def spark(values: Sequence[float], width: int) -> str:
    """The last ``width`` values as blocks, from zero to their maximum; a value above zero is never the lowest block."""
    shown = list(values)[-width:]
    top = max(shown, default=0.0)
    drawn = "".join(_height(value, top) for value in shown)
    return drawn.rjust(width)


def shape(counts: Sequence[int], width: int) -> str:
    """A histogram's counts as blocks, neighbours added up where there is less room; a blank is a bucket of none."""
    if not counts or width < 1:
        return ""
    per_cell = -(-len(counts) // width)
    sums = [sum(counts[i : i + per_cell]) for i in range(0, len(counts), per_cell)]
    top = max(sums)
    return "".join(_height(n, top) if n else " " for n in sums)


def _height(value: float, top: float) -> str:
    if value <= 0 or top <= 0:
        return _HEIGHTS[0]
    return _HEIGHTS[max(1, min(len(_HEIGHTS) - 1, round(value / top * (len(_HEIGHTS) - 1))))]


def _spent(transfer: Transfer, now_ns: int) -> list[tuple[Stage, int]]:
    """Stages with the time on their slowest rank; an open one has taken what it has until now."""
    longest: dict[Stage, int] = {}
    for s in transfer.stages:
        end_ns = s.end_ns if s.end_ns is not None else now_ns if transfer.is_open else s.start_ns
        longest[s.stage] = max(longest.get(s.stage, 0), end_ns - s.start_ns)
    return [(stage, longest[stage]) for stage in _ORDER if longest.get(stage, 0) > 0]


def _shares(values: Sequence[int], width: int) -> list[int]:
    """``width`` cells divided as ``values`` are: one at least for each, or for the largest if there are not enough."""
    if width <= len(values):
        largest = sorted(range(len(values)), key=values.__getitem__)[-width:]
        return [int(n in largest) for n in range(len(values))]
    whole = sum(values)
    cells = [max(1, value * width // whole) for value in values]
    while over := sum(cells) - width:
        # Given to, or taken from, whom it changes least; the last cell is not taken.
        sign = -1 if over > 0 else 1
        places = (n for n in range(len(cells)) if over < 0 or cells[n] > 1)
        cells[max(places, key=lambda n: sign * (values[n] * width / whole - cells[n]))] += sign
    return cells
