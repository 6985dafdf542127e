"""What is said of repeated measurements: a median with its range, a mean with a 95 % interval."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Sequence

import msgspec

RESAMPLES = 10_000


class Estimate(msgspec.Struct, frozen=True):
    """A value with the bounds of its spread; ``spread`` says what they are."""

    value: float
    low: float
    high: float
    spread: str = "min-max"
    """``min-max``, or ``95 %`` for a bootstrap interval."""


def median_of(values: Sequence[float]) -> Estimate:
    """The median, between the smallest and the largest value."""
    return Estimate(statistics.median(values), min(values), max(values))


def ratio_of(ours: Sequence[float], reference: Sequence[float]) -> Estimate:
    """The median of the ratios of values measured side by side.

    Raises ValueError if there is not one reference for each value.
    """
    return median_of([a / b for a, b in zip(ours, reference, strict=True)])


def differences(ours: Sequence[float], reference: Sequence[float]) -> list[float]:
    """How much more each value is than the one measured beside it."""
    return [a - b for a, b in zip(ours, reference, strict=True)]


def mean_of(values: Sequence[float], *, seed: int = 0) -> Estimate:
    """The arithmetic mean with its 95 % bootstrap interval."""
    return _bootstrap(values, statistics.fmean, seed)


def geometric_mean_of(ratios: Sequence[float], *, seed: int = 0) -> Estimate:
    """The geometric mean of ratios with its 95 % bootstrap interval."""
    logs = mean_of([math.log(ratio) for ratio in ratios], seed=seed)
    return Estimate(math.exp(logs.value), math.exp(logs.low), math.exp(logs.high), logs.spread)


def _bootstrap(
    values: Sequence[float], statistic: Callable[[Sequence[float]], float], seed: int
) -> Estimate:
    """Percentile bootstrap: the statistic of many samples drawn from ``values`` with replacement."""
    draw = random.Random(seed)
    size = len(values)
    found = sorted(statistic(draw.choices(values, k=size)) for _ in range(RESAMPLES))
    low, high = found[int(0.025 * RESAMPLES)], found[int(0.975 * RESAMPLES) - 1]
    return Estimate(statistic(values), low, high, "95 %")
