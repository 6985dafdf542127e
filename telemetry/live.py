"""Snapshots to draw: of engines now, or of a recording as it is played."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from pushscope.telemetry.errors import PushscopeError
from pushscope.telemetry.recording import Playback, RecordingSource
from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.watch import Watcher
from pushscope.telemetry.where import Where


@contextmanager
def snapshots(where: Where, to_end: bool = False) -> Iterator[Callable[[], Snapshot]]:
    """A function that gives the present state each time it is called.

    A recording is played at its own speed. With ``to_end`` it is read to its end at once, and of engines all that is
    there by now. Raises PushscopeError for a file that is no recording, and for agents none of which answers; for a
    recording that is damaged, with ``to_end``, only at the end of the context, so that what lies before the damage can
    be shown.
    """
    with closing(where.open()) as source:
        if isinstance(source, RecordingSource) and not to_end:
            playback = Playback(source)
            watcher = Watcher(playback)

            def of_recording() -> Snapshot:
                while playback.due():
                    watcher.poll()
                return watcher.snapshot()

            yield of_recording
            return
        watcher = Watcher(source)
        damage: PushscopeError | None = None
        if to_end:
            try:
                watcher.read_all()
            except PushscopeError as e:
                if where.is_live:
                    raise
                damage = e

        def at_once() -> Snapshot:
            if where.is_live and not to_end:
                watcher.poll()
            return watcher.snapshot()

        yield at_once
        if damage is not None:
            raise damage
