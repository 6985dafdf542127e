"""One measured figure, beside its reference and its budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from bench.estimate import Estimate, median_of, ratio_of

Progress = Callable[[float, str], None]
"""Called with the part of the work that is done (0 to 1) and what is being done."""


class BenchError(Exception):
    """A bench that cannot run here; the message says why, in one sentence."""


class Settings(msgspec.Struct, frozen=True):
    """What the command line sets for all benches."""

    pairs: int = 30
    """Interleaved pairs of loads in ``serving`` and ``control``."""


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured; without a budget it stands for information."""

    what: str
    unit: str
    measured: Estimate
    reference: Estimate | None = None
    """In the same unit, measured in the same run."""
    reference_is: str = ""
    ratio: Estimate | None = None
    """Measured over reference."""
    budget: str = ""
    """In words, such as ``<= 20 us``."""
    held: bool | None = None
    """None without a budget."""

    def against(self, budget: str, *, held: bool) -> Figure:
        """The same figure with a budget."""
        return msgspec.structs.replace(self, budget=budget, held=held)


def compared(
    what: str, unit: str, ours: Sequence[float], reference: Sequence[float], reference_is: str
) -> Figure:
    """A figure of values measured side by side: medians, and the median of their ratios."""
    return Figure(
        what=what,
        unit=unit,
        measured=median_of(ours),
        reference=median_of(reference),
        reference_is=reference_is,
        ratio=ratio_of(ours, reference),
    )
