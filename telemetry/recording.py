"""A recording: what a source gave, in a file, from which every view can be drawn again exactly.

The bytes are those of :mod:`pushscope.telemetry.frames`. A file that ends in the middle of a frame, as after a
crash, is good up to there.
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO, Final

from pushscope.telemetry.errors import PushscopeError
from pushscope.telemetry.frames import MAGIC, Decoder, Encoder, FrameError
from pushscope.telemetry.frames import extent as frames_extent
from pushscope.telemetry.source import Reading

_CHUNK_BYTES: Final = 1 << 20


class RecordingError(PushscopeError):
    """A recording cannot be read or written; the message says what was expected, found, and what to do."""


class RecordingWriter:
    """Writes readings to a new file; ``num_events`` and ``num_bytes`` tell how far it is."""

    def __init__(self, path: Path):
        try:
            self._file: BinaryIO = path.open("xb")
        except FileExistsError:
            raise RecordingError(
                f"{path} exists already; give another name, nothing was overwritten"
            ) from None
        except OSError as e:
            raise RecordingError(f"cannot write the recording {path}: {e.strerror}") from e
        self.path = path
        self.num_events = 0
        self.num_bytes = self._file.write(MAGIC)
        self._encoder = Encoder()

    def write(self, reading: Reading) -> None:
        """Append a reading; one that has nothing new is written once a second, so that time passes."""
        data = self._encoder.encode(reading)
        if not data:
            return
        try:
            self.num_bytes += self._file.write(data)
            self._file.flush()
        except OSError as e:
            raise RecordingError(
                f"cannot go on writing {self.path}: {e.strerror}; what was written before can be replayed"
            ) from e
        self.num_events += len(reading.events)

    def close(self) -> None:
        self._file.close()


class RecordingSource:
    """A recording, one reading per poll."""

    ends = True

    def __init__(self, path: Path):
        self.label = str(path)
        self._path = path
        try:
            self._file: BinaryIO = path.open("rb")
        except OSError as e:
            raise RecordingError(f"cannot read the recording {path}: {e.strerror}") from e
        if self._file.read(len(MAGIC)) != MAGIC:
            self._file.close()
            raise RecordingError(
                f"expected a recording at {path}, made by `pushscope record -o FILE`; found another kind of file"
            )
        self._decoder = Decoder()

    def poll(self) -> Reading | None:
        while not self._file.closed:
            try:
                if (reading := self._decoder.next()) is not None:
                    return reading
            except FrameError as e:
                self._file.close()
                raise RecordingError(
                    f"the recording {self._path} {e}; what lies before can be replayed from a copy cut there"
                ) from e
            if not (data := self._file.read(_CHUNK_BYTES)):
                self._file.close()
            self._decoder.feed(data)
        return None

    def settle(self) -> None:
        """All is there."""

    def close(self) -> None:
        self._file.close()


def extent(path: Path) -> tuple[int, int]:
    """When a recording begins and ends, in nanoseconds of its own clock. Raises RecordingError if it can't be read."""
    try:
        with path.open("rb") as file:
            return frames_extent(file)
    except OSError as e:
        raise RecordingError(f"cannot read the recording {path}: {e.strerror}") from e
