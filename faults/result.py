"""What a run of all faults showed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
from bench.machine import Machine

from pushscope.lab.faults.fault import Lease

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
JSON, PAGE = FOLDER / "faults.json", FOLDER / "faults.md"
WITHIN_S = 10.0
"""A fault is named so soon after it was made."""
WITHIN_LEASE_S = 3.0
"""Or so soon after the lease's end, if one must run out first."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One fault. Times are seconds; None: it did not happen."""

    fault: str
    code: str
    lease: Lease
    """Times are from the moment that the lease, or its half, was over."""
    named_s: float | None
    """Less than none: it was named before the lease was over."""
    severity: str = ""
    sentence: str = ""
    besides: tuple[str, ...] = ()
    """What else was named by then: causes of severity error, and of any if it was not named as it must be."""
    cleared_s: float | None = None
    """From the end of the undoing until nothing of severity error was named."""
    error: str = ""
    """Why it could not be made."""

    @property
    def held(self) -> bool:
        """Whether it was named in time, and was gone when it was undone."""
        limit_s = WITHIN_LEASE_S if self.lease else WITHIN_S
        return self.named_s is not None and self.named_s <= limit_s and self.cleared_s is not None


class Result(msgspec.Struct, frozen=True):
    """A run."""

    machine: Machine
    lease_s: float
    rows: tuple[Row, ...]

    def updated(self, rows: Iterable[Row]) -> Result:
        """This run with some rows of a later one on the same machine."""
        later = {row.fault: row for row in rows}
        return msgspec.structs.replace(self, rows=tuple(later.get(row.fault, row) for row in self.rows))


def read() -> Result:
    """The committed run."""
    return msgspec.json.decode(JSON.read_bytes(), type=Result)
