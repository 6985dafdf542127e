"""Marks: what somebody did to the deployment, and when: a load that starts, a rate that rises, a note made by hand."""

from __future__ import annotations

import msgspec


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """A moment worth a name. Its time is wall time: who marks and who watches may be on different hosts."""

    unix_s: float
    label: str
    """``start``, ``rate 8/s``, ``stop``, or whatever was typed."""
    by: str = ""
    """Who made it: ``lab load (pid 4711)``, ``top``."""
