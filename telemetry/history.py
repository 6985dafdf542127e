"""The last two minutes, second by second: what a sparkline draws."""

from __future__ import annotations

import msgspec


class Second(msgspec.Struct, frozen=True, array_like=True):
    """One second, as it was when it was over."""

    unix_s: int
    delivered: int = 0
    bad: int = 0
    """Ended otherwise than well: failed, expired, lost."""
    num_bytes: int = 0
    """Of WRITEs (pull: READs) seen done."""
    in_flight: int = 0
    waiting: int = 0
    stuck: int = 0
    """Diagnoses that are no mere information."""
