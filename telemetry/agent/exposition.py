"""What an agent shows at ``/metrics``, kept over restarts: a counter never falls behind what was shown of it.

An agent that starts reads the rings from their oldest event on, and counts what lies behind the figures that the one
before had saved. That brings back what it had counted itself; not always what it knew of transfers through its peers,
who have to be reached first. So figures are saved before they are shown: what a scraper has seen is in the file.
Between scrapes they are saved every few seconds, since rings forget.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pushscope.telemetry.agent.files import content, replaced
from pushscope.telemetry.agent.follow import Follower
from pushscope.telemetry.errors import PushscopeError
from pushscope.telemetry.metrics.page import Own, rendered
from pushscope.telemetry.metrics.state import State, load

NAME: Final = "agent.metrics"
SAVE_S: Final = 5.0
"""Rings hold what engines say in so long."""
_MAX_BYTES: Final = 1 << 28


class Exposition:
    """The page of one agent, and the file with its figures. ``page`` from any thread, the rest from the agent's own.

    Before it is opened, before anything is read, and after it is closed the page tells of the process only: nothing
    is shown that is not saved, and nothing is written that the next agent would not know of.

    ``trouble`` says, in words, why figures can't be kept; they are shown all the same.
    """

    def __init__(self, follower: Follower, own: Callable[[], Own]):
        """``own``: the agent's figures of its own work."""
        self._follower, self._own = follower, own
        self._file: Path | None = None
        self._saving = threading.Lock()
        """Held from when figures are looked at until they are written: files come in the order of what they tell."""
        self._saved_s = 0.0
        self.trouble = ""

    def open(self, folder: Path) -> None:
        """Go on from the figures in a folder, and keep them there from now on. Before anything is read."""
        self._follower.go_on_from(self._read(folder / NAME))
        self._file = folder / NAME

    def keep(self) -> None:
        """Save, if it is time."""
        if time.monotonic() - self._saved_s >= SAVE_S:
            with self._saving:
                self._write(self._follower.state())

    def close(self) -> None:
        """Save, and write nothing more."""
        with self._saving:
            self._write(self._follower.state())
            self._file = None

    def page(self, accept: str) -> tuple[bytes, str]:
        """The page and its content type, by a request's ``Accept`` header."""
        with self._saving:
            own = self._own()
            metrics, state = self._follower.gathered(own) if self._file else ((), b"")
            self._write(state)
        return rendered(metrics, accept)

    def _write(self, state: bytes) -> None:
        if self._file is None or not state:
            return
        self._saved_s = time.monotonic()
        try:
            os.close(replaced(self._file, state))
        except OSError as e:
            self.trouble = (
                f"the metrics can't be kept in {self._file} ({e.strerror}): after a restart counters begin with what "
                f"the rings still hold"
            )
        else:
            self.trouble = ""

    def _read(self, path: Path) -> State:
        try:
            data = content(path, _MAX_BYTES)
            return State() if data is None else load(data)
        except OSError as e:
            why = e.strerror or str(e)
        except PushscopeError as e:
            why = str(e)
        self.trouble = (
            f"the metrics kept in {path} can't be read ({why}): counters begin with what the rings still hold"
        )
        return State()
