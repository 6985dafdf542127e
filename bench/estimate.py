"""What is said of repeated measurements: a median with its range, a mean with a 95 % interval."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Hashable, Sequence

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


def mean_of(values: Sequence[float], groups: Sequence[Hashable] | None = None) -> Estimate:
    """The arithmetic mean with its 95 % bootstrap interval.

    ``groups`` names, for each value, what it was measured on. Values of one group have more in common than
    with others, so whole groups are drawn: the interval is then as wide as the groups differ.

    Raises ValueError if there is not one group for each value.
    """
    members: dict[Hashable, list[float]] = {}
    for value, group in zip(values, groups if groups is not None else range(len(values)), strict=True):
        members.setdefault(group, []).append(value)
    clusters = list(members.values())
    draw = random.Random(0)  # the same figures give the same interval
    found = []
    for _ in range(RESAMPLES):
        drawn = draw.choices(clusters, k=len(clusters))
        found.append(sum(map(sum, drawn)) / sum(map(len, drawn)))
    found.sort()
    low, high = found[int(0.025 * RESAMPLES)], found[int(0.975 * RESAMPLES) - 1]
    return Estimate(statistics.fmean(values), low, high, "95 %")


def geometric_mean_of(ratios: Sequence[float], groups: Sequence[Hashable] | None = None) -> Estimate:
    """The geometric mean of ratios with its 95 % bootstrap interval; ``groups`` as in :func:`mean_of`."""
    logs = mean_of([math.log(ratio) for ratio in ratios], groups)
    return Estimate(math.exp(logs.value), math.exp(logs.low), math.exp(logs.high), logs.spread)
