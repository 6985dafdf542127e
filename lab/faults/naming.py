"""Whether and when a fault is named, and that nothing is left of it when it is undone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Set
from dataclasses import dataclass

from pushscope.lab.faults.fault import Fault, Made
from pushscope.lab.faults.sight import Sight
from pushscope.telemetry.diagnosis.model import Diagnosis, Severity
from pushscope.telemetry.snapshot import Snapshot

_EVERY_S = 0.25
_CLEAR_S = 2.0


@dataclass(frozen=True, slots=True)
class Seen:
    """What was named of a fault, how many seconds after it could have been (less than none: before that)."""

    diagnosis: Diagnosis | None
    """None: it was not named as it must be."""
    after_s: float
    besides: tuple[str, ...]
    """What else was named by then: causes of severity error, and of any if nothing was named as it must be."""


Key = tuple[str, str, int]


def told(snapshot: Snapshot) -> frozenset[Key]:
    """What is named: cause, subject and attempt."""
    return frozenset((d.code, d.subject, d.attempt) for d in snapshot.diagnoses)


async def named(
    sight: Sight,
    fault: Fault,
    made: Made,
    timeout_s: float,
    before: Set[Key],
    enough: Callable[[], bool] = lambda: False,
) -> Seen:
    """Look until the fault is named as it must be, ``timeout_s`` have gone by since it could be, or it is
    ``enough``. What was named ``before`` it was made is not it."""
    while True:
        snapshot = sight.look()
        after_s = time.monotonic() - made.nameable_from
        for diagnosis in snapshot.diagnoses:
            key = (diagnosis.code, diagnosis.subject, diagnosis.attempt)
            if diagnosis.code == fault.code and key not in before:
                return Seen(diagnosis, after_s, tuple(sorted(errors(snapshot) - {fault.code})))
        if after_s > timeout_s or enough():
            return Seen(None, after_s, tuple(sorted({d.code for d in snapshot.diagnoses})))
        await asyncio.sleep(_EVERY_S)


async def cleared(sight: Sight, fault: Fault, timeout_s: float) -> float | None:
    """Look until neither that cause nor any of severity error is named, for a moment on end: after how many seconds
    that began; None if not within ``timeout_s``."""
    start = time.monotonic()
    clear_from: float | None = None
    while True:
        now = time.monotonic()
        snapshot = sight.look()
        if errors(snapshot) or any(d.code == fault.code for d in snapshot.diagnoses):
            clear_from = None
            if now - start > timeout_s:
                return None
        elif clear_from is None:
            clear_from = now
        elif now - clear_from > _CLEAR_S:
            return clear_from - start
        await asyncio.sleep(_EVERY_S)


def errors(snapshot: Snapshot) -> set[str]:
    """The causes of severity error that are named now."""
    return {d.code for d in snapshot.diagnoses if d.severity is Severity.ERROR}
