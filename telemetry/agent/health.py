"""What ``/healthz`` says: is all well, and if not, what is not."""

from __future__ import annotations

import msgspec

from pushscope.telemetry.agent.export import ExportStatus


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """How an agent stands. It answers 200 as long as it reads: a dead endpoint is no reason to restart it."""

    version: str = ""
    """Of pushscope; empty if it runs from source."""
    pid: int
    host: str
    rings: str
    """The folder."""
    uptime_s: float
    read_s_ago: float
    """How long ago it has read the rings last: large if it hangs."""
    num_rings: int = 0
    num_alive: int = 0
    """Of the rings, those whose process is there."""
    num_engines: int = 0
    peers: tuple[str, ...] = ()
    export_off: str = ""
    """Why no spans are exported, in words; empty if they are, or will be when there are some."""
    exports: tuple[ExportStatus, ...] = ()
    """By endpoint; of this process."""
    counts: dict[str, float] = {}
    """Of this and of earlier agents of the folder: spans exported, spans dropped by reason; of the engines that are
    observed transfers by side and outcome."""
    troubles: tuple[str, ...] = ()
    """What is not as it should be: whole sentences."""
