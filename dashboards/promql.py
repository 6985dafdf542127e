"""PromQL whose every name is checked when it is built.

An :class:`Expr` is a query's text and the labels that its result has. A :class:`Scope` makes selectors of metrics: it
adds what all queries of one place say of labels (the variables of a board) and how far back a rate looks. So a metric's
name is written nowhere but in the catalogue, and a label that a metric lacks, or a rate of a gauge, raises
:class:`UnknownNameError` at import::

    from pushscope.telemetry.metrics import catalogue as m

    BOARD.rate(m.TRANSFERS, outcome="failed")     # of a board: its variables, `$__rate_interval`
    total(Scope("5m").rate(m.LEASES, event="expired"), "engine")          # of a rule: a fixed window, no variables
    Scope("5m").quantile(0.99, m.STAGE_SECONDS, "engine", "stage")
    recorded(names.EXPOSED_P99) > 2 * recorded(names.EXPOSED_USUAL)

Rules use ``Scope("5m")`` and the functions below; ``str(expr)`` is the query. In a selector a string is one value, a
tuple is one of several, :class:`Like` is a regular expression, and :class:`Unlike` is what it must not be.
"""

from __future__ import annotations

from typing import Final

import msgspec

from pushscope.telemetry.errors import PushscopeError
from pushscope.telemetry.metrics.family import Family, Kind

TARGET_LABELS: Final = ("job", "instance")
"""Labels that Prometheus itself puts on all that it scrapes."""


class UnknownNameError(PushscopeError):
    """A query that names what nothing exports."""


class Like(msgspec.Struct, frozen=True):
    """A label's value must match all of this regular expression."""

    pattern: str


class Unlike(msgspec.Struct, frozen=True):
    """A label's value must not match this regular expression."""

    pattern: str


Value = str | tuple[str, ...] | Like | Unlike


class Expr(msgspec.Struct, frozen=True, eq=False):
    """A query, and the names of the labels that its result can have."""

    text: str
    labels: frozenset[str] = frozenset()
    whole: bool = True
    """It needs no brackets as a part of another query."""
    scalar: bool = False
    """It is a number, which goes with every series."""

    def __str__(self) -> str:
        return self.text

    def __add__(self, other: Operand) -> Expr:
        return _joined(self, "+", other)

    def __sub__(self, other: Operand) -> Expr:
        return _joined(self, "-", other)

    def __mul__(self, other: Operand) -> Expr:
        return _joined(self, "*", other)

    def __rmul__(self, other: float) -> Expr:
        return _joined(number(other), "*", self)

    def __rsub__(self, other: float) -> Expr:
        return _joined(number(other), "-", self)

    def __truediv__(self, other: Operand) -> Expr:
        return _joined(self, "/", other)

    def __gt__(self, other: Operand) -> Expr:
        return _joined(self, ">", other)

    def __ge__(self, other: Operand) -> Expr:
        return _joined(self, ">=", other)

    def __lt__(self, other: Operand) -> Expr:
        return _joined(self, "<", other)

    def is_(self, other: Operand) -> Expr:
        """Where it is equal (``==`` stays Python's)."""
        return _joined(self, "==", other)

    def both(self, other: Expr, *on: str) -> Expr:
        """``and``: where the other has something too; ``on`` these labels, else on all."""
        return self._set("and", other, on)

    def unless(self, other: Expr, *on: str) -> Expr:
        """Where the other has nothing."""
        return self._set("unless", other, on)

    def otherwise(self, other: Expr) -> Expr:
        """``or``: what the other has where this has nothing."""
        return msgspec.structs.replace(self._set("or", other, ()), labels=self.labels | other.labels)

    def matched(self, operator: str, other: Expr, *on: str, take: tuple[str, ...] = ()) -> Expr:
        """With the one series of the other that agrees ``on`` these labels, taking some of its labels along."""
        _known(self, on)
        _known(other, (*on, *take))
        group = f"group_left ({', '.join(take)})" if take else "group_left ()"
        text = f"{_part(self)} {operator} on ({', '.join(on)}) {group} {_part(other)}"
        return Expr(text, self.labels | set(take), whole=False)

    def _set(self, operator: str, other: Expr, on: tuple[str, ...]) -> Expr:
        _known(self, on)
        _known(other, on)
        matching = f" on ({', '.join(on)})" if on else ""
        return Expr(f"{_part(self)} {operator}{matching} {_part(other)}", self.labels, whole=False)


