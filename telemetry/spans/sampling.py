"""Which transfers have spans: all that went wrong or took long, of the rest a share that every host picks alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pushscope.telemetry.diagnosis.case import Usual
from pushscope.telemetry.diagnosis.model import Diagnosis, Severity
from pushscope.telemetry.group import Sides
from pushscope.telemetry.spans.identity import identity_of
from pushscope.telemetry.spans.ids import share_of
from pushscope.telemetry.transfer import WENT_WRONG, Transfer

TIMES_USUAL: Final = 2
"""Slow is a stage that took more than so many times its usual (99th percentile) time between these engines."""
_NOT_WORTH_IT_NS: Final = 1_000_000
"""No stage that was shorter is called slow."""


def sampled(
    transfer: Transfer, sides: Sides, diagnoses: Sequence[Diagnosis], usual: Usual, ratio: float
) -> bool:
    """Whether a transfer is to have spans; ``ratio`` (0 to 1) is for those of which nothing else decides.

    What the request's caller decided stands (which side's caller, :func:`.make.spans_of` looks at again). Two hosts
    that never talk pick the same ones: the ratio goes by a hash of the ids that join P's and D's spans.
    """
    identity = identity_of(transfer, sides.p, sides.d)
    if callers := [c for c in (identity.d_caller, identity.p_caller) if c is not None]:
        return any(caller.sampled for caller in callers)
    if transfer.outcome in WENT_WRONG or any(d.severity is not Severity.INFO for d in diagnoses):
        return True
    return is_slow(transfer, usual) or share_of(*identity.p_key) < ratio


def is_slow(transfer: Transfer, usual: Usual) -> bool:
    """Whether a stage of it took much longer than it usually does between the same two engines."""
    for s in transfer.stages:
        if s.end_ns is None or s.end_ns - s.start_ns < _NOT_WORTH_IT_NS:
            continue
        usual_ns = usual(transfer.p_engine, transfer.d_engine, s.stage)
        if usual_ns is not None and s.end_ns - s.start_ns > TIMES_USUAL * usual_ns:
            return True
    return False
