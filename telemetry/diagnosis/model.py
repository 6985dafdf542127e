"""What a diagnosis is: a word for the cause, one sentence, the evidence, and what to do."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from pushscope.telemetry.transfer import Rank


class Severity(StrEnum):
    """How bad it is."""

    INFO = "info"
    """Not a fault; good to know, and often mistaken for one."""
    WARNING = "warning"
    """It may still come right by itself, or costs time or memory."""
    ERROR = "error"
    """It will not come right by itself: a request hangs, is lost, or may have wrong data."""


WORST_FIRST: Final = (Severity.ERROR, Severity.WARNING, Severity.INFO)


class Evidence(msgspec.Struct, frozen=True):
    """One event that a diagnosis rests on, for people: what, when, where."""

    t_ns: int
    engine: str
    what: str
    rank: Rank | None = None
    """None: the scheduler's."""


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with one transfer or one engine, and what to do.

    ``subject`` is what it is about: a transfer's base id, or an engine id. ``certain`` is False where only one
    side was observed or events were lost: the sentence says so then.
    """

    code: str
    severity: Severity
    subject: str
    attempt: int = 0
    """Of a transfer; 0 if it is about an engine."""
    sentence: str
    evidence: tuple[Evidence, ...] = ()
    since_ns: int
    """When what is wrong began (CLOCK_MONOTONIC nanoseconds)."""
    certain: bool = True
    remedy: str = ""
    costs: tuple[tuple[str, int], ...] = ()
    """Of an engine: the transfers, by base id and attempt, that failed of it or wait for what will not come; at most
    a thousand."""

    @property
    def runbook(self) -> str:
        """Where it is explained: a section of the runbooks, named by the code."""
        return f"docs/runbooks.md#{self.code}"
