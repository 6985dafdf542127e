"""What a run of all faults showed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec
from bench.machine import Machine

from pushscope.lab.faults.fault import Lease

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
JSON, PAGE = FOLDER / "faults.json", FOLDER / "faults.md"
WITHIN_S = 10.0
"""A fault is named so soon after it was made."""
WITHIN_LEASE_S = 3.0
"""Or so soon after the lease's end, if one must run out first."""


Wait = Lease | Literal["pile"]
"""What must have run out before a cause can be known: P's lease, half of it, or the time after which what nobody
waits for is called a pile."""


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """Whether and when a cause was named. Times are seconds; None: it did not happen."""

    code: str
    """The cause that it must be named with."""
    lease: Wait = ""
    """Times are from the moment that this had run out."""
    named_s: float | None
    """Less than none: it was named before that."""
    severity: str = ""
    sentence: str = ""
    besides: tuple[str, ...] = ()
    """What else was named by then: causes of severity error, and of any if it was not named as it must be."""

    @property
    def limit_s(self) -> float:
        return WITHIN_LEASE_S if self.lease else WITHIN_S

    @property
    def in_time(self) -> bool:
        return self.named_s is not None and self.named_s <= self.limit_s


class Row(Named, frozen=True, kw_only=True):
    """One fault of the lab, made and undone."""

    fault: str
    cleared_s: float | None = None
    """From the end of the undoing until nothing of severity error was named."""
    error: str = ""
    """Why it could not be made."""

    @property
    def held(self) -> bool:
        """Whether it was named in time, and was gone when it was undone."""
        return self.in_time and self.cleared_s is not None


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
