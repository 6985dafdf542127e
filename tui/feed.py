"""The thread that asks the source for snapshots, so that a slow source never holds up the screen."""

from __future__ import annotations

import threading
from collections.abc import Callable

from pushscope.telemetry.snapshot import Snapshot

SnapshotSource = Callable[[], Snapshot]
"""Gives the present state each time it is called; may take its time, may raise."""


class Feed:
    """Asks ``source`` every ``refresh_s`` seconds and hands on what it gave, or why it failed.

    ``on_snapshot`` and ``on_error`` are called in the feed's thread. An error doesn't end the feed: the next
    turn asks again.
    """

    def __init__(
        self,
        source: SnapshotSource,
        refresh_s: float,
        *,
        on_snapshot: Callable[[Snapshot], None],
        on_error: Callable[[str], None],
    ) -> None:
        self._source = source
        self._refresh_s = refresh_s
        self._on_snapshot = on_snapshot
        self._on_error = on_error
        self._ended = threading.Event()
        # A daemon: a source that hangs must not keep the program from ending.
        self._thread = threading.Thread(target=self._run, name="pushscope-feed", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 0.5) -> None:
        """Ask no more; waits up to ``timeout_s`` for a question under way."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                snapshot = self._source()
            except Exception as error:  # noqa: BLE001 (whatever a source raises is shown on the screen)
                if not self._ended.is_set():
                    self._on_error(f"{type(error).__name__}: {error}")
            else:
                if not self._ended.is_set():
                    self._on_snapshot(snapshot)
            self._ended.wait(self._refresh_s)
