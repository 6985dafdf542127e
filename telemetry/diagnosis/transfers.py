"""What is wrong with one transfer: small pure rules in a table, the cause before what came of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pushscope.telemetry.diagnosis import general, handshakes, leases, meeting, slow, writes
from pushscope.telemetry.diagnosis.case import Case, Diagnosis, Rule

GONE: Final[tuple[Rule, ...]] = (general.engine_gone,)
"""Explains whatever is missing."""
MADE_GOOD: Final[tuple[Rule, ...]] = (writes.computed_by_d,)
"""Names what failed, which hurts nobody then; of the two engines it is told as well."""
CAUSES: Final[tuple[Rule, ...]] = (*handshakes.RULES, *writes.CAUSES, *leases.CAUSES, *meeting.CAUSES)
"""Each stands for itself; two can hold at once, on two ranks."""
UNEXPLAINED: Final[tuple[Rule, ...]] = (*writes.UNEXPLAINED, *general.UNEXPLAINED)
"""What waits for want of something, asked only where no cause was found: the first that holds."""
BESIDES: Final[tuple[Rule, ...]] = (
    *leases.BESIDES,
    *meeting.BESIDES,
    *writes.WHAT_CAME_OF_IT,
    *slow.RULES,
)
"""What came of it, and what is worth knowing whatever the cause."""


def diagnose(case: Case) -> tuple[Diagnosis, ...]:
    """What is wrong with a transfer, the cause first; empty if it is healthy and not late.

    What a cause explains altogether is left out. The result depends on the facts alone, not on their order.
    """
    causes = _all(GONE, case) or _all(MADE_GOOD, case) or _all(CAUSES, case) or _all(UNEXPLAINED, case)[:1]
    return (*causes, *_all(BESIDES, case))


def _all(rules: Iterable[Rule], case: Case) -> tuple[Diagnosis, ...]:
    return tuple(found for rule in rules if (found := rule(case)) is not None)
