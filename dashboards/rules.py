"""What Prometheus records beforehand: quantiles that boards and alerts share, and what is usual.

Only times with traffic are recorded, so that an idle night is not what is usual.
"""

from __future__ import annotations

from typing import Final

import msgspec

from pushscope.dashboards import names
from pushscope.dashboards.promql import Expr, Recorded, Scope, aggregate, over_time, recorded, total
from pushscope.telemetry.metrics import catalogue as m

WINDOW: Final = "5m"
USUAL_WINDOW: Final = "1d"
FLOOR_PER_S: Final = 0.05
"""Fewer than three a minute are too few to tell a quantile, or a slow rank, of."""


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A recording rule."""

    record: Recorded
    expr: Expr
    what: str
    """What is recorded, in a few words."""

    @property
    def sentence(self) -> str:
        """The same as a sentence."""
        return f"{self.what[:1].upper()}{self.what[1:]}."

    def __post_init__(self) -> None:
        if self.expr.labels != set(self.record.labels):
            raise ValueError(
                f"expected that {self.record.name} has the labels {sorted(self.record.labels)}, found that its query "
                f"gives {sorted(self.expr.labels)}"
            )


_RECENT: Final = Scope(WINDOW)


def _exposed(q: float, *by: str) -> Expr:
    """A quantile of exposed time where there is traffic."""
    rate = total(_RECENT.rate(m.EXPOSED_SECONDS, "count"), *by)
    return _RECENT.quantile(q, m.EXPOSED_SECONDS, *by).both(rate > FLOOR_PER_S)


def _rank_mean() -> Expr:
    by = names.RANK_MEAN.labels
    seconds, count = (total(_RECENT.rate(m.RANK_STAGE_SECONDS, end), *by) for end in ("sum", "count"))
    return seconds / (count > FLOOR_PER_S)


def _others() -> Expr:
    """The sum of all ranks less the rank itself, over how many the others are."""
    mean = recorded(names.RANK_MEAN)
    of_stage = tuple(label for label in names.RANK_MEAN.labels if label != "rank")
    number = aggregate("count", mean, *of_stage) - 1
    # -mean + sum, since the one side of a match that has many series stands on the left.
    rest = (-1 * mean).matched("+", total(mean, *of_stage), *of_stage)
    return rest.matched("/", number > 0, *of_stage)


RULES: Final = (
    *(
        Rule(
            record=record,
            expr=_exposed(q, *record.labels),
            what=f"exposed time of a deployment, p{q * 100:.0f}, where there is traffic",
        )
        for q, record in ((0.5, names.EXPOSED_P50), (0.9, names.EXPOSED_P90), (0.99, names.EXPOSED_P99))
    ),
    Rule(
        record=names.EXPOSED_USUAL,
        expr=over_time("quantile", recorded(names.EXPOSED_P90), USUAL_WINDOW, q=0.5),
        what="what the p90 usually is: its median over a day",
    ),
    Rule(
        record=names.ENGINE_EXPOSED_P90,
        expr=_exposed(0.9, *names.ENGINE_EXPOSED_P90.labels),
        what="exposed time of one D engine, p90, where there is traffic",
    ),
    Rule(
        record=names.STAGE_P99,
        expr=_RECENT.quantile(0.99, m.STAGE_SECONDS, *names.STAGE_P99.labels).both(
            total(_RECENT.rate(m.STAGE_SECONDS, "count"), *names.STAGE_P99.labels) > FLOOR_PER_S
        ),
        what="each stage of a deployment, p99, where there is traffic",
    ),
    Rule(record=names.RANK_MEAN, expr=_rank_mean(), what="the mean of each rank in each stage"),
    Rule(record=names.RANK_OTHERS, expr=_others(), what="the mean of the engine's other ranks in that stage"),
)
"""In the order in which they build on each other."""
