"""What a family of metrics is: a name, a kind, labels from closed sets, and what good looks like."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from itertools import product
from typing import Final

import msgspec

PARTS: Final = ("P", "D")
"""What an engine can be in a transfer: it has computed the prompt, or it goes on with it."""
PUSH, PULL = "push", "pull"

_DECADE: Final = ("1", "2.5", "5")


def decades(first: int, last: int) -> tuple[float, ...]:
    """Bucket bounds from ten to the ``first`` up to ten to the ``last``, three in each decade."""
    steps = [float(f"{step}e{power}") for power in range(first, last) for step in _DECADE]
    return (*steps, float(f"1e{last}"))


SECONDS: Final = decades(-6, 2)
"""1 µs to 100 s."""
WAIT_SECONDS: Final = decades(-3, 2)
"""1 ms to 100 s: no whole transfer is faster than that."""
BYTES: Final = tuple(float(1 << power) for power in range(10, 36, 2))
"""1 KiB to 16 GiB, each four times the one before."""
COUNTS: Final = tuple(float(1 << power) for power in range(0, 22, 2))
"""1 to about a million."""


class Kind(StrEnum):
    """Prometheus' types, as far as they occur here."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    SUMMARY = "summary"
    """A sum and a count: a mean, at two series instead of some thirty."""
    INFO = "info"
    """Always 1; the labels are what it says."""


class Of(StrEnum):
    """What a series of a family is about."""

    ENGINE = "an engine"
    PAIR = "an engine and a peer"
    HOSTS = "two hosts"
    AGENT = "the agent"


_IMPLIED: Final[dict[Of, tuple[str, ...]]] = {
    Of.ENGINE: ("engine",),
    Of.PAIR: ("engine", "peer"),
    Of.HOSTS: ("host", "peer_host"),
    Of.AGENT: (),
}


class Label(msgspec.Struct, frozen=True):
    """A label. Its values are a closed set, or bounded by what there is (engines, ranks)."""

    name: str
    meaning: str
    p: tuple[str, ...] = ()
    """The values at an engine that is P; empty: not known beforehand."""
    d: tuple[str, ...] = ()
    """The same of D."""

    def values(self, part: str, mode: str) -> tuple[str, ...]:
        """What it can be at an engine that plays ``part`` in ``mode``."""
        if self.name == "mode":
            return (mode,)
        return self.p if part == "P" else self.d

    @property
    def all_values(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.p, *self.d)))


def closed(name: str, meaning: str, *values: str) -> Label:
    """A label with the same values at P and D."""
    return Label(name, meaning, values, values)


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """One family. Its name is what a query says; of histograms and summaries without their endings (``samples``)."""

    name: str
    kind: Kind
    of: Of
    help: str
    """What is counted or measured."""
    good: str
    """What good looks like, and what to do when it isn't so."""
    own: tuple[Label, ...] = ()
    """Labels apart from those that say what it is about."""
    unit: str = ""
    """A unit by Prometheus' conventions, the end of the name; empty for mere numbers."""
    parts: tuple[str, ...] = PARTS
    """Which engines have it."""
    buckets: tuple[float, ...] = ()
    exemplars: bool = False
    joined: bool = False
    """Needs what both sides saw; absent where the other side's agent is not a peer of D's."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of all labels, in the order of their values."""
        return (*_IMPLIED[self.of], *(label.name for label in self.own))

    @property
    def samples(self) -> tuple[str, ...]:
        """What its series are called."""
        match self.kind:
            case Kind.HISTOGRAM:
                return tuple(f"{self.name}_{end}" for end in ("bucket", "count", "sum"))
            case Kind.SUMMARY:
                return tuple(f"{self.name}_{end}" for end in ("count", "sum"))
        return (self.name,)

    @property
    def lines(self) -> int:
        """Series for one set of label values."""
        return len(self.buckets) + 3 if self.kind is Kind.HISTOGRAM else len(self.samples)

    def known(self, parts: tuple[str, ...], mode: str) -> Iterator[tuple[str, ...]]:
        """The values of its own labels that an engine's series can have, known before anything happened.

        None if one of them (a rank, a code) isn't known beforehand. ``parts`` are what the engine can be.
        """
        found = [
            values
            for part in parts
            if part in self.parts
            for values in product(*(label.values(part, mode) for label in self.own))
        ]
        yield from dict.fromkeys(found)
