"""When waiting is too long: in relation to the lease, to what is usual, and never below a floor.

Nothing has to be tuned: a stage is late when it takes many times what it usually takes between these two engines,
and no wait shorter than the floor is ever called late. Each can be set (``PUSHSCOPE_LATE_*``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

import msgspec

from pushscope.telemetry.errors import PushscopeError

PREFIX: Final = "PUSHSCOPE_LATE_"


class Thresholds(msgspec.Struct, frozen=True):
    """Seconds and factors."""

    floor_s: float = 3.0
    """No wait that is shorter is called late."""
    times_usual: float = 20.0
    """Late is so many times the usual (99th percentile) time of the stage between the same two engines."""
    lease_share: float = 0.5
    """A wait that an engine pays for with held blocks is late when this share of the lease is gone."""
    one_sided: float = 2.0
    """What is known of one side only has to wait so many times longer before it is named."""

    def late_after_ns(self, usual_ns: int | None, *, one_sided: bool = False) -> int:
        """How long a stage may last, by its usual time (None: not known)."""
        seconds = max(self.floor_s, self.times_usual * (usual_ns or 0) / 1e9)
        return int(seconds * (self.one_sided if one_sided else 1) * 1e9)


DEFAULT: Final = Thresholds()


def from_environment(environ: Mapping[str, str] = os.environ) -> Thresholds:
    """The thresholds as the environment sets them; raises PushscopeError for what is no number above zero."""
    found = {}
    for name in Thresholds.__struct_fields__:
        text = environ.get(PREFIX + name.upper())
        if text is None:
            continue
        try:
            found[name] = float(text)
        except ValueError:
            found[name] = 0.0
        if not 0 < found[name] < float("inf"):
            raise PushscopeError(
                f"Expected {PREFIX}{name.upper()} to be a number above zero, found {text!r}: unset it, or give one."
            )
    return Thresholds(**found)
