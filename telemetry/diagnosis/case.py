"""What a diagnosis is made of: a transfer, the events of both its sides, its engines, and what is usual."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pushscope.telemetry.diagnosis.model import Diagnosis, Evidence, Severity
from pushscope.telemetry.diagnosis.thresholds import Thresholds
from pushscope.telemetry.half import Facts
from pushscope.telemetry.judge import EngineFacts
from pushscope.telemetry.transfer import Stage, Transfer

Usual = Callable[[str | None, str | None, Stage], int | None]
"""(P engine, D engine, stage) -> its usual time (99th percentile of what was delivered), None if not known."""


class Case(NamedTuple):
    """One transfer to be diagnosed."""

    transfer: Transfer
    p: Facts
    """What P's side recorded."""
    d: Facts
    """What D's side recorded, and (``RegistrationDrained``) what P heard of it."""
    p_engine: EngineFacts
    d_engine: EngineFacts
    now_ns: int
    usual: Usual
    thresholds: Thresholds
    lost_events: bool = False
    """Events of these engines were lost: what was not seen may have happened."""


Rule = Callable[[Case], Diagnosis | None]
"""One cause: its diagnosis if it holds, None if it doesn't."""

__all__ = ["Case", "Diagnosis", "Evidence", "Rule", "Severity", "Usual"]
