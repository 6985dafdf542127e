"""Conditions on a report that say that a load test has failed: ``stuck>0,exposed_p99>500ms``.

A condition is a name, an operator and a number. A figure that is not known is None, and its condition can't be told.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from pushscope.telemetry import units
from pushscope.telemetry.errors import PushscopeError
from pushscope.telemetry.report import Report
from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.stuck import Verdict, stuck_in
from pushscope.telemetry.transfer import WENT_WRONG, Outcome, Stage


class GateError(PushscopeError):
    """A condition that can't be understood."""


class _Unit(NamedTuple):
    """What a figure is measured in."""

    show: Callable[[float], str]
    factors: Mapping[str, float]
    """The units that a number may have, in that of the figure."""


_COUNT: Final = _Unit(lambda number: units.count(int(number)), {})
_SECONDS: Final = _Unit(units.duration, {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9})
_PER_SECOND: Final = _Unit(units.rate, {"/s": 1.0})
_BYTES_PER_SECOND: Final = _Unit(
    units.byte_rate, {"B/s": 1.0, "KiB/s": 2.0**10, "MiB/s": 2.0**20, "GiB/s": 2.0**30}
)
_OUTCOMES: Final = (Outcome.FAILED, Outcome.EXPIRED, Outcome.LOST, Outcome.ABORTED, Outcome.DELIVERED)
_PERCENTILES: Final = ("p50", "p90", "p99", "max")
_COUNTS: Final = (
    "stuck",
    "errors",
    "transfers",
    *(outcome.value for outcome in _OUTCOMES),
    "open",
    "retries",
    "events_lost",
)
_TIMED: Final = ("exposed", *(stage.value for stage in Stage))
UNITS: Final[Mapping[str, _Unit]] = {
    **dict.fromkeys(_COUNTS, _COUNT),
    **{f"{timed}_{which}": _SECONDS for timed in _TIMED for which in _PERCENTILES},
    "delivered_per_s": _PER_SECOND,
    "bytes_per_s": _BYTES_PER_SECOND,
}
"""Every name that a condition may have, with its unit."""
KNOWN: Final = (
    f"{', '.join(_COUNTS)}, delivered_per_s, bytes_per_s, and {'/'.join(_PERCENTILES)} of {', '.join(_TIMED)} "
    f"as in exposed_p99"
)
_OPERATORS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}
_CONDITION: Final = re.compile(r"\s*(\w+)\s*(>=|<=|==|!=|>|<)\s*(\d[\d.]*(?:e[+-]?\d+)?)\s*([A-Za-zµ/]*)\s*")


class Condition(msgspec.Struct, frozen=True):
    """One condition, and how it was written."""

    text: str
    name: str
    operator: str
    limit: float
    """In seconds, bytes per second, things per second, or a number of things."""


def parse(expressions: Iterable[str]) -> tuple[Condition, ...]:
    """The conditions of expressions, in which a comma means *or*. Raises GateError."""
    return tuple(_parse_one(text.strip()) for expression in expressions for text in expression.split(","))


def _parse_one(text: str) -> Condition:
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise GateError(
            f"expected a condition such as stuck>0 or exposed_p99>500ms, with one of {' '.join(_OPERATORS)}; "
            f"found {text!r}"
        )
    name, compared, number, unit = found.groups()
    if name not in UNITS:
        raise GateError(f"nothing is called {name!r} in the condition {text!r}; known are {KNOWN}")
    factors = UNITS[name].factors
    if unit and unit not in factors:
        has = f"in {', '.join(factors)}" if factors else "without a unit"
        raise GateError(f"expected {name} {has}, found {unit!r} in the condition {text!r}")
    try:
        limit = float(number) * factors.get(unit, 1.0)
    except ValueError:
        limit = math.inf
    if not math.isfinite(limit):
        raise GateError(f"expected a number in the condition {text!r}, found {number!r}")
    return Condition(text, name, compared, limit)


class StuckCount:
    """How much was stuck at any time, as ``pushscope stuck`` counts it: warnings and errors, each once."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, str, int]] = set()
        self._unknown = False

    def note(self, snapshot: Snapshot) -> None:
        """Take in how it stands."""
        found = stuck_in(snapshot, live=False)
        self._seen.update(row.key for row in found.rows)
        self._unknown = found.verdict is Verdict.UNKNOWN

    @property
    def number(self) -> int | None:
        """None if nothing was seen, but something could be: see ``Stuck.unknown``."""
        return None if self._unknown and not self._seen else len(self._seen)


def figures_of(report: Report, stuck: int | None, events_lost: int) -> dict[str, float | None]:
    """Every figure by its name. Of no transfers only their number is known, and what is stuck if something is."""
    figures: dict[str, float | None] = dict.fromkeys(UNITS)
    figures |= {"transfers": report.transfers, "events_lost": events_lost, "stuck": stuck or None}
    if not report.transfers:
        return figures
    figures |= {
        "stuck": stuck,
        "errors": sum(report.outcomes.get(outcome.value, 0) for outcome in WENT_WRONG),
        **{outcome.value: report.outcomes.get(outcome.value, 0) for outcome in _OUTCOMES},
        "open": report.open,
        "retries": report.retries,
        "delivered_per_s": report.delivered_per_s,
        "bytes_per_s": report.bytes_per_s,
    }
    measured = {pace.stage.value: pace.times for pace in report.stages if not pace.upper_bound}
    for timed, spread in {"exposed": report.exposed, **measured}.items():
        figures |= {f"{timed}_{which}": getattr(spread, f"{which}_s") for which in _PERCENTILES}
    return figures


class Judged(msgspec.Struct, frozen=True):
    """What became of the conditions, a sentence for each that matters."""

    held: tuple[str, ...]
    untold: tuple[str, ...]

    @property
    def exit_status(self) -> int:
        """1 if a condition holds, 2 if one can't be told, else 0."""
        return 1 if self.held else 2 if self.untold else 0


def judge(conditions: Iterable[Condition], figures: Mapping[str, float | None]) -> Judged:
    """Which conditions hold, and which can't be told."""
    held, untold = [], []
    for condition in conditions:
        value = figures[condition.name]
        if value is None:
            untold.append(f"can't tell whether {condition.text}: {condition.name} is not known")
        elif _OPERATORS[condition.operator](value, condition.limit):
            held.append(
                f"failed by {condition.text}: {condition.name} is {UNITS[condition.name].show(value)}"
            )
    return Judged(tuple(held), tuple(untold))
