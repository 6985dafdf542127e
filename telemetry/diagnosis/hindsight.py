"""What was wrong with a request that its client gave up: asked after the end, answered from before it."""

from __future__ import annotations

import msgspec

from pushscope.telemetry import events as ev
from pushscope.telemetry.diagnosis.case import Case
from pushscope.telemetry.transfer import Outcome
from pushscope.telemetry.waits import present_stage, who_waits


def before_its_end(case: Case) -> Case | None:
    """The case right before D ended the request; None if D has not, or its blocks had come."""
    ended = case.d.first(ev.RequestEnded)
    if ended is None or case.transfer.outcome is not Outcome.ABORTED:
        return None
    p, d = case.p.before(ended.t), case.d.before(ended.t)
    stages = tuple(
        msgspec.structs.replace(stage, end_ns=None if (stage.end_ns or 0) >= ended.t else stage.end_ns)
        for stage in case.transfer.stages
        if stage.start_ns < ended.t
    )
    stage, since_ns = present_stage(stages) or (None, case.transfer.opened_ns)
    met = p.has(ev.Matched) or d.has(ev.SubmitStarted)
    transfer = msgspec.structs.replace(
        case.transfer,
        outcome=Outcome.MOVING if met else Outcome.WAITING,
        stage=stage,
        stages=stages,
        since_ns=since_ns,
        closed_ns=None,
        error="",
        waits=who_waits(p, d, pull=case.pull, taken_by=case.taken_by),
    )
    return case._replace(transfer=transfer, p=p, d=d, now_ns=ended.t)
