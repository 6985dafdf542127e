"""A recording: what a source gave, in a file, from which every view can be drawn again exactly.

A magic line, then frames: u32 length, u32 crc32, msgpack of :class:`_Rings` (a new set of rings) or
:class:`_Frame` (one poll, its rings by index into the last set). Events stay as the engine encoded them. A
file that ends in the middle of a frame, as after a crash, is good up to there.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final
from zlib import crc32

import msgspec

from pushscope.telemetry.errors import PushscopeError
from pushscope.telemetry.events import Origin
from pushscope.telemetry.source import Reading, RingState

MAGIC: Final = b"PUSHSCOPE RECORDING 1\n"
_FRAME: Final = struct.Struct("<II")
_MAX_FRAME_BYTES: Final = 256 << 20
_QUIET_NS: Final = 1_000_000_000


class RecordingError(PushscopeError):
    """A recording cannot be read or written; the message says what was expected, found, and what to do."""


class _Rings(msgspec.Struct, frozen=True, tag="rings", array_like=True):
    origins: tuple[Origin, ...]


class _Frame(msgspec.Struct, frozen=True, tag="frame", array_like=True):
    t_ns: int
    unix_ns: int
    states: tuple[tuple[bool, int, int, int], ...]
    """(alive, lost, torn, forgotten) of each ring."""
    events: tuple[tuple[int, bytes], ...]
    notices: tuple[str, ...] = ()
    stopped: tuple[int, ...] = ()
    """The rings, by their place, whose process was stopped."""


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Rings | _Frame).decode


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
        self._origins: tuple[Origin, ...] | None = None
        self._last_states: object = None
        self._last_t_ns = 0

    def write(self, reading: Reading) -> None:
        """Append a reading; one that has nothing new is written once a second, so that time passes."""
        origins = tuple(state.origin for state in reading.rings)
        states = tuple((state.alive, state.lost, state.torn, state.forgotten) for state in reading.rings)
        stopped = tuple(place for place, state in enumerate(reading.rings) if state.stopped)
        news = reading.events or origins != self._origins or (states, stopped) != self._last_states
        if not news and reading.t_ns - self._last_t_ns < _QUIET_NS:
            return
        if origins != self._origins:
            self._append(_Rings(origins))
        self._origins, self._last_states, self._last_t_ns = origins, (states, stopped), reading.t_ns
        events = tuple(reading.events)
        self._append(_Frame(reading.t_ns, reading.unix_ns, states, events, reading.notices, stopped))
        self._file.flush()
        self.num_events += len(reading.events)

    def close(self) -> None:
        self._file.close()

    def _append(self, frame: _Rings | _Frame) -> None:
        body = _encode(frame)
        try:
            self.num_bytes += self._file.write(_FRAME.pack(len(body), crc32(body)) + body)
        except OSError as e:
            raise RecordingError(
                f"cannot go on writing {self.path}: {e.strerror}; what was written before can be replayed"
            ) from e


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
        self._origins: tuple[Origin, ...] = ()

    def poll(self) -> Reading | None:
        while True:
            if self._file.closed:
                return None
            try:
                frame = self._next()
            except BaseException:
                self._file.close()
                raise
            if frame is None:
                self._file.close()
                return None
            if isinstance(frame, _Rings):
                self._origins = frame.origins
                continue
            rings = tuple(
                RingState(origin, *state, stopped=place in frame.stopped)
                for place, (origin, state) in enumerate(zip(self._origins, frame.states, strict=True))
            )
            return Reading(frame.t_ns, frame.unix_ns, rings, frame.events, frame.notices)

    def close(self) -> None:
        self._file.close()

    def _next(self) -> _Rings | _Frame | None:
        head = self._file.read(_FRAME.size)
        if len(head) < _FRAME.size:
            return None
        length, crc = _FRAME.unpack(head)
        body = self._file.read(length) if length <= _MAX_FRAME_BYTES else b""
        if length <= _MAX_FRAME_BYTES and len(body) < length:
            return None
        if crc32(body) != crc:
            raise RecordingError(
                f"the recording {self._path} is damaged at byte {self._file.tell() - len(body)}; "
                f"what lies before can be replayed from a copy cut there"
            )
        try:
            return _decode(body)
        except msgspec.MsgspecError as e:
            raise RecordingError(f"the recording {self._path} was made by another version: {e}") from e


class Playback:
    """A recording at the speed at which it was made: ``poll`` what is ``due``."""

    ends = True

    def __init__(self, source: RecordingSource, now_ns: Callable[[], int] = time.monotonic_ns):
        self.label = source.label
        self._source = source
        self._now_ns = now_ns
        self._next = source.poll()
        self._ahead_ns = now_ns() - self._next.t_ns if self._next else 0

    @property
    def over(self) -> bool:
        """Whether there is nothing more to come."""
        return self._next is None

    def due(self) -> bool:
        """Whether the next reading's time has come."""
        return self._next is not None and self._next.t_ns + self._ahead_ns <= self._now_ns()

    def poll(self) -> Reading | None:
        """The next reading, whether or not it is due."""
        reading = self._next
        if reading is not None:
            self._next = self._source.poll()
        return reading

    def close(self) -> None:
        self._source.close()