Operand = Expr | float


def number(value: float) -> Expr:
    """A number, as a query writes it."""
    return Expr(f"{value:.12g}", scalar=True)


# -- selectors ----------------------------------------------------------------------------------------


class Scope(msgspec.Struct, frozen=True):
    """What all queries of one place share."""

    window: str
    """How far back rates look: ``5m``, or in Grafana ``$__rate_interval``."""
    always: tuple[tuple[str, Value], ...] = ()
    """Labels and what they must be, of every metric that has the label; what a query says itself goes before."""

    def now(self, family: Family, **where: Value) -> Expr:
        """A gauge (or what an info says), as it is."""
        if family.kind not in (Kind.GAUGE, Kind.INFO):
            raise UnknownNameError(f"{family.name} is a {family.kind}: take its rate, its mean or a quantile")
        return self._select(family, family.name, where)

    def series(self, family: Family, **where: Value) -> Expr:
        """The series of whatever family, to ask which labels there are; of several names the first."""
        return self._select(family, family.samples[0], where)

    def rate(self, family: Family, end: str = "", **where: Value) -> Expr:
        """Per second. ``end``: ``sum``, ``count`` or ``bucket`` of a histogram or a summary, nothing of a counter."""
        return self.over("rate", family, end, **where)

    def increase(self, family: Family, end: str = "", **where: Value) -> Expr:
        """How many within the window."""
        return self.over("increase", family, end, **where)

    def over(self, function: str, family: Family, end: str = "", **where: Value) -> Expr:
        """Any function of a counter over the window: ``rate``, ``increase``, ``resets``."""
        name = f"{family.name}_{end}" if end else family.name
        if family.kind in (Kind.GAUGE, Kind.INFO):
            raise UnknownNameError(f"{family.name} is a {family.kind}: it has no {function}")
        chosen = self._select(family, name, where)
        return Expr(f"{function}({chosen}[{self.window}])", chosen.labels)

    def over_gauge(self, function: str, family: Family, **where: Value) -> Expr:
        """Any function of a gauge over the window: ``max_over_time``, ``changes``, ``delta``."""
        chosen = self.now(family, **where)
        return Expr(f"{function}({chosen}[{self.window}])", chosen.labels)

    def quantile(self, q: float, family: Family, *by: str, **where: Value) -> Expr:
        """A quantile of a histogram, of all its series together, or by these labels."""
        text = f"histogram_quantile({q:g}, {self.buckets(family, *by, **where)})"
        return Expr(text, frozenset(by))

    def buckets(self, family: Family, *by: str, **where: Value) -> Expr:
        """The rate of each bucket of a histogram, by ``le`` and these labels: what a heat map is drawn from."""
        return total(self.rate(family, "bucket", **where), "le", *by)

    def mean(self, family: Family, *by: str, **where: Value) -> Expr:
        """The mean of a histogram or a summary; nothing where nothing was observed."""
        return ratio(
            total(self.rate(family, "sum", **where), *by), total(self.rate(family, "count", **where), *by)
        )

    def _select(self, family: Family, name: str, where: dict[str, Value]) -> Expr:
        if name not in family.samples:
            raise UnknownNameError(
                f"{family.name} is a {family.kind}: it has {', '.join(family.samples)}, not {name}"
            )
        labels = {*TARGET_LABELS, *family.labels, *(("le",) if name.endswith("_bucket") else ())}
        if unknown := where.keys() - labels:
            raise UnknownNameError(
                f"{name} has no label {', '.join(sorted(unknown))}; it has {', '.join(sorted(labels))}"
            )
        for label in family.own:
            _possible(name, label.name, label.all_values, where.get(label.name))
        matchers = {label: value for label, value in self.always if label in labels} | where
        inner = ", ".join(_matcher(label, value) for label, value in matchers.items())
        return Expr(f"{name}{{{inner}}}" if inner else name, frozenset(labels))


