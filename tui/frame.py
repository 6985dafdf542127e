"""What is drawn at one moment: the snapshot that is shown, and how fresh it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pushscope.telemetry.snapshot import Snapshot
from pushscope.tui.columns import Cell

STARTING: Final = Cell("starting")


@dataclass(frozen=True)
class Frame:
    """All that a screen needs to draw itself."""

    snapshot: Snapshot | None = None
    """None: the source has not answered yet."""
    source: str = ""
    error: str = ""
    """Why the source failed the last time; empty if it didn't."""
    state: Cell = STARTING

    @property
    def notices(self) -> tuple[str, ...]:
        """What must be known of what is shown."""
        if self.snapshot is None:
            return ()  # if the source failed, the whole page says so
        failed = (f"The source failed: {self.error}",) if self.error else ()
        recording = self.snapshot.recording
        unwritten = (recording.error,) if recording is not None and recording.error else ()
        return (*failed, *unwritten, *self.snapshot.notices)
