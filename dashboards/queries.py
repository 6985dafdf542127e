"""Queries that several boards ask."""

from __future__ import annotations

from typing import Final

from pushscope.dashboards.frame import BOARD
from pushscope.dashboards.panel import Target
from pushscope.dashboards.promql import Expr, Scope, Value, ratio, total, zero
from pushscope.telemetry.metrics import catalogue as m
from pushscope.telemetry.metrics.family import Family

BAD: Final = ("failed", "expired", "lost", "nothing_to_push")
"""Outcomes after which D has no KV of P. Aborted ones are the client's will, or its patience."""
QUANTILES: Final = (0.5, 0.9, 0.99)


def quantiles(family: Family, scope: Scope = BOARD, **where: Value) -> tuple[Target, ...]:
    """p50, p90 and p99 of a histogram; exemplars, if it has any, come with the last."""
    last = QUANTILES[-1]
    return tuple(
        Target(scope.quantile(q, family, **where), f"p{q * 100:g}", exemplars=family.exemplars and q == last)
        for q in QUANTILES
    )


def once(family: Family, *by: str, **where: Value) -> Expr:
    """The rate of what both sides count, taken from D, or from P where no D is watched."""
    d, p = (total(BOARD.rate(family, "", role=role, **where), *by) for role in ("D", "P"))
    return d.otherwise(p)


def exposed_share() -> Expr:
    """Of the time that transfers took, the part that the first token waited for. Pull hides nothing."""
    exposed = total(BOARD.rate(m.EXPOSED_SECONDS, "sum"))
    hidden = total(BOARD.rate(m.HIDDEN_SECONDS, "sum")).otherwise(zero())
    return ratio(exposed, exposed + hidden)


def bad_share(*by: str, **where: Value) -> Expr:
    """Of the transfers that ended, those that did not bring their KV."""
    return ratio(once(m.TRANSFERS, *by, **where, outcome=BAD), once(m.TRANSFERS, *by, **where))


def rate_while_moving(**where: Value) -> Expr:
    """Bytes per second of NIXL transfers, over the time that they took, by the engine that posts."""
    moved = total(BOARD.rate(m.NIXL_BYTES, "sum", **where), "engine")
    return ratio(moved, total(BOARD.rate(m.NIXL_SECONDS, "sum", **where, phase="transfer"), "engine"))
