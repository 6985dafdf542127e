"""What a board is, before it is Grafana's JSON: rows of panels, each a question with its queries."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

import msgspec

from pushscope.dashboards import vllm
from pushscope.dashboards.promql import Expr, UnknownNameError
from pushscope.telemetry.metrics import catalogue as m
from pushscope.telemetry.metrics.family import Family

FAMILIES: Final = {sample: family for family in (*m.FAMILIES, *vllm.FAMILIES) for sample in family.samples}
"""Every name that a board may query, and the family that it is of."""
NEEDS_A_PEER: Final = "Told by D's engines, where their agent sees P too (--peer URL)"
"""What a panel says where P or D is not seen."""
NEEDS_BOTH: Final = "Needs both sides"
"""The same where there is room for few words."""
NEEDS_VLLM: Final = "vLLM's own /metrics are not scraped, or not chosen above"


class Draw(StrEnum):
    """How a panel is drawn, by Grafana's name; it tells what kind of answer its queries need."""

    LINES = "timeseries"
    STAT = "stat"
    BARS = "bargauge"
    HEAT = "heatmap"
    """From buckets: the answer has ``le``."""
    TABLE = "table"
    """A row for each series of one moment."""
    GRID = "status-history"
    """A row for each series, coloured by its value."""
    STATES = "state-timeline"


class Target(msgspec.Struct, frozen=True):
    """One query. ``legend`` names labels as ``{{engine}}``; every one of them is a label of the answer."""

    expr: Expr
    legend: str = ""
    exemplars: bool = False

    def __post_init__(self) -> None:
        for label in re.findall(r"{{(\w+)}}", self.legend):
            if label not in self.expr.labels:
                has = ", ".join(sorted(self.expr.labels)) or "none"
                raise UnknownNameError(f"legend {self.legend!r} names {label}; {self.expr} has {has}")

    @property
    def families(self) -> tuple[Family, ...]:
        """What it asks for."""
        names = re.findall(r"([a-zA-Z_:][\w:]*)\{", self.expr.text)
        return tuple(dict.fromkeys(FAMILIES[name] for name in names))


class Link(msgspec.Struct, frozen=True):
    """Where a click leads."""

    title: str
    url: str


class Column(msgspec.Struct, frozen=True):
    """A column of a table: a label, or the value of the target at this place (0, 1, …)."""

    of: str | int
    title: str
    unit: str = ""
    links: tuple[Link, ...] = ()
    width: int | None = None
    """In pixels; None: as there is room."""

    @property
    def field(self) -> str:
        """What Grafana calls it, where several queries are merged."""
        return self.of if isinstance(self.of, str) else f"Value #{ref_id(self.of)}"


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    """A question, and what is drawn for an answer."""

    title: str
    draw: Draw
    targets: tuple[Target, ...]
    good: str
    """What good looks like, and what to do when it isn't so."""
    unit: str
    """Grafana's id of a unit."""
    width: int = 12
    """Of 24 columns."""
    height: int = 9
    """In units of 30 pixels: room for three rows of a legend."""
    steps: tuple[tuple[float, str], ...] = ()
    """From which value on it has which colour; below the first it is green."""
    minimum: float | None = 0
    maximum: float | None = None
    decimals: int | None = None
    reduce: str = "lastNotNull"
    """What one figure says of the time that is shown: the last value, or ``max``, ``min``."""
    stacked: bool = False
    logarithmic: bool = False
    words: tuple[tuple[float, str, str], ...] = ()
    """What a value is called, and its colour."""
    links: tuple[Link, ...] = ()
    columns: tuple[Column, ...] = ()
    """Of a table, in order; labels that are not among them are hidden."""
    when_empty: str = ""
    """What it says where the answer is empty, if that can be on a healthy run."""

    @property
    def families(self) -> tuple[Family, ...]:
        """What it asks for, each once."""
        return tuple(dict.fromkeys(family for target in self.targets for family in target.families))

    @property
    def joined(self) -> bool:
        """Nothing of it can be known from one side alone."""
        return all(family.joined for family in self.families)

    @property
    def no_value(self) -> str:
        """What it says where there is nothing to draw; empty: what Grafana says."""
        if self.when_empty or self.joined:
            return self.when_empty or (NEEDS_BOTH if self.draw is Draw.STAT else NEEDS_A_PEER)
        return NEEDS_VLLM if set(self.families) <= set(vllm.FAMILIES) else ""

    @property
    def description(self) -> str:
        """Shown at the panel's corner: what is good, what it needs, and what it is made of."""
        needs = [f"{NEEDS_A_PEER}."] if self.joined else []
        if not self.joined and any(family.joined for family in self.families):
            needs = ["In part it needs both sides: D's agent must see P too (--peer URL)."]
        names = ", ".join(f"`{family.name}`" for family in self.families)
        return "\n\n".join((self.good, *needs, f"Metrics: {names}"))


class Row(msgspec.Struct, frozen=True):
    """Panels that answer one question."""

    title: str
    panels: tuple[Panel, ...]


class VariableKind(StrEnum):
    """By Grafana's names."""

    DATASOURCE = "datasource"
    QUERY = "query"
    CUSTOM = "custom"
    CONSTANT = "constant"


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    """What one chooses at the top of a board."""

    name: str
    label: str
    kind: VariableKind
    query: str
    """A type of data source, a query for values, values with commas between, or the constant."""
    description: str
    everything: str | None = None
    """What stands for All in queries; None: the values themselves."""
    chosen: str = ""
    """At first; empty: All."""


class Annotation(msgspec.Struct, frozen=True):
    """Moments that are marked on every panel."""

    name: str
    expr: Expr
    title: str
    text: str
    colour: str


class Board(msgspec.Struct, frozen=True, kw_only=True):
    """A dashboard."""

    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]
    variables: tuple[Variable, ...]
    annotations: tuple[Annotation, ...]
    links: tuple[Link, ...]

    @property
    def panels(self) -> tuple[Panel, ...]:
        """All of them, as they are read."""
        return tuple(panel for row in self.rows for panel in row.panels)


def ref_id(place: int) -> str:
    """What Grafana calls the query at this place of a panel: ``A``, ``B``, …"""
    return chr(ord("A") + place)
