"""A source that is listened to: it gets the marks of who listens, and is written to a recording, while one is made."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from pushscope.telemetry.marks import Mark
from pushscope.telemetry.recording import RecordingError, RecordingWriter
from pushscope.telemetry.snapshot import RecordingState
from pushscope.telemetry.source import Reading, Source


class Tap:
    """Passes a source on. A recording that can't go on ends, and says why; the source goes on."""

    def __init__(self, source: Source):
        self.label = source.label
        self.ends = source.ends
        self._source = source
        self._writer: RecordingWriter | None = None
        self._began_s = 0.0
        self._error = ""
        self._marks: list[Mark] = []
        """Made here, and not yet given."""

    def add(self, mark: Mark) -> None:
        """Give a mark with the next reading."""
        self._marks.append(mark)

    def poll(self) -> Reading | None:
        reading = self._source.poll()
        if reading is not None and self._marks:
            reading = msgspec.structs.replace(reading, marks=(*reading.marks, *self._marks))
            self._marks.clear()
        if reading is not None and self._writer is not None and not self._error:
            try:
                self._writer.write(reading)
            except RecordingError as e:
                self._error = str(e)
        return reading

    def record(self, path: Path) -> Path:
        """Write what comes from now on to a new file. Raises RecordingError if it can't be made."""
        writer = RecordingWriter(path)
        self.stop()
        self._writer, self._began_s, self._error = writer, time.monotonic(), ""
        return path

    def stop(self) -> None:
        """Close the recording."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def state(self) -> RecordingState | None:
        """Of the recording that is made; None if none is."""
        if self._writer is None:
            return None
        return RecordingState(
            path=str(self._writer.path),
            seconds=time.monotonic() - self._began_s,
            num_events=self._writer.num_events,
            num_bytes=self._writer.num_bytes,
            error=self._error,
        )

    def settle(self) -> None:
        self._source.settle()

    def close(self) -> None:
        self.stop()
        self._source.close()
