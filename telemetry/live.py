"""Snapshots to draw: of this host's engines now, or of a recording as it is played."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from pushscope.telemetry.errors import PushscopeError
from pushscope.telemetry.recording import Playback, RecordingSource
from pushscope.telemetry.ring import default_folder
from pushscope.telemetry.snapshot import Snapshot
from pushscope.telemetry.source import RingsSource
from pushscope.telemetry.watch import Watcher


@contextmanager
def snapshots(
    replay: Path | None = None, to_end: bool = False, rings: Path | None = None
) -> Iterator[Callable[[], Snapshot]]:
    """A function that gives the present state each time it is called.

    A recording is played at its own speed, or with ``to_end`` read to its end at once. Raises PushscopeError
    for a file that is no recording; for one that is damaged, with ``to_end``, only at the end of the context,
    so that what lies before the damage can be shown.
    """
    if replay is None:
        with closing(RingsSource(rings or default_folder())) as source:
            watcher = Watcher(source)

            def of_rings() -> Snapshot:
                watcher.poll()
                return watcher.snapshot()

            yield of_rings
        return
    if to_end:
        damage: PushscopeError | None = None
        with closing(RecordingSource(replay)) as recording:
            watcher = Watcher(recording)
            try:
                watcher.run_to_end()
            except PushscopeError as e:
                damage = e
            yield watcher.snapshot
        if damage is not None:
            raise damage
        return
    with closing(Playback(RecordingSource(replay))) as playback:
        watcher = Watcher(playback)

        def of_recording() -> Snapshot:
            while playback.due():
                watcher.poll()
            return watcher.snapshot()

        yield of_recording
