"""What boards, rules and alerts ask, and whether an answer is what they can use.

Variables are filled in as Grafana does. ``missing`` says which names in a query nobody exports; ``wrong`` what of an
answer is not of the kind that a panel draws.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pushscope.dashboards.panel import Board, Draw, Panel, Target, VariableKind
from pushscope.dashboards.promql import Expr

from .prometheus import Prometheus, Series
from .unit.parsed_promql import selectors

SHOWN_S = 60.0
"""How much of the time before now a board shows."""


class Question(NamedTuple):
    """A query of a panel."""

    board: Board
    panel: Panel
    target: Target

    @property
    def place(self) -> str:
        """``board / panel``, as it is called in a list."""
        return f"{self.board.title} / {self.panel.title}"


def questions(boards: Sequence[Board]) -> list[Question]:
    """Every query of every panel."""
    return [
        Question(board, panel, target)
        for board in boards
        for panel in board.panels
        for target in panel.targets
    ]


def filled(query: str, variables: Mapping[str, str]) -> str:
    """The query with its variables filled in."""

    def value(found: re.Match[str]) -> str:
        return variables[found[1] or found[2]]

    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", value, query)


def answer(prometheus: Prometheus, panel: Panel, query: str) -> list[Series]:
    """As Grafana asks for a panel of that kind."""
    if panel.draw in (Draw.TABLE, Draw.STAT, Draw.BARS):
        return prometheus.now(query)
    return prometheus.over(query, SHOWN_S)


def wrong(draw: Draw, expr: Expr, series: Sequence[Series]) -> str:
    """Why an answer is not what the panel draws; empty if it is."""
    found = {label for each in series for label in each.labels} - {"__name__"}
    if found != expr.labels:
        return f"expected the labels {sorted(expr.labels)}, found {sorted(found)}"
    if draw is Draw.HEAT and len({each.labels["le"] for each in series}) < 3:
        return f"expected buckets, found {sorted(each.labels['le'] for each in series)}"
    if draw is Draw.STAT and not expr.labels and len(series) != 1:
        return f"expected one figure, found {len(series)}"
    return ""


def missing(prometheus: Prometheus, query: str) -> list[str]:
    """Metrics, and labels of metrics, that a query names and that were never scraped or recorded."""
    found = []
    for selector in selectors(query):
        labels = prometheus.labels(selector.name)
        if not labels:
            found.append(f"nobody exports {selector.name}")
        asked = [name for name, *_ in selector.matchers]
        found += [f"{selector.name} has no label {name}" for name in asked if labels and name not in labels]
    return found


def variables_of(board: Board) -> dict[str, str]:
    """For each variable that is filled by a query: metric or selector, and the label (``label_values(…)``)."""
    return {each.name: each.query for each in board.variables if each.kind is VariableKind.QUERY}


def label_values(query: str) -> tuple[str, str]:
    """The two parts of ``label_values(SELECTOR, LABEL)``."""
    found = re.fullmatch(r"label_values\((.+), (\w+)\)", query)
    assert found, query
    return found[1], found[2]