def _possible(name: str, label: str, values: tuple[str, ...], asked: Value | None) -> None:
    """A value that a closed label never has is a slip of the pen."""
    asked_for = (asked,) if isinstance(asked, str) else asked
    if values and isinstance(asked_for, tuple):
        for value in asked_for:
            if value not in values:
                raise UnknownNameError(f'{name} never has {label}="{value}"; it has {", ".join(values)}')


def _matcher(label: str, value: Value) -> str:
    match value:
        case Like(pattern):
            return f'{label}=~"{pattern}"'
        case Unlike(pattern):
            return f'{label}!~"{pattern}"'
        case tuple():
            return f'{label}=~"{"|".join(value)}"'
        case str():
            return f'{label}="{value}"'


# -- functions ----------------------------------------------------------------------------------------


def recorded(rule: Recorded, **where: Value) -> Expr:
    """What a recording rule has recorded."""
    if unknown := where.keys() - set(rule.labels):
        raise UnknownNameError(f"{rule.name} has no label {', '.join(sorted(unknown))}")
    inner = ", ".join(_matcher(label, value) for label, value in where.items())
    return Expr(f"{rule.name}{{{inner}}}" if inner else rule.name, frozenset(rule.labels))


class Recorded(msgspec.Struct, frozen=True):
    """A recording rule: the name of what it records, and its labels."""

    name: str
    labels: tuple[str, ...]


def total(expr: Expr, *by: str) -> Expr:
    """The sum, by these labels."""
    return aggregate("sum", expr, *by)


def highest(expr: Expr, *by: str) -> Expr:
    """The maximum, by these labels."""
    return aggregate("max", expr, *by)


def lowest(expr: Expr, *by: str) -> Expr:
    """The minimum, by these labels."""
    return aggregate("min", expr, *by)


def aggregate(operator: str, expr: Expr, *by: str) -> Expr:
    """``sum``, ``max``, ``min``, ``avg``, ``count``, ``stddev``, by these labels."""
    _known(expr, by)
    grouping = f" by ({', '.join(by)})" if by else ""
    return Expr(f"{operator}{grouping} ({expr})", frozenset(by))


def most(n: int, expr: Expr) -> Expr:
    """The ``n`` largest."""
    return Expr(f"topk({n}, {expr})", expr.labels)


def ratio(part: Expr, whole: Expr) -> Expr:
    """One over the other, and nothing where the other is zero."""
    return part / (whole > 0)


def over_time(function: str, expr: Expr, window: str, step: str = "") -> Expr:
    """``avg``, ``max``, ``min``, ``quantile`` … over a window, of a selector, or of any query with a ``step``."""
    inner = f"{_part(expr)}[{window}:{step}]" if step else f"{expr}[{window}]"
    return Expr(f"{function}_over_time({inner})", expr.labels)


def ago(expr: Expr, offset: str) -> Expr:
    """What a selector was then."""
    return Expr(f"{expr} offset {offset}", expr.labels)


def zero() -> Expr:
    """0, where a query has to have something."""
    return Expr("vector(0)")


def absent(expr: Expr) -> Expr:
    """1 where there is no such series."""
    return Expr(f"absent({expr})", expr.labels)


def _joined(left: Expr, operator: str, right: Operand) -> Expr:
    if not isinstance(right, Expr):
        right = number(right)
    if not (left.scalar or right.scalar) and left.labels != right.labels:
        both = " and ".join(", ".join(sorted(side.labels)) or "none" for side in (left, right))
        raise UnknownNameError(
            f"{left} {operator} {right}: their labels differ ({both}); sum by those that both have"
        )
    labels = right.labels if left.scalar else left.labels
    return Expr(f"{_part(left)} {operator} {_part(right)}", labels, whole=False)


def _part(expr: Expr) -> str:
    return expr.text if expr.whole else f"({expr.text})"


def _known(expr: Expr, labels: tuple[str, ...]) -> None:
    if unknown := set(labels) - expr.labels:
        has = ", ".join(sorted(expr.labels)) or "none"
        raise UnknownNameError(f"{expr} has no label {', '.join(sorted(unknown))}; it has {has}")
