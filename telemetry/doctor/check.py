"""One thing that doctor looked at, and how it stands."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Level(StrEnum):
    """How a thing stands, from good to bad."""

    OK = "ok"
    INFORMATION = "information"
    """Neither right nor wrong, only worth knowing."""
    WARNING = "warning"
    """Something is not seen, or goes wrong under some conditions."""
    FAILURE = "failure"
    """Nothing is seen, or transfers fail."""


EXIT_STATUS = {Level.OK: 0, Level.INFORMATION: 0, Level.WARNING: 1, Level.FAILURE: 2}


class Group(StrEnum):
    """Where a check belongs."""

    INSTALLED = "installed"
    SEAMS = "seams"
    RINGS = "rings"
    NIXL = "NIXL"
    NETWORK = "network"
    ENGINES = "engines"
    AGENT = "agent"


class Check(msgspec.Struct, frozen=True):
    """One thing looked at."""

    group: Group
    subject: str
    level: Level
    finding: str
    """What was found, in words."""
    remedy: str = ""
    """What to do; empty if nothing has to be done."""


class Examination(msgspec.Struct, frozen=True):
    """What ``--json`` prints."""

    level: Level
    """The worst of the checks."""
    checks: tuple[Check, ...]


def worst(checks: tuple[Check, ...]) -> Level:
    """The worst level among ``checks``."""
    order = list(Level)
    return max((check.level for check in checks), key=order.index, default=Level.OK)
