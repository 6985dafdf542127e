"""How long things take: mostly about as long as usual, now and then very much longer."""

from __future__ import annotations

import math
from random import Random

import msgspec


class Lognormal(msgspec.Struct, frozen=True):
    """Times around a median; ``sigma`` is the spread of their logarithm. None is longer than ``most_s``."""

    median_s: float
    sigma: float
    most_s: float

    def ns(self, random: Random) -> int:
        return int(min(self.most_s, self.median_s * math.exp(random.gauss(0.0, self.sigma))) * 1e9)


class Pareto(msgspec.Struct, frozen=True):
    """Times with a tail so heavy that there is hardly a mean: ``least_s`` and up to ``most_s``."""

    least_s: float
    alpha: float
    most_s: float

    def ns(self, random: Random) -> int:
        return int(min(self.most_s, self.least_s * random.paretovariate(self.alpha)) * 1e9)


class Between(msgspec.Struct, frozen=True):
    """Any time from ``least_s`` to ``most_s`` alike."""

    least_s: float
    most_s: float

    def ns(self, random: Random) -> int:
        return int(random.uniform(self.least_s, self.most_s) * 1e9)


class Poisson(msgspec.Struct, frozen=True):
    """Times between what comes by itself, so many a second."""

    per_s: float

    def ns(self, random: Random) -> int:
        return int(random.expovariate(self.per_s) * 1e9)


Chance = Lognormal | Pareto | Between | Poisson
