"""Figures as a table for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table

from bench.estimate import Estimate
from bench.figure import Figure

COLUMNS = ("what", "measured", "reference", "ratio", "budget", "")


def figures_table(figures: Sequence[Figure]) -> Table:
    """One line a figure; ``held`` or ``MISSED`` where there is a budget."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in COLUMNS:
        table.add_column(name, overflow="fold")
    for figure in figures:
        verdict = verdict_of(figure)
        style = "red" if figure.held is False else "green" if figure.held else ""
        table.add_row(*cells(figure), f"[{style}]{verdict}[/]" if style else verdict)
    return table


def cells(figure: Figure) -> tuple[str, str, str, str, str]:
    """What, measured, reference, ratio and budget of a figure, as text."""
    reference = figure.reference
    of_reference = f"{number(reference.value)} {figure.unit}, {figure.reference_is}" if reference else ""
    return (
        figure.what,
        with_spread(figure.measured, figure.unit),
        of_reference,
        with_spread(figure.ratio) if figure.ratio else "",
        figure.budget,
    )


def verdict_of(figure: Figure) -> str:
    """``held``, ``MISSED``, or nothing without a budget."""
    return "" if figure.held is None else "held" if figure.held else "MISSED"


def with_spread(estimate: Estimate, unit: str = "") -> str:
    """``2.34 us (2.10 to 2.51)``, the spread with its name unless it is the least and the most."""
    value = f"{number(estimate.value)} {unit}".strip()
    if estimate.spread == "once":
        return value
    name = "" if estimate.spread == "min-max" else f"{estimate.spread}: "
    return f"{value} ({name}{number(estimate.low)} to {number(estimate.high)})"


def number(value: float) -> str:
    """Three or four digits; thousands are grouped."""
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}" if size >= 2 else f"{value:.3f}"
