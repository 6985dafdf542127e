"""The thread that asks the source for snapshots, so that a slow source never holds up the screen."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

from pushscope.telemetry.marks import Mark
from pushscope.telemetry.playback import Player
from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.transfer import Transfer
from pushscope.telemetry.why.account import Attempt

SnapshotSource = Callable[[], Snapshot]
"""Gives the present state each time it is called; may take its time, may raise."""


_BREATH_S: Final = 0.01
"""Between two snapshots the screen must come to draw."""


class Controls(Protocol):
    """What a screen can do with what it watches: :class:`pushscope.telemetry.session.Session`.

    Everything is called in the feed's thread.
    """

    player: Player | None
    """Of a recording; None if engines are watched."""

    @property
    def is_behind(self) -> bool:
        """Whether the next snapshot is to be taken at once."""

    def explain(self, transfer: Transfer) -> Attempt | None:
        """Its events; None if they are not held any more."""

    def record(self, path: Path | None = None) -> Path:
        """Record from now on."""

    def stop_recording(self) -> None:
        """Close the recording."""

    def mark(self, label: str) -> Mark:
        """Give this moment a name."""


class Feed:
    """Asks ``source`` every ``refresh_s`` seconds and hands on what it gave, or why it failed.

    ``on_snapshot`` and ``on_error`` are called in the feed's thread. An error doesn't end the feed: the next
    turn asks again. While the source ``hurries``, it is asked again at once.
    """

    def __init__(
        self,
        source: SnapshotSource,
        refresh_s: float,
        *,
        on_snapshot: Callable[[Snapshot], None],
        on_error: Callable[[str], None],
        hurries: Callable[[], bool] = lambda: False,
    ) -> None:
        self._source = source
        self._refresh_s = refresh_s
        self._on_snapshot = on_snapshot
        self._on_error = on_error
        self._hurries = hurries
        self._ended = threading.Event()
        self._asked: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        # A daemon: a source that hangs must not keep the program from ending.
        self._thread = threading.Thread(target=self._run, name="pushscope-feed", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 0.5) -> None:
        """Ask no more; waits up to ``timeout_s`` for a question under way."""
        self._ended.set()
        self._asked.put(None)
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def ask(self, question: Callable[[], Any]) -> None:
        """Have something done in the feed's thread, between two snapshots; the next snapshot comes at once."""
        self._asked.put(question)

    def _run(self) -> None:
        while not self._ended.is_set():
            self._take(self._source, self._on_snapshot)
            self._wait()

    def _wait(self) -> None:
        """Until the next snapshot is due, or something was asked and done."""
        try:
            question = self._asked.get(timeout=_BREATH_S if self._hurries() else self._refresh_s)
            while question is not None:
                self._take(question)
                question = self._asked.get_nowait()
        except queue.Empty:
            return

    def _take(self, question: Callable[[], Any], hand_on: Callable[[Any], None] | None = None) -> None:
        try:
            answer = question()
        except Exception as error:  # noqa: BLE001 (whatever a source raises is shown on the screen)
            if not self._ended.is_set():
                self._on_error(f"{type(error).__name__}: {error}")
        else:
            if hand_on is not None and not self._ended.is_set():
                hand_on(answer)
